"""Verdict: a person's word on a diagnosis."""

from __future__ import annotations

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models

from triage.access.managers import Seen
from triage.models.attempt import Attempt
from triage.models.diagnosis import Diagnosis


class VerdictKind(models.TextChoices):
    """What a person says of a diagnosis."""

    CONFIRMED = "confirmed", "Confirmed"
    WRONG_CAUSE = "wrong_cause", "Wrong cause"
    WRONG_NODE = "wrong_node", "Wrong node"
    INCOMPLETE = "incomplete", "Incomplete"


CORRECTIONS = (VerdictKind.WRONG_CAUSE, VerdictKind.WRONG_NODE, VerdictKind.INCOMPLETE)


class Verdict(models.Model):
    """What one person said of one diagnosis, with the answer that they hold to be right.

    The answer is kept whole, also when it is the machine's: a newer diagnosis is compared with it and never replaces
    it. A verdict ends when it is withdrawn or when a newer one takes its place; at most one stands per attempt.
    """

    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, related_name="verdicts")
    diagnosis = models.ForeignKey(
        Diagnosis, on_delete=models.CASCADE, related_name="verdicts", help_text="What it was said of."
    )
    kind = models.CharField(max_length=16, choices=VerdictKind)
    by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="verdicts")
    reason = models.TextField(blank=True, help_text="Required for a correction: it labels the case.")

    title = models.CharField(max_length=500, help_text="The right answer in one line.")
    domain = models.CharField(max_length=32)
    sub_domain = models.CharField(max_length=32)
    nodes = ArrayField(models.CharField(max_length=253), default=list, blank=True, help_text="Nodes to blame.")
    evidence = ArrayField(
        models.CharField(max_length=16), default=list, blank=True, help_text="Ids of the diagnosis's evidence."
    )
    lines = models.JSONField(default=list, help_text="Further lines that show it: triage.services.quotes.Quote.")
    rule = models.CharField(max_length=200, blank=True, help_text="Root rule of the diagnosis; what it counts for.")

    created_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True, blank=True, help_text="When it was withdrawn or replaced.")
    ended_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )

    objects = Seen()

    class Meta:
        ordering = ["-created_at", "-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["attempt"], condition=models.Q(ended_at__isnull=True), name="one_verdict_stands"
            ),
            models.CheckConstraint(
                condition=models.Q(kind="confirmed") | ~models.Q(reason=""), name="a_correction_has_a_reason"
            ),
        ]
        indexes = [
            models.Index(fields=["rule", "kind"], name="verdict_by_rule"),
            # how often people confirmed a rule: of what stands, in the index alone
            models.Index(fields=["rule", "kind"], name="verdict_standing", condition=models.Q(ended_at__isnull=True)),
            models.Index(fields=["attempt", "-created_at"], name="verdict_by_attempt"),
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()}: {self.title}"

    @property
    def is_correction(self) -> bool:
        return self.kind != VerdictKind.CONFIRMED
