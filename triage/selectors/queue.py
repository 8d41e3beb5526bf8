"""What waits to be diagnosed, by cluster."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Min, Q

from triage.models import Attempt, TriageState
from triage.models.attempt import UNFINISHED


@dataclass(frozen=True)
class Queue:
    """Of one cluster."""

    cluster: str
    waiting: int
    """Asked for, and not begun."""
    at_work: int
    since: datetime | None
    """When the oldest of them was asked for."""


def queues() -> list[Queue]:
    """Of each cluster of which an attempt was asked for and is not diagnosed yet, the longest first."""
    waiting = Count("pk", filter=Q(triage_state=TriageState.PENDING))
    at_work = Count("pk", filter=~Q(triage_state=TriageState.PENDING))
    asked_for = Attempt.objects.filter(triage_state__in=UNFINISHED, triage_requested_at__isnull=False).order_by()
    rows = asked_for.values_list("cluster__name").annotate(
        waiting=waiting, at_work=at_work, since=Min("triage_requested_at")
    )
    return sorted((Queue(*row) for row in rows), key=lambda row: (-row.waiting, row.cluster))
