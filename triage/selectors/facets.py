"""What another choice of a filter would give: the counts beside each value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from django.db.models import Count, Func, Sum

from engine.model import Outcome
from triage.models import Cluster, VerdictStatus
from triage.selectors.filters import NO_NODE, AttemptFilter, filtered_attempts

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
    no_node: int
    """Failures with a diagnosis that blames no node, with every filter but that of the node."""
    facets: dict[str, list[FacetValue]]


def counts(narrowed: AttemptFilter, *, top: int = TOP) -> Counts:
    """Everything that a list counts. The number of queries is fixed.

    The counts of a facet respect every other filter but not its own, so that alternatives can be seen. Values that are
    selected are always in the list, even with a count of 0.
    """
    clusters = dict(Cluster.objects.values_list("pk", "name"))
    pass_ = _Pass(narrowed, {pk for pk, name in clusters.items() if name in narrowed.cluster})
    if not any(getattr(narrowed, name) for name in OF_FAILURES) or SUCCEEDED in narrowed.outcome:
        succeeded = replace(narrowed, outcome=(SUCCEEDED,), failures=False)
        pass_.tallies["outcome"][SUCCEEDED] = filtered_attempts(succeeded).count()
    if narrowed.node:
        no_node = filtered_attempts(replace(narrowed, node=(NO_NODE,))).count()
    else:
        no_node = pass_.no_node
    pass_.tallies["cluster"] = Counter({clusters.get(pk, ""): rows for pk, rows in pass_.tallies["cluster"].items()})
    facets = {name: _values(tally.items(), getattr(narrowed, name), top) for name, tally in pass_.tallies.items()}
    facets["user"] = _values(_users(narrowed.without("user"), narrowed.user, top), narrowed.user, top)
    facets["node"] = _values(_nodes(narrowed.without("node"), narrowed.node, top), narrowed.node, top)
    return Counts(
        pass_.total, pass_.lost, pass_.unconfirmed, pass_.tallies["outcome"][SUCCEEDED], no_node, facets
    )  # fmt: skip


class _Pass:
    """One grouped query over everything but the filters of COLUMNS, and what it says about each of them."""

    def __init__(self, narrowed: AttemptFilter, clusters: set[int]) -> None:
        self.total, self.lost, self.unconfirmed, self.no_node = 0, 0.0, 0, 0
        self.tallies: dict[str, Counter[Any]] = {name: Counter() for name in COLUMNS}
        chosen: dict[str, set[Any]] = {name: set(getattr(narrowed, name)) for name in COLUMNS}
        chosen["cluster"] = clusters
        limited = [name for name in COLUMNS if getattr(narrowed, name)]
        # what succeeded is counted apart: most attempts do, and the index of failures is small
        base = replace(narrowed.without(*COLUMNS), failures=SUCCEEDED not in narrowed.outcome)
        rows = filtered_attempts(base).values_list(*COLUMNS.values(), "blames")
        for *row, blames, lost, count in rows.annotate(lost=Sum("lost_gpu_hours"), rows=Count("*")).order_by():
            values = dict(zip(COLUMNS, row, strict=True))
            failing = [name for name in limited if values[name] not in chosen[name]]
            if not failing:
                self._match(values, blames, lost, count)
            elif len(failing) == 1:
                self.tallies[failing[0]][values[failing[0]]] += count

    def _match(self, values: dict[str, Any], blames: bool, lost: float, count: int) -> None:
        self.total += count
        self.lost += lost
        if values["verdict"] == VerdictStatus.UNCONFIRMED:
            self.unconfirmed += count
        if values["outcome"] and not blames:
            self.no_node += count
        for name, value in values.items():
            self.tallies[name][value] += count


def _users(narrowed: AttemptFilter, selected: tuple[str, ...], top: int) -> list[tuple[str, int]]:
    rows = filtered_attempts(narrowed).values_list("user").annotate(rows=Count("*")).order_by("-rows", "user")
    chosen = rows.filter(user__in=selected) if selected else ()
    return [*rows[: top + 1], *chosen]


def _nodes(narrowed: AttemptFilter, selected: tuple[str, ...], top: int) -> list[tuple[str, int]]:
    matching = filtered_attempts(narrowed)
    named = matching.filter(blames=True).annotate(node=Func("blamed_nodes", function="unnest"))
    rows = named.order_by().values_list("node").annotate(rows=Count("*")).order_by("-rows", "node")[:top]
    chosen = [(node, matching.filter(blamed_nodes__contains=[node]).count()) for node in selected if node != NO_NODE]
    return [*rows, *chosen]


def _values(rows: Iterable[tuple[Any, int]], selected: tuple[str, ...], top: int) -> list[FacetValue]:
    counted = {str(value): count for value, count in rows if value}
    ordered = sorted(counted.items(), key=lambda pair: (-pair[1], pair[0]))[:top]
    values = [FacetValue(value, count, value in selected) for value, count in ordered]
    shown = {value for value, _ in ordered}
    return values + [FacetValue(value, counted.get(value, 0), True) for value in selected if value not in shown]
