"""How often a node was to blame before: the badge "3rd time on node-02 in 7 days"."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from triage.access.sql import seen_rows
from triage.models import Attempt

SPANS = (7, 30)
"""Days that are looked back, the shortest that tells something is shown."""
NODES = 3
"""How many of the nodes that a row blames are looked at."""

_COUNT = """
WITH earlier AS MATERIALIZED (
    SELECT node, other.cluster_id, other.sort_at FROM triage_attempt AS other, unnest(other.blamed_nodes) AS node
    WHERE other.blamed_nodes && %(nodes)s::varchar[] AND other.sort_at > %(since)s AND {seen:other}
)
SELECT row.attempt, row.node,
       count(*) FILTER (WHERE earlier.sort_at > row.at - interval '7 days'), count(*)
FROM unnest(%(attempts)s::bigint[], %(nodes)s::text[], %(clusters)s::bigint[], %(ats)s::timestamptz[])
     AS row (attempt, node, cluster, at)
JOIN earlier ON earlier.node = row.node AND earlier.cluster_id = row.cluster
     AND earlier.sort_at > row.at - interval '30 days' AND earlier.sort_at <= row.at
GROUP BY row.attempt, row.node
"""
"""All rows' nodes are looked for at once: one by one, the database read a month of the whole cluster for each."""


@dataclass(frozen=True)
class Repeat:
    """A node was to blame again: for the `times`th time within so many days."""

    node: str
    times: int
    days: int

    @property
    def ordinal(self) -> str:
        teens = self.times % 100 in (11, 12, 13)
        ending = "th" if teens else {1: "st", 2: "nd", 3: "rd"}.get(self.times % 10, "th")
        return f"{self.times}{ending}"


def repeats(attempts: Iterable[Attempt]) -> dict[int, Repeat]:
    """For each attempt whose node was blamed before within 30 days the most telling repeat. One query."""
    wanted = [
        (attempt.pk, node, attempt.cluster_id, attempt.sort_at)
        for attempt in attempts
        for node in attempt.blamed_nodes[:NODES]
    ]
    if not wanted:
        return {}
    columns = (list(column) for column in zip(*wanted, strict=True))
    asked = dict(zip(("attempts", "nodes", "clusters", "ats"), columns, strict=True))
    rows = seen_rows(_COUNT, {**asked, "since": min(asked["ats"]) - timedelta(days=SPANS[-1])})
    found: dict[int, Repeat] = {}
    for attempt, node, week, month in sorted(rows, key=lambda row: (-row[2], -row[3], row[1])):
        if attempt not in found and month > 1:
            found[attempt] = Repeat(node, week, SPANS[0]) if week > 1 else Repeat(node, month, SPANS[1])
    return found
