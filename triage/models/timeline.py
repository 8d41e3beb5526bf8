"""TimelineEvent: what happened and who did it. Only ever appended."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import models
from django.utils import timezone

from triage.models.attempt import Attempt


class EventKind(models.TextChoices):
    """Kinds of events; later features add theirs."""

    ATTEMPT_RECORDED = "attempt.recorded", "Attempt became known"
    ATTEMPT_CHANGED = "attempt.changed", "Scheduler facts changed"
    EVIDENCE_RECEIVED = "evidence.received", "Evidence received"
    TRIAGE_REQUESTED = "triage.requested", "Triage requested"
    TRIAGE_STARTED = "triage.started", "Triage started"
    TRIAGE_REQUEUED = "triage.requeued", "Triage picked up again"
    TRIAGE_FAILED = "triage.failed", "Triage failed"
    SOURCE_COLLECTED = "source.collected", "Source collected"
    DIAGNOSIS_RECORDED = "diagnosis.recorded", "Diagnosed"
    DIAGNOSIS_SUPERSEDED = "diagnosis.superseded", "Diagnosis superseded"


class TimelineEvent(models.Model):
    """An entry of the record. `actor` is empty when the system acted by itself."""

    kind = models.CharField(max_length=64)
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="timeline_events"
    )
    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, null=True, blank=True, related_name="events")
    happened_at = models.DateTimeField(default=timezone.now)
    recorded_at = models.DateTimeField(auto_now_add=True)
    payload = models.JSONField(default=dict)

    class Meta:
        ordering = ["happened_at", "id"]
        indexes = [models.Index(fields=["attempt", "happened_at", "id"], name="event_by_attempt")]

    def __str__(self) -> str:
        return self.kind

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Insert; an event that is already recorded can't be changed."""
        if not self._state.adding:
            raise TypeError("timeline events are append-only")
        super().save(*args, **kwargs)
