"""Faults that several nodes show at once because they lie in what these nodes share: a switch, a rail, a server."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

import msgspec

from engine.findings import Finding, Placed
from engine.model import Source

BETWEEN = {
    ("network", "infiniband"),
    ("network", "roce"),
    ("network", "ethernet"),
    ("storage", "shared_filesystem"),
}
"""Domains whose faults may lie between the nodes, or behind them."""
MANY = 3
"""From so many nodes on it is no coincidence."""
AT_ONCE = 120.0
"""Seconds that may lie between the nodes' words, by their own clocks. One node's link doesn't take another's down, so
being first in these says nothing.
"""
LASTING = 3600.0
"""The same for what slows a job down: each node meets it when it next needs what is slow."""


def said_alike(first: Finding, others: Iterable[Finding]) -> list[Finding]:
    """What several nodes say of what they share at the time of `first`, itself included; [] where they are too few."""
    if (first.rule.domain, first.rule.sub_domain) not in BETWEEN or first.rule.blames != "node":
        return []
    found = [f for f in others if f.rule.id == first.rule.id and f.node is not None and _near(f, first)]
    return found if len({f.node for f in found}) >= (2 if first.rule.degrades else MANY) else []


def _near(one: Finding, other: Finding) -> bool:
    reach = LASTING if one.rule.degrades else AT_ONCE
    return one.onset is not None and other.onset is not None and abs(one.onset - other.onset) <= reach


def by_the_middle(findings: list[Finding]) -> list[Finding]:
    """In the order of nearness to the middle one's time: a single wrong clock is not the first to speak."""
    middle = median(f.onset or 0.0 for f in findings)
    return sorted(findings, key=lambda f: (abs((f.onset or 0.0) - middle), f.key))


def place_of(finding: Finding) -> str | None:
    """The node at which it happened, whether it is to blame for it or not."""
    if finding.node is not None:
        return finding.node
    by_its_log = all(placed.hit.source is Source.SYSLOG for placed in finding.placed)
    return finding.nodes[0] if by_its_log and len(finding.nodes) == 1 else None


LOST, HELD, WRONG = "origin.clock-lost", "origin.clock-held", "origin.clock-step"
UNHELD = 50.0
"""Seconds by which a clock may be off more than usual when its time service says last that it has nothing to go by."""
SET_RIGHT = 900.0
"""Seconds after which a clock that was found to be wrong is right again; its service slews it, or steps it at once."""


class Clock(msgspec.Struct):
    """What a node's time service says against its clock."""

    unheld: bool = False
    wrong: list[tuple[float, float]] = []
    """When it was said by how many seconds the clock was wrong, where nothing took them off the node's times."""

    def off(self, at: float) -> float:
        """Seconds by which a time of about then may be wrong."""
        told = [seconds for said, seconds in self.wrong if at <= said + SET_RIGHT]
        return max([*told, UNHELD if self.unheld else 0.0])


def loose_clocks(placed: Iterable[Placed], end: float | None) -> dict[str, Clock]:
    """Nodes whose time service said last that it has no time to go by, or that their clock is wrong."""
    found: dict[str, Clock] = {}
    last: dict[str, tuple[tuple[float, str, int, int, str, str], str]] = {}
    for one in placed:
        if one.node is None or one.at is None:
            continue
        if one.rule.id in (LOST, HELD) and (end is None or one.at <= end):
            last[one.node] = max(last.get(one.node, (one.order(), one.rule.id)), (one.order(), one.rule.id))
        if one.rule.id == WRONG and not one.corrected:
            seconds = abs(float(one.hit.captures["seconds"]))
            found.setdefault(one.node, Clock()).wrong.append((one.at, seconds))
    for node, (_, rule) in last.items():
        if rule == LOST:
            found.setdefault(node, Clock()).unheld = True
    return found
