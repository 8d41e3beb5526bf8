"""Reading attempts: lists with filters, keyset pages and facet counts; one attempt with all that a page shows of it.

No function here runs more queries when there are more rows.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from django.db.models import Count, Func, Prefetch, Q, QuerySet
from django.http import QueryDict
from django.utils.dateparse import parse_datetime

from triage.models import Attempt, Collection, Diagnosis, DiagnosisNode, NodeRole, Stream, TimelineEvent, TriageState

BLAMED = (NodeRole.CAUSE, NodeRole.SUSPECT)
NO_NODE = "none"
"""As a value of the node filter: attempts with a diagnosis that blames no node."""
PAGE_SIZE = 50
MAX_PAGE_SIZE = 200


class CursorError(ValueError):
    """The cursor of a page was not made by this program."""


@dataclass(frozen=True)
class AttemptFilter:
    """What a list is narrowed to. Values of one field are alternatives, fields are combined."""

    domain: tuple[str, ...] = ()
    sub_domain: tuple[str, ...] = ()
    cluster: tuple[str, ...] = ()
    node: tuple[str, ...] = ()
    """Nodes that the diagnosis blames (cause or suspect); `none` for attempts that blame no node."""
    user: tuple[str, ...] = ()
    outcome: tuple[str, ...] = ()
    status: tuple[str, ...] = ()
    """Triage states: pending, collecting, diagnosing, done, failed."""
    since: datetime | None = None
    until: datetime | None = None
    text: str = ""
    """Words that must all occur, anywhere in the workload's names, the nodes or the verdict."""

    MULTIPLE = ("domain", "sub_domain", "cluster", "node", "user", "outcome", "status")

    @classmethod
    def from_query(cls, query: QueryDict | Mapping[str, Any]) -> AttemptFilter:
        """From a URL's parameters: `?domain=hardware&domain=network&since=2026-11-03T02:00&text=xid+149`.

        Unknown parameters and unreadable times are ignored.
        """
        many = query.getlist if isinstance(query, QueryDict) else lambda name: _as_list(query.get(name))
        values: dict[str, Any] = {
            name: tuple(dict.fromkeys(clean for value in many(name) if (clean := _clean(value))))
            for name in cls.MULTIPLE
        }
        return cls(
            **values,
            since=_moment(query.get("since")),
            until=_moment(query.get("until")),
            text=_clean(query.get("text") or ""),
        )

    def to_query(self) -> dict[str, list[str]]:
        """The URL parameters that `from_query` reads back; empty fields are left out."""
        query = {name: list(getattr(self, name)) for name in self.MULTIPLE if getattr(self, name)}
        for name in ("since", "until"):
            moment = getattr(self, name)
            if moment is not None:
                query[name] = [moment.astimezone(UTC).isoformat().replace("+00:00", "Z")]
        if self.text:
            query["text"] = [self.text]
        return query

    def without(self, name: str) -> AttemptFilter:
        """The same filter with one field empty."""
        return replace(self, **{name: getattr(AttemptFilter(), name)})

    @property
    def is_empty(self) -> bool:
        return self == AttemptFilter()


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
class FacetValue:
    value: str
    count: int
    selected: bool = False


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
    narrowed: AttemptFilter | None = None, *, cursor: str | None = None, limit: int = PAGE_SIZE
) -> AttemptPage:
    """A page of attempts, newest first. Raises CursorError for a cursor that isn't one."""
    limit = max(1, min(limit, MAX_PAGE_SIZE))
    query = filtered_attempts(narrowed or AttemptFilter())
    position = _decode_cursor(cursor) if cursor else None
    towards_newer = position is not None and position.newer
    if position is not None:
        query = query.filter(_beyond(position))
    order = ("sort_at", "id") if towards_newer else ("-sort_at", "-id")
    found = list(_with_row_data(query).order_by(*order)[: limit + 1])
    more, rows = len(found) > limit, found[:limit]
    if towards_newer:
        rows.reverse()
    has_older = more if not towards_newer else True
    has_newer = more if towards_newer else position is not None
    return AttemptPage(
        attempts=rows,
        older=_encode_cursor(rows[-1], newer=False) if rows and has_older else None,
        newer=_encode_cursor(rows[0], newer=True) if rows and has_newer else None,
    )


def attempt_rows(ids: Iterable[int]) -> list[Attempt]:
    """These attempts, newest first, with what a row of a list shows."""
    return list(_with_row_data(Attempt.objects.filter(pk__in=ids)).order_by("-sort_at", "-id"))


def count_attempts(narrowed: AttemptFilter | None = None) -> int:
    """How many attempts match."""
    return filtered_attempts(narrowed or AttemptFilter()).count()


def count_newer(narrowed: AttemptFilter, newest: Attempt) -> int:
    """How many matching attempts would stand above `newest` by now."""
    position = _Position(newest.sort_at, newest.pk, newer=True)
    return filtered_attempts(narrowed).filter(_beyond(position)).count()


def facet_counts(narrowed: AttemptFilter | None = None, *, top: int = 12) -> dict[str, list[FacetValue]]:
    """For each facet its values with counts, most frequent first.

    The counts of a facet respect every other filter but not its own, so that alternatives can be seen. Values that are
    selected are always in the list, even with a count of 0. One query a facet.
    """
    narrowed = narrowed or AttemptFilter()
    columns = {
        "status": "triage_state",
        "domain": "domain",
        "sub_domain": "sub_domain",
        "outcome": "outcome",
        "cluster": "cluster__name",
        "user": "user",
    }
    facets: dict[str, list[FacetValue]] = {}
    for name, column in columns.items():
        rows = filtered_attempts(narrowed.without(name)).order_by().values_list(column).annotate(rows=Count("*"))
        counts = {value: count for value, count in rows.order_by("-rows", column)[: top + 1] if value}
        facets[name] = _facet_values(counts, getattr(narrowed, name), top)
    facets["node"] = _facet_values(_node_counts(narrowed.without("node"), top), narrowed.node, top)
    return facets


def filtered_attempts(narrowed: AttemptFilter) -> QuerySet[Attempt]:
    """The attempts that match, without an order."""
    query = Attempt.objects.order_by()
    for name, column in (
        ("domain", "domain"),
        ("sub_domain", "sub_domain"),
        ("cluster", "cluster__name"),
        ("user", "user"),
        ("outcome", "outcome"),
        ("status", "triage_state"),
    ):
        if getattr(narrowed, name):
            query = query.filter(**{f"{column}__in": getattr(narrowed, name)})
    if narrowed.since is not None:
        query = query.filter(sort_at__gte=narrowed.since)
    if narrowed.until is not None:
        query = query.filter(sort_at__lt=narrowed.until)
    for word in narrowed.text.lower().split()[:8]:
        query = query.filter(search__contains=word)
    if narrowed.node:
        wanted = Q(blamed_nodes__overlap=[node for node in narrowed.node if node != NO_NODE])
        if NO_NODE in narrowed.node:
            wanted |= Q(diagnosis__isnull=False, blamed_nodes=[])
        query = query.filter(wanted)
    return query


def get_attempt(attempt_id: int) -> Attempt:
    """One attempt with workload, cluster, current diagnosis, the standing verdict and its incident.

    Raises Attempt.DoesNotExist.
    """
    rows = Attempt.objects.select_related(
        "workload", "cluster", "diagnosis", "verdict__by", "verdict__diagnosis", "membership__incident"
    )
    return rows.defer("verdict__diagnosis__contract").get(pk=attempt_id)


def attempt_detail(attempt_id: int) -> AttemptDetail:
    """All that the page of an attempt shows. Raises Attempt.DoesNotExist."""
    attempt = get_attempt(attempt_id)
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


@dataclass(frozen=True)
class _Position:
    sort_at: datetime
    id: int
    newer: bool


def _beyond(position: _Position) -> Q:
    """Rows strictly after the position in the direction of travel; written so that the index serves it."""
    if position.newer:
        return Q(sort_at__gte=position.sort_at) & (Q(sort_at__gt=position.sort_at) | Q(id__gt=position.id))
    return Q(sort_at__lte=position.sort_at) & (Q(sort_at__lt=position.sort_at) | Q(id__lt=position.id))


def _encode_cursor(attempt: Attempt, *, newer: bool) -> str:
    raw = json.dumps(["n" if newer else "o", attempt.sort_at.isoformat(), attempt.pk], separators=(",", ":"))
    return base64.urlsafe_b64encode(raw.encode()).decode().rstrip("=")


def _decode_cursor(cursor: str) -> _Position:
    try:
        raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        direction, moment, pk = json.loads(raw)
        sort_at = datetime.fromisoformat(moment)
        if direction not in ("n", "o") or type(pk) is not int or not 0 <= pk < 2**63 or sort_at.tzinfo is None:
            raise ValueError(cursor)
    except (ValueError, TypeError, RecursionError):
        raise CursorError("cursor: not one of ours") from None
    return _Position(sort_at, pk, newer=direction == "n")


def _with_row_data(query: QuerySet[Attempt]) -> QuerySet[Attempt]:
    named = DiagnosisNode.objects.filter(role__in=BLAMED).order_by("id")
    rows = query.select_related("workload", "cluster", "diagnosis", "verdict__by", "membership__incident")
    rows = rows.defer("diagnosis__contract", "search")
    return rows.prefetch_related(Prefetch("diagnosis__nodes", queryset=named, to_attr="blamed"))


def _node_counts(narrowed: AttemptFilter, top: int) -> dict[str, int]:
    nodes = filtered_attempts(narrowed).exclude(blamed_nodes=[]).annotate(node=Func("blamed_nodes", function="unnest"))
    rows = nodes.order_by().values_list("node").annotate(rows=Count("*")).order_by("-rows", "node")[:top]
    return dict(rows)


def _facet_values(counts: dict[str, int], selected: tuple[str, ...], top: int) -> list[FacetValue]:
    values = [FacetValue(value, count, value in selected) for value, count in list(counts.items())[:top]]
    shown = {value.value for value in values}
    return values + [FacetValue(value, counts.get(value, 0), True) for value in selected if value not in shown]


def _as_list(value: Any) -> list[str]:
    if value is None:
        return []
    return [value] if isinstance(value, str) else [str(item) for item in value]


def _clean(value: str) -> str:
    """Without control characters (Postgres refuses NUL) and without surrounding space; at most 300 characters."""
    return "".join(character for character in str(value) if character.isprintable()).strip()[:300]


def _moment(value: Any) -> datetime | None:
    if not value:
        return None
    try:
        moment = parse_datetime(str(value)) or datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
