"""What happened to an attempt or an incident, in order, with the comments among it. A fixed number of queries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from django.db.models import Exists, Func, OuterRef, Prefetch, Q, QuerySet, Subquery

from triage.models import Attempt, Comment, CommentRevision, EventKind, Incident, Membership, TimelineEvent
from triage.models.timeline import SPOKEN
from triage.services.incidents import family

MAX_ENTRIES = 200
NEWEST = 50
"""Entries of an incident that are shown at first."""


class Group(StrEnum):
    """What people choose from: which kinds of entries they see."""

    COMMENTS = "comments"
    DECISIONS = "decisions"
    ATTEMPTS = "attempts"
    SYSTEM = "system"


SHOWN_AT_FIRST = (Group.COMMENTS, Group.DECISIONS, Group.ATTEMPTS)
_KINDS: dict[Group, tuple[str, ...]] = {
    Group.COMMENTS: (EventKind.COMMENT_ADDED,),
    Group.ATTEMPTS: (
        EventKind.INCIDENT_OPENED,
        EventKind.INCIDENT_JOINED,
        EventKind.INCIDENT_LEFT,
        EventKind.INCIDENT_REGRESSED,
    ),
    Group.DECISIONS: (
        *(kind for kind in EventKind if kind.startswith(("verdict.", "ticket.", "node."))),
        EventKind.INCIDENT_STATUS,
        EventKind.INCIDENT_ASSIGNED,
        EventKind.INCIDENT_SEVERITY,
        EventKind.INCIDENT_RENAMED,
        EventKind.INCIDENT_MERGED,
        EventKind.INCIDENT_UNMERGED,
        EventKind.INCIDENT_SPLIT,
        EventKind.INCIDENT_ADDED,
        EventKind.INCIDENT_PUT_BACK,
        EventKind.INCIDENT_NOT_SAME,
        EventKind.INCIDENT_MAY_BE_SAME,
    ),
}
_NAMED = tuple(kind for kinds in _KINDS.values() for kind in kinds)
_SEEN = (*_NAMED, EventKind.COMMENT_EDITED, EventKind.COMMENT_DELETED, EventKind.DIAGNOSIS_RECORDED)
"""What changes how a thread looks."""
_COLUMNS = (
    "kind", "node", "happened_at", "payload", "incident_id", "actor__username", "actor__first_name", "actor__last_name",
    "attempt__number", "attempt__workload__workload_id", "attempt__workload__name", "cluster__name",
)  # fmt: skip
MANY = 100
"""System events are counted up to here."""


@dataclass(frozen=True)
class Entry:
    """One event, and the comment when it is one."""

    event: TimelineEvent
    comment: Comment | None = None

    @property
    def group(self) -> Group:
        return next((group for group, kinds in _KINDS.items() if self.event.kind in kinds), Group.SYSTEM)


@dataclass(frozen=True)
class Thread:
    """A stretch of what happened."""

    entries: list[Entry]
    system: int
    """System events, shown or not; at most MANY are counted."""
    more: bool
    """There are older entries of the kinds that were asked for."""


def attempt_thread(attempt: Attempt) -> Thread:
    """What people said and did about an attempt, oldest first, with when it was diagnosed."""
    wanted = (*_NAMED, EventKind.DIAGNOSIS_RECORDED)
    events = TimelineEvent.objects.filter(attempt=attempt, kind__in=wanted)
    thread = _thread([events], MAX_ENTRIES, system=0)
    thread.entries.reverse()
    return thread


def attempt_state(attempt: Attempt) -> str:
    """Changes when the thread of an attempt would look different. One query."""
    return _latest(TimelineEvent.objects.filter(attempt=attempt, kind__in=_SEEN))


def incident_thread(incident_id: int, groups: Sequence[str], *, limit: int = NEWEST) -> Thread:
    """What happened to an incident, to what was merged into it, to its attempts and the nodes that they blame, newest
    first.
    """
    sources = _of_incident(incident_id)
    others = ~Q(kind__in=_NAMED)
    system = sources.own.filter(others)[:MANY].count() + sources.attempts.filter(others)[:MANY].count()
    kinds = [kind for group in groups if group in _KINDS for kind in _KINDS[Group(group)]]
    wanted = [
        sources.own.filter(kind__in=kinds),
        sources.spoken.filter(kind__in=[kind for kind in kinds if kind in SPOKEN]),
        sources.nodes.filter(kind__in=kinds),
    ]
    if Group.SYSTEM in groups:
        wanted += [sources.own.filter(others), sources.attempts.filter(others)]
    return _thread(wanted, limit, system=min(system, MANY))


def incident_state(incident_id: int) -> str:
    """Changes when the thread of an incident would look different."""
    sources = _of_incident(incident_id)
    parts = (sources.own.filter(kind__in=_SEEN), sources.spoken, sources.nodes)
    return ".".join(_latest(part) for part in parts)


# --- parts ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sources:
    """Where the events of an incident are; each part is served by an index of its own."""

    own: QuerySet[TimelineEvent]
    attempts: QuerySet[TimelineEvent]
    spoken: QuerySet[TimelineEvent]
    """What people said of its attempts."""
    nodes: QuerySet[TimelineEvent]
    """What was done to the nodes that its attempts blame, since the first of them failed."""


def _of_incident(incident_id: int) -> _Sources:
    events = TimelineEvent.objects.order_by()
    members = Membership.objects.filter(incident=incident_id)
    of_attempts = events.filter(attempt__in=members.values("attempt"))
    blamed = (
        Attempt.objects.filter(membership__incident=incident_id, cluster=OuterRef("cluster"))
        .filter(blamed_nodes__contains=Func(OuterRef("node"), template="ARRAY[%(expressions)s]::varchar[]"))
        .order_by()
    )
    since = Incident.objects.filter(pk=incident_id).values("first_at")
    kinds = [kind for kind in EventKind if kind.startswith("node.")]
    on_nodes = events.filter(kind__in=kinds, happened_at__gte=Subquery(since)).exclude(node="")
    return _Sources(
        own=events.filter(incident__in=family(incident_id)),
        attempts=of_attempts.exclude(kind__startswith="incident."),
        spoken=of_attempts.filter(kind__in=SPOKEN),
        nodes=on_nodes.filter(Exists(blamed)),
    )


def _latest(events: QuerySet[TimelineEvent]) -> str:
    return str(events.order_by("-happened_at", "-id").values_list("id", flat=True).first() or 0)


def _thread(parts: Sequence[QuerySet[TimelineEvent]], limit: int, *, system: int) -> Thread:
    """The newest entries of several parts together, newest first."""
    found: dict[int, TimelineEvent] = {}
    for part in parts:
        rows = part.select_related("actor", "attempt__workload", "cluster").only(*_COLUMNS)
        found |= {event.pk: event for event in rows.order_by("-happened_at", "-id")[: limit + 1]}
    events = sorted(found.values(), key=lambda event: (event.happened_at, event.pk), reverse=True)
    comments = _comments(event.payload.get("comment") for event in events if event.kind == EventKind.COMMENT_ADDED)
    entries = [
        Entry(event, comments.get(event.payload.get("comment")) if event.kind == EventKind.COMMENT_ADDED else None)
        for event in events[:limit]
    ]
    return Thread(entries, system, len(events) > limit)


def _comments(ids: Iterable[int | None]) -> dict[int, Comment]:
    revisions = Prefetch("revisions", queryset=CommentRevision.objects.order_by("id"))
    found = Comment.objects.filter(pk__in=[pk for pk in ids if pk]).select_related("author")
    return {comment.pk: comment for comment in found.prefetch_related(revisions)}
