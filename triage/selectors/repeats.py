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
), in_week AS MATERIALIZED (
    SELECT row.*, (
        SELECT count(*) FROM triage_attemptnode AS other
        WHERE other.node = row.node AND other.cluster_id = row.cluster AND other.blamed
              AND other.sort_at > row.at - interval '7 days' AND other.sort_at <= row.at AND {seen:other}
    ) AS times FROM row
), in_month AS (
    SELECT row.*, (
        SELECT count(*) FROM triage_attemptnode AS other
        WHERE other.node = row.node AND other.cluster_id = row.cluster AND other.blamed
              AND other.sort_at > row.at - interval '30 days' AND other.sort_at <= row.at AND {seen:other}
    ) AS times FROM row WHERE attempt NOT IN (SELECT attempt FROM in_week WHERE times > 1)
)
SELECT attempt, node, times, 7 FROM in_week WHERE times > 1
UNION ALL
SELECT attempt, node, times, 30 FROM in_month WHERE times > 1
"""
"""For each row a short stretch of an index, and of that alone. Most that come again do so within days, so a whole month
is read for the others alone.
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
    rows = seen_rows(_COUNT, asked)
    found: dict[int, Repeat] = {}
    for attempt, node, times, days in sorted(rows, key=lambda row: (-row[2], row[1])):
        found.setdefault(attempt, Repeat(node, times, days))
    return found
