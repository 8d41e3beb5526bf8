"""The record of what happened. Called inside the transaction of what it records."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db.models.functions import Now

from triage.models import Attempt, Cluster, EventKind, Incident, TimelineEvent
from triage.services.announcing import announce


def record_event(
    kind: EventKind,
    *,
    attempt: Attempt | None = None,
    incident: Incident | None = None,
    cluster: Cluster | None = None,
    node: str = "",
    actor: AbstractBaseUser | None = None,
    happened_at: datetime | None = None,
    **payload: Any,
) -> TimelineEvent:
    """Appends an event; one about a node names its cluster too.

    `payload` holds plain values; `actor` is None when the system acted by itself.
    """
    event = TimelineEvent.objects.create(
        kind=kind.value, attempt=attempt, incident=incident, cluster=cluster, node=node, actor=actor,
        happened_at=happened_at or Now(), payload=payload,
    )  # fmt: skip
    announce(event)
    return event
