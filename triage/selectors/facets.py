"""What another choice of a filter would give: the counts beside each value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from django.db.models import Count, Func, Sum

from triage.models import Cluster, VerdictStatus
from triage.selectors.filters import NO_NODE, AttemptFilter, filtered_attempts

COLUMNS = {
    "verdict": "verdict_status",
    "status": "triage_state",
    "domain": "domain",
    "outcome": "outcome",
    "cluster": "cluster",
}
"""Facets with few values, which are counted together."""
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
    by_outcome: dict[str, int]
    """With every filter but that of the outcome."""
    no_node: int
    """Attempts with a diagnosis that blames no node, with every filter but that of the node."""
    facets: dict[str, list[FacetValue]]


def counts(narrowed: AttemptFilter, *, top: int = TOP) -> Counts:
    """Everything that a list counts. The number of queries is fixed.

    The counts of a facet respect every other filter but not its own, so that alternatives can be seen. Values that are
    selected are always in the list, even with a count of 0.
    """
    clusters = dict(Cluster.objects.values_list("pk", "name"))
    chosen: dict[str, set[Any]] = {name: set(getattr(narrowed, name)) for name in COLUMNS}
    chosen["cluster"] = {pk for pk, name in clusters.items() if name in narrowed.cluster}
    limited = [name for name in COLUMNS if getattr(narrowed, name)]
    rows = (
        filtered_attempts(narrowed.without(*COLUMNS))
        .values_list(*COLUMNS.values())
        .annotate(lost=Sum("lost_gpu_hours"), rows=Count("*"))
        .order_by()
    )
    total, lost, unconfirmed = 0, 0.0, 0
    tallies: dict[str, Counter[Any]] = {name: Counter() for name in COLUMNS}
    for row in rows:
        values = dict(zip(COLUMNS, row, strict=False))
        failing = [name for name in limited if values[name] not in chosen[name]]
        if not failing:
            total += row[-1]
            lost += row[-2]
            unconfirmed += row[-1] if values["verdict"] == VerdictStatus.UNCONFIRMED else 0
            for name, value in values.items():
                tallies[name][value] += row[-1]
        elif len(failing) == 1:
            tallies[failing[0]][values[failing[0]]] += row[-1]
    tallies["cluster"] = Counter({clusters.get(pk, ""): count for pk, count in tallies["cluster"].items()})
    facets = {name: _values(tally.items(), getattr(narrowed, name), top) for name, tally in tallies.items()}
    facets["user"] = _values(_users(narrowed.without("user"), narrowed.user, top), narrowed.user, top)
    facets["node"] = _values(_nodes(narrowed.without("node"), narrowed.node, top), narrowed.node, top)
    no_node = filtered_attempts(replace(narrowed, node=(NO_NODE,))).count()
    return Counts(total, lost, unconfirmed, dict(tallies["outcome"]), no_node, facets)


def _users(narrowed: AttemptFilter, selected: tuple[str, ...], top: int) -> list[tuple[str, int]]:
    rows = filtered_attempts(narrowed).values_list("user").annotate(rows=Count("*")).order_by("-rows", "user")
    chosen = rows.filter(user__in=selected) if selected else ()
    return [*rows[: top + 1], *chosen]


def _nodes(narrowed: AttemptFilter, selected: tuple[str, ...], top: int) -> list[tuple[str, int]]:
    matching = filtered_attempts(narrowed)
    named = matching.exclude(blamed_nodes=[]).annotate(node=Func("blamed_nodes", function="unnest"))
    rows = named.order_by().values_list("node").annotate(rows=Count("*")).order_by("-rows", "node")[:top]
    chosen = [(node, matching.filter(blamed_nodes__contains=[node]).count()) for node in selected if node != NO_NODE]
    return [*rows, *chosen]


def _values(rows: Iterable[tuple[Any, int]], selected: tuple[str, ...], top: int) -> list[FacetValue]:
    counted = {str(value): count for value, count in rows if value}
    ordered = sorted(counted.items(), key=lambda pair: (-pair[1], pair[0]))[:top]
    values = [FacetValue(value, count, value in selected) for value, count in ordered]
    shown = {value for value, _ in ordered}
    return values + [FacetValue(value, counted.get(value, 0), True) for value in selected if value not in shown]
