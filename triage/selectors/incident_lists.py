"""Lists of incidents: narrowed by what one looks for, in pages that lose nothing. Rows add no queries."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from math import isfinite
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet, Value
from django.db.models.functions import Coalesce

from triage.models import Incident, IncidentStatus, Membership, Ticket
from triage.selectors.attempts import CursorError
from triage.selectors.filters import printable_value

PAGE_SIZE = 50
MAX_WORDS = 8
UNSAID = 9
"""As a severity: nobody has said it; behind those that were."""
STATES = {
    "open": Q(status__in=[status for status in IncidentStatus if status != IncidentStatus.RESOLVED]),
    "resolved": Q(status=IncidentStatus.RESOLVED),
}


class IncidentOrder(StrEnum):
    """How a list is ordered."""

    LAST = "last"
    LOST = "lost"
    ATTEMPTS = "attempts"
    SEVERITY = "severity"


_ORDERS = {
    IncidentOrder.LAST: ("last_at", "-"),
    IncidentOrder.LOST: ("gpu_hours", "-"),
    IncidentOrder.ATTEMPTS: ("attempts_count", "-"),
    IncidentOrder.SEVERITY: ("hurts", ""),
}
"""Column and direction; the id decides between equals, the newest first."""


@dataclass(frozen=True)
class IncidentFilter:
    """What a list is narrowed to. Merged incidents show only in what they were merged into."""

    state: str = "open"
    """open or resolved; empty for both."""
    assignee: int | None = None
    nobodys: bool = False
    """Given to nobody."""
    domain: str = ""
    severity: int | None = None
    search: str = ""
    """Words that must each occur: in the title, the rule, a ticket; a node that is blamed; a number, INC-118."""


@dataclass(frozen=True)
class IncidentPage:
    """One page of the list."""

    incidents: list[Incident]
    """With `assignee`."""
    older: str | None
    """Cursor of the next page; None on the last."""


@dataclass(frozen=True)
class Beside:
    """What stands before and after an incident in the list of the open ones."""

    newer: int | None
    older: int | None


def list_incidents(
    narrowed: IncidentFilter | None = None,
    *,
    order: IncidentOrder = IncidentOrder.LAST,
    cursor: str | None = None,
) -> IncidentPage:
    """A page of incidents. Raises CursorError for a cursor that isn't one, or is one of another order."""
    query = _ordered(narrowed or IncidentFilter(), order)
    if cursor:
        query = query.filter(_beyond(order, *_decode(cursor, order)))
    found = list(query[: PAGE_SIZE + 1])
    shown = found[:PAGE_SIZE]
    return IncidentPage(shown, _encode(shown[-1], order) if len(found) > PAGE_SIZE else None)


def all_incidents(narrowed: IncidentFilter, order: IncidentOrder = IncidentOrder.LAST) -> Iterator[Incident]:
    """Every incident of the list, read from the database bit by bit."""
    return _ordered(narrowed, order).iterator(chunk_size=500)


def count_incidents(narrowed: IncidentFilter) -> int:
    return _listed(narrowed).count()


def count_since(narrowed: IncidentFilter, moment: datetime) -> int:
    """In how many of the list an attempt ended after this moment."""
    return _listed(narrowed).filter(last_at__gt=moment).count()


def incident_counts(user: User) -> dict[str, int]:
    """How many there are in each view of the list: open, resolved, mine. One query."""
    return _listed(IncidentFilter(state="")).aggregate(
        open=Count("pk", filter=STATES["open"]),
        resolved=Count("pk", filter=STATES["resolved"]),
        mine=Count("pk", filter=STATES["open"] & Q(assignee=user)),
    )


def beside(incident: Incident) -> Beside:
    """Ids of the next newer and the next older open incident. Two queries."""
    if incident.last_at is None:
        return Beside(None, None)
    at, pk = incident.last_at, incident.pk
    listed = _listed(IncidentFilter())
    newer = listed.filter(Q(last_at__gte=at) & (Q(last_at__gt=at) | Q(pk__gt=pk))).order_by("last_at", "id")
    older = listed.filter(_beyond(IncidentOrder.LAST, at, pk)).order_by("-last_at", "-id")
    return Beside(newer.values_list("pk", flat=True).first(), older.values_list("pk", flat=True).first())


# --- parts ------------------------------------------------------------------------------------------------------------


def _listed(narrowed: IncidentFilter) -> QuerySet[Incident]:
    query = Incident.objects.filter(merged_into=None, attempts_count__gt=0).order_by()
    if narrowed.state:
        query = query.filter(STATES.get(narrowed.state, STATES["open"]))
    if narrowed.assignee is not None:
        query = query.filter(assignee=narrowed.assignee)
    if narrowed.nobodys:
        query = query.filter(assignee=None)
    if narrowed.domain:
        query = query.filter(domain=narrowed.domain)
    if narrowed.severity is not None:
        query = query.filter(severity=None if narrowed.severity == UNSAID else narrowed.severity)
    for word in printable_value(narrowed.search).split()[:MAX_WORDS]:
        query = query.filter(_has(word))
    return query


def _has(word: str) -> Q:
    blamed = Membership.objects.filter(incident=OuterRef("pk"), attempt__blamed_nodes__contains=[word])
    tickets = Ticket.objects.filter(incident=OuterRef("pk"), label__icontains=word)
    found = Q(title__icontains=word) | Q(rule__icontains=word) | Exists(tickets) | Exists(blamed)
    number = word.lower().removeprefix("inc-")
    return found | Q(pk=int(number)) if number.isascii() and number.isdecimal() and len(number) < 19 else found


def _ordered(narrowed: IncidentFilter, order: IncidentOrder) -> QuerySet[Incident]:
    column, sign = _ORDERS[order]
    query = _listed(narrowed).annotate(hurts=Coalesce(F("severity"), Value(UNSAID)))
    return query.select_related("assignee").order_by(f"{sign}{column}", "-id")


def _beyond(order: IncidentOrder, value: Any, pk: int) -> Q:
    column, sign = _ORDERS[order]
    way = "lt" if sign else "gt"
    return Q(**{f"{column}__{way}e": value}) & (Q(**{f"{column}__{way}": value}) | Q(pk__lt=pk))


def _encode(incident: Incident, order: IncidentOrder) -> str:
    value = getattr(incident, _ORDERS[order][0])
    raw = json.dumps([order, value.isoformat() if isinstance(value, datetime) else value, incident.pk])
    return base64.urlsafe_b64encode(raw.encode()).decode().rstrip("=")


def _decode(cursor: str, order: IncidentOrder) -> tuple[Any, int]:
    try:
        its_order, value, pk = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        if order is IncidentOrder.LAST:
            place: Any = datetime.fromisoformat(value)
            known = place.tzinfo is not None
        else:
            place = float(value)
            known = isfinite(place)
        if its_order != order or type(pk) is not int or not 0 <= pk < 2**63 or not known:
            raise ValueError(cursor)
    except (ValueError, TypeError, RecursionError):
        raise CursorError("cursor: not one of ours") from None
    return place, pk
