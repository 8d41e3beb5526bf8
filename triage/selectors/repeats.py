"""How often a node was to blame before: the badge "3rd time on node-02 in 7 days"."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from triage.access.sql import seen_rows
from triage.models import Attempt

NODES = 3
"""How many of the nodes that a row blames are looked at."""

_COUNT = """
WITH row AS (
    SELECT * FROM unnest(%(attempts)s::bigint[], %(nodes)s::varchar[], %(clusters)s::bigint[], %(ats)s::timestamptz[])
    AS row (attempt, node, cluster, at)
), week AS MATERIALIZED (
    SELECT node, other.cluster_id, other.sort_at FROM triage_attempt AS other, unnest(other.blamed_nodes) AS node
    WHERE other.blamed_nodes && %(nodes)s::varchar[] AND other.blames AND NOT other.outcome = 'succeeded'
          AND other.sort_at > %(first)s - interval '7 days' AND other.sort_at <= %(last)s AND {seen:other}
), in_week AS (
    SELECT row.attempt, row.node, count(*) AS times FROM row
    JOIN week ON week.node = row.node AND week.cluster_id = row.cluster
         AND week.sort_at > row.at - interval '7 days' AND week.sort_at <= row.at
    GROUP BY row.attempt, row.node
), rare AS MATERIALIZED (
    SELECT * FROM row WHERE attempt NOT IN (SELECT attempt FROM in_week WHERE times > 1)
), month AS MATERIALIZED (
    SELECT node, other.cluster_id, other.sort_at FROM triage_attempt AS other, unnest(other.blamed_nodes) AS node
    WHERE other.blamed_nodes && (SELECT array_agg(node) FROM rare) AND other.blames AND NOT other.outcome = 'succeeded'
          AND other.sort_at > %(first)s - interval '30 days' AND other.sort_at <= %(last)s AND {seen:other}
)
SELECT attempt, node, times, 7 FROM in_week WHERE times > 1
UNION ALL
SELECT rare.attempt, rare.node, count(*), 30 FROM rare
JOIN month ON month.node = rare.node AND month.cluster_id = rare.cluster
     AND month.sort_at > rare.at - interval '30 days' AND month.sort_at <= rare.at
GROUP BY rare.attempt, rare.node HAVING count(*) > 1
"""
"""All rows' nodes are looked for at once: one by one, the database read a month of the whole cluster for each. Most
that come again do so within days, so a whole month is read for the others alone.
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
    asked = dict(zip(("attempts", "nodes", "clusters", "ats"), columns, strict=True))
    rows = seen_rows(_COUNT, {**asked, "first": min(asked["ats"]), "last": max(asked["ats"])})
    found: dict[int, Repeat] = {}
    for attempt, node, times, days in sorted(rows, key=lambda row: (-row[2], row[1])):
        found.setdefault(attempt, Repeat(node, times, days))
    return found
