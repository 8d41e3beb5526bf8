"""How often a node was to blame before: the badge "3rd time on node-02 in 7 days"."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from triage.access.sql import seen_rows
from triage.models import Attempt

SPANS = (7, 30)
"""Days that are looked back, the shortest that tells something is shown."""
NODES = 3
"""How many of the nodes that a row blames are looked at."""

_COUNT = """
SELECT row.attempt, row.node,
       count(*) FILTER (WHERE other.sort_at > row.at - interval '7 days'), count(*)
FROM unnest(%(attempts)s::bigint[], %(nodes)s::text[], %(clusters)s::bigint[], %(ats)s::timestamptz[])
     AS row (attempt, node, cluster, at)
JOIN triage_attempt other ON other.blamed_nodes @> ARRAY[row.node]::varchar[] AND other.cluster_id = row.cluster
     AND other.sort_at > row.at - interval '30 days' AND other.sort_at <= row.at AND {seen:other}
GROUP BY row.attempt, row.node
"""


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
    rows = seen_rows(_COUNT, dict(zip(("attempts", "nodes", "clusters", "ats"), columns, strict=True)))
    found: dict[int, Repeat] = {}
    for attempt, node, week, month in sorted(rows, key=lambda row: (-row[2], -row[3], row[1])):
        if attempt not in found and month > 1:
            found[attempt] = Repeat(node, week, SPANS[0]) if week > 1 else Repeat(node, month, SPANS[1])
    return found
