"""Observation: evidence of an attempt that is sent in parts, and grows."""

from __future__ import annotations

from django.db import models

from triage.access.managers import Seen
from triage.models.attempt import Attempt


class Observation(models.Model):
    """One stream as it was received so far. Its bytes lie in a file until they are pruned; `size` is the truth: what
    the file has beyond it was never acknowledged.
    """

    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, related_name="observations")
    name = models.CharField(max_length=1024, help_text="Name of the stream: applog/train.log.")
    node = models.CharField(max_length=253, blank=True)
    size = models.PositiveBigIntegerField(default=0)
    parts = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)
    changed_at = models.DateTimeField(auto_now=True)
    pruned_at = models.DateTimeField(null=True, blank=True, help_text="Takes no more parts since then.")

    objects = Seen()

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["attempt", "name"], name="observation_identity")]
        indexes = [
            models.Index(
                fields=["changed_at"], name="observation_to_prune", condition=models.Q(pruned_at__isnull=True)
            ),
        ]

    def __str__(self) -> str:
        return self.name


class SubmittedLog(models.Model):
    """A log file that a client of an attribution service named (`/compat/nvrx/logs`), and what it was read as."""

    path = models.CharField(max_length=2000, unique=True, help_text="Real path below the allowed root.")
    user = models.CharField(max_length=253, blank=True)
    job_id = models.CharField(max_length=253, blank=True)
    cycle_id = models.PositiveIntegerField(null=True, blank=True)
    terminal = models.BooleanField(default=False, help_text="The client said that the job is over.")
    created_at = models.DateTimeField(auto_now_add=True)
    asked_at = models.DateTimeField(null=True, blank=True, help_text="When its result was last asked for.")

    objects = Seen()

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return self.path


class SubmittedCycle(models.Model):
    """One run of the workload within a submitted log: the attempt that it became, and its bytes in the file."""

    log = models.ForeignKey(SubmittedLog, on_delete=models.CASCADE, related_name="cycles")
    file = models.CharField(
        max_length=2000, help_text="The file that it was read from; the log itself, or a split log."
    )
    index = models.PositiveIntegerField(help_text="Its place within the file, from 0.")
    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, related_name="+")

    objects = Seen()

    class Meta:
        ordering = ["file", "index"]
        constraints = [models.UniqueConstraint(fields=["log", "file", "index"], name="submitted_cycle_identity")]

    def __str__(self) -> str:
        return f"{self.file} [{self.index}]"
