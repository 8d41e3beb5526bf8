"""TimelineEvent: what happened and who did it. Only ever appended."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import models
from django.utils import timezone

from triage.access.managers import Seen
from triage.models.attempt import Attempt
from triage.models.cluster import Cluster
from triage.models.incident import Incident


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
    VERDICT_CONFIRMED = "verdict.confirmed", "Confirmed the diagnosis"
    VERDICT_CORRECTED = "verdict.corrected", "Corrected the diagnosis"
    VERDICT_KEPT = "verdict.kept", "Kept the earlier word"
    VERDICT_WITHDRAWN = "verdict.withdrawn", "Withdrew the verdict"
    VERDICT_DISAGREES = "verdict.disagrees", "Engine now disagrees"
    VERDICT_AGREES = "verdict.agrees", "Engine agrees again"
    INCIDENT_OPENED = "incident.opened", "Incident opened"
    INCIDENT_JOINED = "incident.joined", "Joined an incident"
    INCIDENT_LEFT = "incident.left", "Left an incident"
    INCIDENT_REGRESSED = "incident.regressed", "Incident regressed"
    INCIDENT_STATUS = "incident.status", "Set the status"
    INCIDENT_ASSIGNED = "incident.assigned", "Gave it to somebody"
    INCIDENT_SEVERITY = "incident.severity", "Set the severity"
    INCIDENT_RENAMED = "incident.renamed", "Changed the title"
    INCIDENT_MERGED = "incident.merged", "Merged incidents"
    INCIDENT_UNMERGED = "incident.unmerged", "Undid a merge"
    INCIDENT_SPLIT = "incident.split", "Split off attempts"
    INCIDENT_ADDED = "incident.added", "Added attempts"
    INCIDENT_PUT_BACK = "incident.put_back", "Put attempts back"
    INCIDENT_NOT_SAME = "incident.not_same", "Said that two are not the same"
    INCIDENT_MAY_BE_SAME = "incident.may_be_same", "Took back that two are not the same"
    TICKET_LINKED = "ticket.linked", "Linked a ticket"
    TICKET_UNLINKED = "ticket.unlinked", "Took a ticket away"
    COMMENT_ADDED = "comment.added", "Commented"
    COMMENT_EDITED = "comment.edited", "Edited a comment"
    COMMENT_DELETED = "comment.deleted", "Deleted a comment"
    NODE_NOTED = "node.noted", "Noted"
    NODE_DRAINED = "node.drained", "Drained"
    NODE_RETURNED = "node.returned", "Returned to service"
    CLUSTER_CONFIGURED = "cluster.configured", "Set a cluster up"
    CLUSTER_REMOVED = "cluster.removed", "Removed a cluster's set-up"
    SOURCE_CONFIGURED = "source.configured", "Set a source up"
    SOURCE_REMOVED = "source.removed", "Removed a source"
    SHARE_MADE = "share.made", "Made a share link"
    SHARE_REVOKED = "share.revoked", "Revoked a share link"
    SHARE_OPENED = "share.opened", "Share link opened"


SPOKEN = (
    EventKind.COMMENT_ADDED, EventKind.COMMENT_EDITED, EventKind.COMMENT_DELETED,
    EventKind.VERDICT_CONFIRMED, EventKind.VERDICT_CORRECTED, EventKind.VERDICT_KEPT, EventKind.VERDICT_WITHDRAWN,
    EventKind.VERDICT_DISAGREES, EventKind.VERDICT_AGREES,
)  # fmt: skip
"""What is said of attempts: few among the many events of triage."""


class TimelineEvent(models.Model):
    """An entry of the record. `actor` is empty when the system acted by itself."""

    kind = models.CharField(max_length=64)
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="timeline_events"
    )
    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, null=True, blank=True, related_name="events")
    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, null=True, blank=True, related_name="events")
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, null=True, blank=True, related_name="+")
    node = models.CharField(max_length=253, blank=True, help_text="The node of `cluster` that it is about.")
    happened_at = models.DateTimeField(default=timezone.now)
    recorded_at = models.DateTimeField(auto_now_add=True)
    payload = models.JSONField(default=dict)

    objects = Seen()

    class Meta:
        ordering = ["happened_at", "id"]
        indexes = [
            models.Index(fields=["attempt", "happened_at", "id"], name="event_by_attempt"),
            models.Index(
                fields=["incident", "happened_at", "id"],
                name="event_by_incident",
                condition=models.Q(incident__isnull=False),
            ),
            models.Index(
                fields=["attempt", "happened_at", "id"],
                name="event_spoken",
                condition=models.Q(kind__in=[kind.value for kind in SPOKEN]),
            ),
            models.Index(
                fields=["node", "cluster", "happened_at", "id"], name="event_by_node", condition=~models.Q(node="")
            ),
        ]

    def __str__(self) -> str:
        return self.kind

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Insert; an event that is already recorded can't be changed."""
        if not self._state.adding:
            raise TypeError("timeline events are append-only")
        super().save(*args, **kwargs)
