"""What people note of a node: maintenance, drained, back in service. Each is an event of the record and stays."""

from __future__ import annotations

from datetime import timedelta

from django.contrib.auth.models import AbstractBaseUser
from django.db import connection, transaction
from django.utils import timezone

from triage.models import Cluster, EventKind, TimelineEvent
from triage.services.events import record_event
from triage.services.facts import keepable
from triage.services.masking import mask_text

MAX_NOTE = 2000
_ONCE = timedelta(minutes=2)
"""The same person writing the same within this time has pressed twice."""


class NodeRefused(ValueError):
    """What was asked for can't be kept; one sentence that says why."""


@transaction.atomic
def add_note(cluster: Cluster, node: str, actor: AbstractBaseUser, text: str) -> TimelineEvent:
    """Something worth knowing about a node. Raises NodeRefused."""
    _lock(cluster, node)
    text = _note(text)
    if not text:
        raise NodeRefused("Write what was seen or done.")
    recent = TimelineEvent.objects.filter(node=node, cluster=cluster, actor=actor, kind=EventKind.NODE_NOTED)
    same = recent.filter(payload__text=text, happened_at__gte=timezone.now() - _ONCE).first()
    return same or record_event(EventKind.NODE_NOTED, cluster=cluster, node=node, actor=actor, text=text)


@transaction.atomic
def drain(cluster: Cluster, node: str, actor: AbstractBaseUser, reason: str) -> bool:
    """Says that the node was taken out of service, and why. False when it was said already. Raises NodeRefused.

    It is a record: the scheduler is not told.
    """
    _lock(cluster, node)
    reason = _note(reason)
    if not reason:
        raise NodeRefused("Say why it is drained: the next person will ask.")
    if is_drained(cluster, node):
        return False
    record_event(EventKind.NODE_DRAINED, cluster=cluster, node=node, actor=actor, text=reason)
    return True


@transaction.atomic
def return_to_service(cluster: Cluster, node: str, actor: AbstractBaseUser, note: str = "") -> bool:
    """Says that the node is back in service. False when it was not drained. Raises NodeRefused."""
    _lock(cluster, node)
    if not is_drained(cluster, node):
        return False
    record_event(EventKind.NODE_RETURNED, cluster=cluster, node=node, actor=actor, text=_note(note))
    return True


def is_drained(cluster: Cluster, node: str) -> bool:
    """Whether its latest word says so."""
    kinds = (EventKind.NODE_DRAINED, EventKind.NODE_RETURNED)
    events = TimelineEvent.objects.filter(node=node, cluster=cluster, kind__in=kinds)
    latest = events.order_by("-happened_at", "-id").values_list("kind", flat=True).first()
    return latest == EventKind.NODE_DRAINED


def _note(text: str) -> str:
    text = mask_text(keepable(text.strip()))
    if len(text) > MAX_NOTE:
        raise NodeRefused(f"At most {MAX_NOTE:,} characters.")
    return text


def _lock(cluster: Cluster, node: str) -> None:
    """One change of a node at a time."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 119))", [f"{cluster.pk}/{node}"])
