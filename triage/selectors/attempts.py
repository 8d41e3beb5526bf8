"""Reading attempts: lists with filters and keyset pages; one attempt with all that a page shows of it.

No function here runs more queries when there are more rows.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from math import isfinite

from django.db.models import Count, Prefetch, Q, QuerySet, prefetch_related_objects

from triage.access.sql import rows_over
from triage.models import (
    Attempt,
    Collection,
    Diagnosis,
    DiagnosisNode,
    Membership,
    NodeRole,
    Stream,
    TimelineEvent,
    TriageState,
    Verdict,
)
from triage.selectors.filters import NO_NODE, AttemptFilter, filtered_attempts

__all__ = [
    "MAX_PAGE_SIZE",
    "NO_NODE",
    "PAGE_SIZE",
    "AttemptDetail",
    "AttemptFilter",
    "AttemptPage",
    "CursorError",
    "Order",
    "attempt_detail",
    "attempt_rows",
    "count_attempts",
    "count_each",
    "count_newer",
    "export_rows",
    "filtered_attempts",
    "get_attempt",
    "list_attempts",
    "matching_ids",
    "triage_counts",
]

BLAMED = (NodeRole.CAUSE, NodeRole.SUSPECT)
PAGE_SIZE = 50
MAX_PAGE_SIZE = 200


class CursorError(ValueError):
    """The cursor of a page was not made by this program."""


class Order(StrEnum):
    """How a list is ordered."""

    NEWEST = "newest"
    OLDEST = "oldest"
    LOST = "lost"


_ORDERS = {Order.NEWEST: ("sort_at", "-"), Order.OLDEST: ("sort_at", ""), Order.LOST: ("lost_gpu_hours", "-")}
"""Column and direction; the id decides between equals, in the same direction."""


@dataclass(frozen=True)
class AttemptPage:
    """One page of a list, newest first."""

    attempts: list[Attempt]
    """With workload, cluster and diagnosis (without its contract, with the nodes it blames as `blamed`) loaded."""
    older: str | None
    """Cursor of the next page; None on the last."""
    newer: str | None
    """Cursor of the page before; None on the first."""


@dataclass(frozen=True)
class AttemptDetail:
    """All that the page of one attempt needs, in a fixed number of queries."""

    attempt: Attempt
    diagnosis: Diagnosis | None
    """The current one, with its contract."""
    earlier_diagnoses: list[Diagnosis]
    """Superseded ones, newest first, without contracts."""
    streams: list[Stream]
    collections: list[Collection]
    siblings: list[Attempt]
    """The attempts of the same workload, by number, this one included; with their diagnoses' titles."""
    events: list[TimelineEvent] = field(default_factory=list)


def list_attempts(
    narrowed: AttemptFilter | None = None,
    *,
    order: Order = Order.NEWEST,
    cursor: str | None = None,
    limit: int = PAGE_SIZE,
) -> AttemptPage:
    """A page of attempts. Raises CursorError for a cursor that isn't one, or is one of another order."""
    limit = max(1, min(limit, MAX_PAGE_SIZE))
    query = filtered_attempts(narrowed or AttemptFilter())
    position = _decode_cursor(cursor, order) if cursor else None
    backwards = position is not None and position.backwards
    if position is not None:
        query = query.filter(_beyond(position))
    column, sign = _ORDERS[order]
    if backwards:
        sign = "" if sign else "-"
    ordering = (f"{sign}{column}", f"{sign}id")
    picked = query.order_by(*ordering).values("pk")[: limit + 1]  # before what is shown of each is joined to all
    found = list(_with_row_data(Attempt.objects.filter(pk__in=picked)).order_by(*ordering))
    more, rows = len(found) > limit, found[:limit]
    if backwards:
        rows.reverse()
    has_older = more if not backwards else True
    has_newer = more if backwards else position is not None
    return AttemptPage(
        attempts=rows,
        older=_encode_cursor(rows[-1], order, backwards=False) if rows and has_older else None,
        newer=_encode_cursor(rows[0], order, backwards=True) if rows and has_newer else None,
    )


def attempt_rows(ids: Iterable[int]) -> list[Attempt]:
    """These attempts, newest first, with what a row of a list shows."""
    return list(_with_row_data(Attempt.objects.filter(pk__in=ids)).order_by("-sort_at", "-id"))


def export_rows(narrowed: AttemptFilter, order: Order = Order.NEWEST) -> Iterator[Attempt]:
    """Every matching attempt with what a row shows, read from the database bit by bit."""
    column, sign = _ORDERS[order]
    rows = filtered_attempts(narrowed).select_related("workload", "cluster", "diagnosis", "verdict__by")
    rows = rows.prefetch_related(_incident()).defer("diagnosis__contract", "search")
    rows = rows.order_by(f"{sign}{column}", f"{sign}id")
    return rows.iterator(chunk_size=1000)


def matching_ids(narrowed: AttemptFilter, limit: int) -> list[int]:
    """The newest matching attempts, at most `limit`."""
    return list(filtered_attempts(narrowed).order_by("-sort_at", "-id").values_list("pk", flat=True)[:limit])


def count_attempts(narrowed: AttemptFilter | None = None, *, limit: int | None = None) -> int:
    """How many attempts match, counted up to `limit`."""
    return filtered_attempts(narrowed or AttemptFilter()).values("pk")[:limit].count()


def count_each(lists: Sequence[AttemptFilter], limit: int) -> list[int]:
    """How many attempts match each filter, counted up to `limit`. One query, which stops each count at its limit."""
    if not lists:
        return []
    queries = [filtered_attempts(narrowed).values("pk")[:limit] for narrowed in lists]
    parts = [f"SELECT {number}, count(*) FROM ({{{number}}}) found" for number in range(len(queries))]  # nosec B608
    counted = dict(rows_over(" UNION ALL ".join(parts), queries))
    return [counted[number] for number in range(len(lists))]


def count_newer(narrowed: AttemptFilter, newest: Attempt, *, limit: int) -> int:
    """How many matching attempts, up to `limit`, would stand above `newest` by now in the list, newest first."""
    position = _Position(Order.NEWEST, newest.sort_at, newest.pk, backwards=True)
    return filtered_attempts(narrowed).filter(_beyond(position)).values("pk")[:limit].count()


def get_attempt(attempt_id: int) -> Attempt:
    """One attempt with workload, cluster, current diagnosis and the standing verdict.

    Raises Attempt.DoesNotExist.
    """
    rows = Attempt.objects.select_related("workload", "cluster", "diagnosis", "verdict__by", "verdict__diagnosis")
    return rows.defer("verdict__diagnosis__contract").get(pk=attempt_id)


def attempt_detail(attempt_id: int) -> AttemptDetail:
    """All that the page of an attempt shows. Raises Attempt.DoesNotExist."""
    attempt = get_attempt(attempt_id)
    prefetch_related_objects([attempt], _incident())
    siblings = (
        Attempt.objects.filter(workload=attempt.workload_id)
        .select_related("workload", "diagnosis", "verdict")
        .defer("diagnosis__contract")
    )
    return AttemptDetail(
        attempt=attempt,
        diagnosis=attempt.diagnosis,
        earlier_diagnoses=list(attempt.diagnoses.exclude(pk=attempt.diagnosis_id or 0).defer("contract")[:50]),
        streams=list(attempt.streams.all()),
        collections=list(attempt.collections.all()),
        siblings=list(siblings.order_by("-number")[:100])[::-1],
        events=list(attempt.events.select_related("actor")[:500]),
    )


def triage_counts() -> dict[str, int]:
    """How many attempts are in each triage state."""
    counts = dict(Attempt.objects.order_by().values_list("triage_state").annotate(rows=Count("*")))
    return {state.value: counts.get(state.value, 0) for state in TriageState}


# --- parts ------------------------------------------------------------------------------------------------------------


def _incident() -> Prefetch:
    """The incident of each attempt, with who has it. Never by a join: not everybody who sees an attempt sees it."""
    return Prefetch("membership", queryset=Membership.objects.select_related("incident__assignee"))


@dataclass(frozen=True)
class _Position:
    order: Order
    value: datetime | float
    id: int
    backwards: bool


def _beyond(position: _Position) -> Q:
    """Rows strictly after the position in the direction of travel; written so that the index serves it."""
    column, sign = _ORDERS[position.order]
    way = "gt" if bool(sign) == position.backwards else "lt"
    beyond = Q(**{f"{column}__{way}": position.value}) | Q(**{f"id__{way}": position.id})
    return Q(**{f"{column}__{way}e": position.value}) & beyond


def _encode_cursor(attempt: Attempt, order: Order, *, backwards: bool) -> str:
    value = attempt.lost_gpu_hours if order is Order.LOST else attempt.sort_at.isoformat()
    raw = json.dumps(["n" if backwards else "o", order, value, attempt.pk], separators=(",", ":"))
    return base64.urlsafe_b64encode(raw.encode()).decode().rstrip("=")


def _decode_cursor(cursor: str, order: Order) -> _Position:
    try:
        raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        direction, its_order, value, pk = json.loads(raw)
        if order is Order.LOST:
            at: datetime | float = float(value)
            known = isfinite(at)
        else:
            at = datetime.fromisoformat(value)
            known = at.tzinfo is not None
        if direction not in ("n", "o") or its_order != order or type(pk) is not int or not 0 <= pk < 2**63 or not known:
            raise ValueError(cursor)
    except (ValueError, TypeError, RecursionError):
        raise CursorError("cursor: not one of ours") from None
    return _Position(order, at, pk, backwards=direction == "n")


def _with_row_data(query: QuerySet[Attempt]) -> QuerySet[Attempt]:
    """What a row shows. Verdicts and incidents come with queries of their own: one join over nine tables takes the
    database longer to plan than to run.
    """
    named = DiagnosisNode.objects.filter(role__in=BLAMED).order_by("id")
    rows = query.select_related("workload", "cluster", "diagnosis").defer("diagnosis__contract", "search")
    return rows.prefetch_related(
        Prefetch("diagnosis__nodes", queryset=named, to_attr="blamed"),
        Prefetch("verdict", queryset=Verdict.objects.select_related("by")),
        _incident(),
    )
