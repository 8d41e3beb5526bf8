"""Incident: attempts that failed in the same way; the unit that people own, discuss, share and close."""

from __future__ import annotations

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Now

from triage.access.managers import Seen
from triage.models.attempt import Attempt

USER = settings.AUTH_USER_MODEL


class IncidentStatus(models.TextChoices):
    """Where the work on an incident is. `regressed` is set by the system alone."""

    NEW = "new", "New"
    INVESTIGATING = "investigating", "Investigating"
    MITIGATED = "mitigated", "Mitigated"
    RESOLVED = "resolved", "Resolved"
    REGRESSED = "regressed", "Regressed"


SETTLED = (IncidentStatus.MITIGATED, IncidentStatus.RESOLVED)
"""What a new attempt turns into regressed."""


class Severity(models.IntegerChoices):
    """How much it hurts, 1 the worst."""

    ONE = 1, "1: work stops for many"
    TWO = 2, "2: work stops for a team"
    THREE = 3, "3: work goes on, slower or again"
    FOUR = 4, "4: a nuisance"


class Incident(models.Model):
    """Its number is its id. What lists show (counts, hours, first, last) is kept here and renewed by the services."""

    title = models.CharField(max_length=500)
    domain = models.CharField(max_length=32)
    sub_domain = models.CharField(max_length=32)
    parts = models.JSONField(default=dict, help_text="Of the fingerprint, readable; of the first attempt's diagnosis.")
    rule = models.CharField(max_length=200, blank=True)

    status = models.CharField(max_length=16, choices=IncidentStatus, default=IncidentStatus.NEW)
    status_at = models.DateTimeField(db_default=Now(), help_text="When the status was last set.")
    severity = models.PositiveSmallIntegerField(choices=Severity, null=True, blank=True)
    assignee = models.ForeignKey(USER, on_delete=models.SET_NULL, null=True, blank=True, related_name="incidents")

    merged_into = models.ForeignKey(
        "self", on_delete=models.PROTECT, null=True, blank=True, related_name="merged", help_text="Set by people alone."
    )
    split_from = models.ForeignKey("self", on_delete=models.PROTECT, null=True, blank=True, related_name="splits")

    places = ArrayField(
        models.TextField(),
        default=list,
        editable=False,
        help_text="Cluster's id/queue of each attempt that ever was in it: who sees it. Kept by the database itself.",
    )
    attempts_count = models.PositiveIntegerField(default=0)
    nodes = ArrayField(
        models.CharField(max_length=253), default=list, blank=True, help_text="Blamed most often, at most three."
    )
    nodes_count = models.PositiveIntegerField(default=0, help_text="All nodes that its attempts blame.")
    gpu_hours = models.FloatField(default=0.0, help_text="Nodes x GPUs x hours of its attempts, where known.")
    first_at = models.DateTimeField(null=True, blank=True, help_text="End of its first attempt.")
    last_at = models.DateTimeField(null=True, blank=True, help_text="End of its last attempt.")
    created_at = models.DateTimeField(auto_now_add=True)

    objects = Seen()

    class Meta:
        ordering = ["-last_at", "-id"]
        indexes = [
            models.Index(
                fields=["status", "-last_at", "-id"],
                name="incident_by_status",
                condition=models.Q(merged_into__isnull=True),
            ),
            models.Index(fields=["domain", "sub_domain"], name="incident_by_domain"),
            models.Index(fields=["assignee", "status"], name="incident_by_assignee"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def name(self) -> str:
        """What people call it: INC-118."""
        return f"INC-{self.pk}"

    @property
    def is_open(self) -> bool:
        return self.status != IncidentStatus.RESOLVED


class IncidentKey(models.Model):
    """The incident that attempts with this fingerprint join. A merge doesn't change it: `Incident.merged_into` does."""

    key = models.CharField(max_length=240, unique=True, help_text="Version and key of the fingerprint: 1:f069b5a2.")
    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="keys")
    created_at = models.DateTimeField(auto_now_add=True)

    objects = Seen()

    def __str__(self) -> str:
        return self.key


class Membership(models.Model):
    """Which incident an attempt belongs to.

    `home` is where its fingerprint or a person (`by_hand`) put it; `incident` is where it shows: home, or what home was
    merged into. So a merge can be undone, and grouping anew never undoes what a person decided.
    """

    attempt = models.OneToOneField(Attempt, on_delete=models.CASCADE, related_name="membership")
    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="memberships")
    home = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="+")
    by_hand = models.BooleanField(default=False, help_text="A person split it off; its fingerprint no longer counts.")
    joined_at = models.DateTimeField(auto_now_add=True)

    objects = Seen()

    class Meta:
        indexes = [models.Index(fields=["incident", "-attempt"], name="newest_member")]
        base_manager_name = "objects"  # so that `attempt.membership` too is only there for who sees the incident

    def __str__(self) -> str:
        return f"{self.attempt_id} in {self.incident_id}"


class Ticket(models.Model):
    """A link from an incident to where else it is worked on."""

    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="tickets")
    label = models.CharField(max_length=100)
    url = models.CharField(max_length=1000)
    note = models.CharField(max_length=300, blank=True)
    by = models.ForeignKey(USER, on_delete=models.PROTECT, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    objects = Seen()

    class Meta:
        ordering = ["id"]
        constraints = [models.UniqueConstraint(fields=["incident", "url"], name="ticket_once")]

    def __str__(self) -> str:
        return self.label


class NotTheSame(models.Model):
    """Two incidents that look related and are not: a person said so. `low` has the smaller id."""

    low = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="+")
    high = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="+")
    by = models.ForeignKey(USER, on_delete=models.PROTECT, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    objects = Seen()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["low", "high"], name="not_the_same_once")]

    def __str__(self) -> str:
        return f"{self.low_id} is not {self.high_id}"
