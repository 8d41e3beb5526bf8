"""What happened to an attempt or an incident, in order, with the comments among it. A fixed number of queries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from django.db.models import Count, Prefetch, Q, QuerySet

from triage.models import Attempt, Comment, CommentRevision, EventKind, Membership, TimelineEvent
from triage.services.incidents import family

MAX_ENTRIES = 200


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
        *(kind for kind in EventKind if kind.startswith(("verdict.", "ticket."))),
        EventKind.INCIDENT_STATUS,
        EventKind.INCIDENT_ASSIGNED,
        EventKind.INCIDENT_SEVERITY,
        EventKind.INCIDENT_RENAMED,
        EventKind.INCIDENT_MERGED,
        EventKind.INCIDENT_UNMERGED,
        EventKind.INCIDENT_SPLIT,
        EventKind.INCIDENT_NOT_SAME,
    ),
}
_NAMED = tuple(kind for kinds in _KINDS.values() for kind in kinds)
_SPOKEN = (*_NAMED, EventKind.COMMENT_EDITED, EventKind.COMMENT_DELETED)
"""What changes how a thread looks."""


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
    """System events, shown or not."""
    older: int
    """Entries before these of the kinds that were asked for that are not here."""


def attempt_thread(attempt: Attempt) -> Thread:
    """What people said and did about an attempt, oldest first, with when it was diagnosed."""
    wanted = (*_NAMED, EventKind.DIAGNOSIS_RECORDED)
    events = TimelineEvent.objects.filter(attempt=attempt)
    return _thread(events, events.filter(kind__in=wanted), newest_first=False)


def incident_thread(incident_id: int, groups: Sequence[str], *, limit: int = MAX_ENTRIES) -> Thread:
    """What happened to an incident, to what was merged into it and to its attempts, newest first."""
    events = incident_events(incident_id)
    return _thread(events, events.filter(_of(groups)), newest_first=True, limit=limit)


def incident_events(incident_id: int) -> QuerySet[TimelineEvent]:
    """All events of an incident, without an order."""
    incidents = family(incident_id)
    members = Membership.objects.filter(incident=incident_id).values("attempt")
    own = Q(incident__in=incidents)
    of_attempts = Q(attempt__in=members) & ~Q(kind__startswith="incident.")
    return TimelineEvent.objects.filter(own | of_attempts).order_by()


def thread_state(events: QuerySet[TimelineEvent]) -> str:
    """Changes when a thread would look different. One query."""
    last = events.filter(kind__in=_SPOKEN).order_by("-id").values_list("id", flat=True).first()
    return str(last or 0)


def _of(groups: Iterable[str]) -> Q:
    wanted = Q(pk__in=[])
    for group in groups:
        if group == Group.SYSTEM:
            wanted |= ~Q(kind__in=_NAMED)
        elif group in _KINDS:
            wanted |= Q(kind__in=_KINDS[Group(group)])
    return wanted


def _thread(
    everything: QuerySet[TimelineEvent],
    wanted: QuerySet[TimelineEvent],
    *,
    newest_first: bool,
    limit: int = MAX_ENTRIES,
) -> Thread:
    counts = everything.aggregate(
        system=Count("pk", filter=~Q(kind__in=_NAMED)), shown=Count("pk", filter=Q(pk__in=wanted.values("pk")))
    )
    rows = wanted.select_related("actor", "attempt__workload", "incident").defer("attempt__search")
    events = list(rows.order_by("-happened_at", "-id")[:limit])
    if not newest_first:
        events.reverse()
    comments = _comments(event.payload.get("comment") for event in events if event.kind == EventKind.COMMENT_ADDED)
    entries = [
        Entry(event, comments.get(event.payload.get("comment")) if event.kind == EventKind.COMMENT_ADDED else None)
        for event in events
    ]
    return Thread(entries, counts["system"], max(0, counts["shown"] - len(entries)))


def _comments(ids: Iterable[int | None]) -> dict[int, Comment]:
    revisions = Prefetch("revisions", queryset=CommentRevision.objects.order_by("id"))
    found = Comment.objects.filter(pk__in=[pk for pk in ids if pk]).select_related("author")
    return {comment.pk: comment for comment in found.prefetch_related(revisions)}
