"""What another choice of a filter would give: the counts beside each value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db.models import BooleanField, Count, ExpressionWrapper, Func, Q, Sum

from engine.model import Outcome
from triage.access.sql import rows_over
from triage.models import Cluster, VerdictStatus
from triage.selectors.filters import NO_NODE, UNNAMED, AttemptFilter, filtered_attempts, matches
from triage.selectors.kept import kept

SUCCEEDED = Outcome.SUCCEEDED.value
COLUMNS = {
    "verdict": "verdict_status",
    "status": "triage_state",
    "domain": "domain",
    "outcome": "outcome",
    "cluster": "cluster",
}
"""Facets with few values, which are counted together in one pass over an index."""
OF_FAILURES = ("verdict", "domain", "sub_domain", "node", "rule", "matched", "incident", "assignee")
"""Filters that nobody means for what succeeded."""
TOP = 12
COUNTED = 10_000
"""Where there are more, what ended since the one with this number from the newest is counted, and `Counts` says so:
what a list says of itself costs the same, however many there are.
"""
MANY = 1_000
"""So many successes are counted at most, where they are looked for by words; when nodes are named more often, how often
is kept a while.
"""


@dataclass(frozen=True)
class FacetValue:
    value: str
    count: int
    selected: bool = False


@dataclass(frozen=True)
class Counts:
    """How many attempts match, and what each facet's choices would give."""

    total: int
    """With every filter."""
    lost: float
    """GPU-hours of those."""
    unconfirmed: int
    """How many of those nobody has judged."""
    succeeded: int
    """Attempts that succeeded, with every filter but that of the outcome; 0 where a filter concerns failures alone."""
    succeeded_more: bool
    """There are more of them than were counted."""
    no_node: int
    """Failures with a diagnosis that blames no node, with every filter but that of the node."""
    facets: dict[str, list[FacetValue]]
    since: datetime | None = None
    """Total, GPU-hours and unconfirmed are of what ended at this time or later, since more match than are counted."""
    facets_since: datetime | None = None
    """The same of the facets and the other counts: they look at what other choices would give, which may be more."""


def counts(narrowed: AttemptFilter, *, top: int = TOP) -> Counts:
    """Everything that a list counts. The number of queries is fixed, where nothing is kept.

    The counts of a facet respect every other filter but not its own, so that alternatives can be seen. Values that are
    selected are always in the list, even with a count of 0. What is counted since a time, of more than COUNTED
    attempts, is kept a while: of so many, what one act of a person changes can't be seen.
    """
    listed = narrowed
    wide = narrowed.without(*COLUMNS, "user", "node", "text", "phrases")
    facets_since = kept("window", _to_minutes(wide), lambda: _since(wide))
    if facets_since is not None:
        narrowed = replace(narrowed, since=facets_since)
    clusters = dict(Cluster.objects.values_list("pk", "name"))
    groups, users, nodes = (_in_one_scan if narrowed.words else _by_index)(narrowed, top, _keeping(facets_since))
    chosen = {*narrowed.cluster, *([""] if UNNAMED in narrowed.cluster else [])}
    tally = _Tally(narrowed, {pk for pk, name in clusters.items() if name in chosen}, groups)
    succeeded, more = _keeping(facets_since)("succeeded", narrowed, lambda: _succeeded(narrowed))
    tally.of["outcome"][SUCCEEDED] = succeeded
    if narrowed.node:
        of_none = replace(narrowed, node=(NO_NODE,))
        no_node = _keeping(facets_since)("no-node", of_none, lambda: filtered_attempts(of_none).count())
    else:
        no_node = tally.no_node
    tally.of["cluster"] = Counter({clusters.get(pk, ""): rows for pk, rows in tally.of["cluster"].items()})
    facets = {name: _values(found.items(), getattr(narrowed, name), top) for name, found in tally.of.items()}
    facets["user"] = _values(users, narrowed.user, top)
    facets["node"] = _values(nodes, narrowed.node, top)
    totals = _Totals(tally.total, tally.lost, tally.unconfirmed, facets_since)
    if facets_since is not None and not listed.words and listed != wide:
        totals = _totals(listed)
    return Counts(
        *(
            totals.total,
            totals.lost,
            totals.unconfirmed,
            succeeded,
            more or facets_since is not None,
            no_node,
            facets,
            totals.since,
        ),
        facets_since=facets_since,
    )


@dataclass(frozen=True)
class _Totals:
    total: int
    lost: float
    unconfirmed: int
    since: datetime | None


def _totals(listed: AttemptFilter) -> _Totals:
    """What matches every filter, as far back as it can be counted: in one walk over the newest."""
    return kept("totals", _to_minutes(listed), lambda: _walk(listed), when=lambda found: found.since is not None)


def _walk(listed: AttemptFilter) -> _Totals:
    newest = filtered_attempts(listed).order_by("-sort_at").values("sort_at", "lost_gpu_hours", "verdict_status")
    (row,) = rows_over(_TOTALS, [newest[: COUNTED + 1]], [VerdictStatus.UNCONFIRMED.value])
    total, lost, unconfirmed, since = row
    return _Totals(total, lost, unconfirmed, since if total > COUNTED else None)


_TOTALS = """
WITH newest AS ({0})
SELECT count(*), coalesce(sum(lost_gpu_hours), 0), count(*) FILTER (WHERE verdict_status = %s), min(sort_at) FROM newest
"""


class _Tally:
    """What groups of attempts say about each facet of COLUMNS. The groups respect every filter but those of COLUMNS."""

    def __init__(self, narrowed: AttemptFilter, clusters: set[int], groups: Iterable[Sequence[Any]]) -> None:
        self.total, self.lost, self.unconfirmed, self.no_node = 0, 0.0, 0, 0
        self.of: dict[str, Counter[Any]] = {name: Counter() for name in COLUMNS}
        chosen: dict[str, set[Any]] = {name: set(getattr(narrowed, name)) for name in COLUMNS}
        chosen["cluster"] = clusters
        limited = [name for name in COLUMNS if getattr(narrowed, name)]
        for *row, blames, lost, count in groups:
            values = dict(zip(COLUMNS, row, strict=True))
            failing = [name for name in limited if values[name] not in chosen[name]]
            if not failing:
                self._match(values, blames, lost, count)
            elif len(failing) == 1:
                self.of[failing[0]][values[failing[0]]] += count

    def _match(self, values: dict[str, Any], blames: bool, lost: float, count: int) -> None:
        self.total += count
        self.lost += lost
        if values["verdict"] == VerdictStatus.UNCONFIRMED:
            self.unconfirmed += count
        if values["outcome"] and not blames:
            self.no_node += count
        for name, value in values.items():
            self.of[name][value] += count


def _since(narrowed: AttemptFilter) -> datetime | None:
    """Since when there are COUNTED attempts that match, in one walk over an index; None: there are fewer."""
    newest = filtered_attempts(narrowed).order_by("-sort_at").values_list("sort_at", flat=True)
    return newest[COUNTED : COUNTED + 1].first()


def _succeeded(narrowed: AttemptFilter) -> tuple[int, bool]:
    """Attempts that succeeded, and whether there are more. Most attempts did, so these are counted up to a limit, and
    to a lower one where words are looked for in the rows themselves.
    """
    asked = SUCCEEDED in narrowed.outcome
    if not asked and any(getattr(narrowed, name) for name in OF_FAILURES):
        return 0, False
    query = filtered_attempts(replace(narrowed, outcome=(SUCCEEDED,), failures=False))
    if asked:
        return query.count(), False
    limit = MANY if narrowed.words else COUNTED
    found = query.values("pk")[: limit + 1].count()
    return min(found, limit), found > limit


# --- reading ----------------------------------------------------------------------------------------------------------

Read = tuple[Iterable[Sequence[Any]], list[tuple[str, int]], list[tuple[str, int]]]
"""Groups of COLUMNS with what they hold; users and nodes with how many of theirs match."""
Keep = Callable[[str, object, Callable[[], Any]], Any]
"""Gives what a function counts: just now, or a while ago. With what is counted, and of what."""


def _keeping(since: datetime | None) -> Keep:
    """What is counted of a part alone is kept."""
    return kept if since is not None else lambda name, scope, count: count()


def _many(found: list[tuple[str, int]]) -> bool:
    """Whether so many nodes are named that one more can't be seen."""
    return sum(count for _, count in found) > MANY


def _to_minutes(narrowed: AttemptFilter) -> AttemptFilter:
    """The last seven days are other ones at each look; within a minute they count as the same."""
    since = narrowed.since
    return narrowed if since is None else replace(narrowed, since=since.replace(second=0, microsecond=0))


def _by_index(narrowed: AttemptFilter, top: int, keep: Keep) -> Read:
    """Three queries, each of which an index answers. Kept one by one: another user has the same users beside theirs."""
    wide, of_any_user, of_any_node = _wide(narrowed), narrowed.without("user"), narrowed.without("node")

    def groups() -> list[Any]:
        rows = filtered_attempts(wide).values_list(*COLUMNS.values(), "blames")
        return list(rows.annotate(lost=Sum("lost_gpu_hours"), rows=Count("*")).order_by())

    def users(of: AttemptFilter) -> list[Any]:
        by_user = filtered_attempts(of).values_list("user").annotate(rows=Count("*"))
        return list(by_user.order_by("-rows", "user")[: top + 1 + len(of.user)])

    def nodes() -> list[Any]:
        blaming = filtered_attempts(of_any_node).filter(blames=True).order_by()
        named = blaming.annotate(node=Func("blamed_nodes", function="unnest")).values_list("node")
        return list(named.annotate(rows=Count("*")).order_by("-rows", "node")[:top])

    def chosen_nodes() -> list[Any]:
        chosen = [node for node in narrowed.node if node != NO_NODE]
        matching = filtered_attempts(of_any_node)
        return [(node, matching.filter(blamed_nodes__contains=[node]).count()) for node in chosen]

    chosen_users = keep("chosen-users", narrowed, lambda: users(narrowed)) if narrowed.user else []
    # an array is in no index that could count it, so many are kept though they are counted whole
    named = kept("nodes", (_to_minutes(of_any_node), top), nodes, when=lambda found: keep is kept or _many(found))
    named_nodes = keep("chosen-nodes", narrowed, chosen_nodes) if narrowed.node else []
    return (
        keep("groups", wide, groups),
        [*keep("users", (of_any_user, top), lambda: users(of_any_user)), *chosen_users],
        [*named, *named_nodes],
    )


_ONE_SCAN = """
WITH found AS MATERIALIZED ({found})
SELECT 0, '', {columns}, blames, sum(lost_gpu_hours), count(*) FROM found WHERE of_user AND of_node
GROUP BY {columns}, blames
UNION ALL (
    SELECT 1, "user", {empty}, false, 0, count(*) FROM found WHERE of_columns AND of_node
    GROUP BY "user" ORDER BY "user" = ANY(%s) DESC, count(*) DESC, "user" LIMIT %s
)
UNION ALL (
    SELECT 2, node, {empty}, false, 0, count(*) FROM found, unnest(blamed_nodes) AS node WHERE of_columns AND of_user
    GROUP BY node ORDER BY node = ANY(%s) DESC, count(*) DESC, node LIMIT %s
)
"""


def _in_one_scan(narrowed: AttemptFilter, top: int, keep: Keep) -> Read:
    """One query that looks at each row once, for what no index has."""
    return keep("scan", (narrowed, top), lambda: _scan(narrowed, top))


def _scan(narrowed: AttemptFilter, top: int) -> Read:
    query = filtered_attempts(_wide(narrowed).without("user", "node")).annotate(
        of_columns=_as_value(matches(narrowed, *COLUMNS)),
        of_user=_as_value(matches(narrowed, "user")),
        of_node=_as_value(matches(narrowed, "node")),
    )
    taken = (*COLUMNS.values(), "user", "blames", "blamed_nodes", "lost_gpu_hours", "of_columns", "of_user", "of_node")
    sql = _ONE_SCAN.format(
        found="{0}",
        columns=", ".join(COLUMNS.values()),
        empty=", ".join("NULL::bigint" if name == "cluster" else "''" for name in COLUMNS.values()),
    )
    named = (narrowed.user, narrowed.node)
    limits = [part for values in named for part in (list(values), top + 1 + len(values))]
    groups, users, nodes = [], [], []
    for part, name, *row in rows_over(sql, [query.values(*taken)], limits):
        if part == 0:
            groups.append(row)
        else:
            (users if part == 1 else nodes).append((name, row[-1]))
    return groups, users, nodes


def _wide(narrowed: AttemptFilter) -> AttemptFilter:
    """Without the filters of COLUMNS. What succeeded and is left out is counted apart: most attempts do, and the index
    of failures is small.
    """
    return narrowed.without(*COLUMNS)


def _as_value(condition: Q) -> ExpressionWrapper:
    return ExpressionWrapper(condition, output_field=BooleanField())


def _values(rows: Iterable[tuple[Any, int]], selected: tuple[str, ...], top: int) -> list[FacetValue]:
    counted = {str(value): count for value, count in rows if value}
    ordered = sorted(counted.items(), key=lambda pair: (-pair[1], pair[0]))[:top]
    values = [FacetValue(value, count, value in selected) for value, count in ordered]
    shown = {value for value, _ in ordered}
    return values + [FacetValue(value, counted.get(value, 0), True) for value in selected if value not in shown]
