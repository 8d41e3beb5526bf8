"""What made a job slow, though it passed each time; and what made it so slow in the end that it failed."""

from __future__ import annotations

from collections import Counter
from math import ceil, inf

import msgspec

from engine.findings import AROUND, Placed, listed
from engine.model import Role, Source
from engine.rule import Rule

OFTEN = 3
"""So often something passing must be said to have slowed a job down."""
SELDOM = 1800.0
"""Seconds in which it must be said once, on the average: now and then doesn't slow down every iteration."""


def slowing(placed: list[Placed], since: float, around: float = AROUND, lasted: float = 0.0) -> None:
    """What a job that slowed down at `since` may be slow by: what was said again and again in the `lasted` seconds
    that it was slow for.
    """
    often = max(OFTEN, lasted / SELDOM)
    told: Counter[tuple[str, str | None]] = Counter()
    for one in placed:
        if one.rule.slows and not one.aside and one.at is not None and one.at >= since - around:
            told[one.rule.id, one.node] += ceil(often) if one.hit.source is Source.METRIC else one.hit.count
    in_all: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for (rule_id, _), count in told.items():
        in_all[rule_id] += count
        most[rule_id] = max(most[rule_id], count)
    for one in placed:
        # Where one node says it again and again, another that says it once is no slower than usual.
        if in_all[one.rule.id] >= often and told[one.rule.id, one.node] * 4 >= most[one.rule.id]:
            one.rule = _slowing(one.rule)


def ending(placed: list[Placed]) -> None:
    """What slows a job down, on one node of it, and brought about in the end what ended it (`ends_by`)."""
    told: dict[str, list[Placed]] = {}
    for one in placed:
        if one.rule.ends_by and one.aside is None:
            told.setdefault(one.rule.id, []).append(one)
    for same in told.values():
        first = min((one.at for one in same if one.at is not None), default=inf)
        ended = [p for p in placed if p.aside is None and p.at is not None and p.at >= first]
        if len({one.node for one in same}) == 1 and any(listed(p.rule.id, same[0].rule.ends_by) for p in ended):
            for one in same:
                one.rule = msgspec.structs.replace(one.rule, degrades=False, needs=())


def _slowing(rule: Rule) -> Rule:
    """The rule as a cause that slows down. That it passed each time does not speak against it."""
    return msgspec.structs.replace(rule, role=Role.EITHER, degrades=True, cleared_by=())
