"""The evidence of a diagnosis, numbered in the order in which the story uses it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from engine.blocks import Around
from engine.findings import Finding, Placed
from engine.model import Evidence, Source, rfc3339
from engine.progress import Step

MOST_EVIDENCE = 400


class _Where(NamedTuple):
    at: float | None
    clock: str
    node: str | None
    rank: int | None
    device: str | None


class Trail:
    """Gives each line its number, once."""

    def __init__(self) -> None:
        self.evidence: list[Evidence] = []
        self._ids: dict[tuple[str, int, str], str] = {}

    def of(self, placed: Placed) -> str:
        """The number of a signal's line."""
        hit = placed.hit
        where = _Where(placed.at, placed.clock, placed.node, placed.rank, placed.device)
        key = (hit.stream, hit.offset, hit.text)
        return self._add(key, hit.source, hit.line, where, hit.around, hit.sha256, placed.rule.id)

    def step(self, step: Step) -> str:
        """The number of a line of progress."""
        mark = step.mark
        where = _Where(step.at, "own" if step.at is not None else "unknown", step.node, mark.rank, None)
        key = (step.stream, mark.offset, mark.text)
        return self._add(key, Source.APPLOG, mark.line, where, mark.around, mark.sha256, mark.rule.id)

    def _add(
        self,
        key: tuple[str, int, str],
        source: Source,
        line: int,
        where: _Where,
        around: Around,
        sha256: str,
        rule: str,
    ) -> str:
        known = self._ids.get(key)
        if known:
            return known
        number = f"e{len(self.evidence) + 1}"
        self._ids[key] = number
        stream, offset, text = key
        self.evidence.append(
            Evidence(
                id=number,
                rule=rule,
                source=source.value,
                stream=stream,
                line=line,
                offset=offset,
                at=rfc3339(where.at),
                clock=where.clock,
                node=where.node,
                rank=where.rank,
                device=where.device,
                text=text,
                before=tuple(around.before),
                after=tuple(around.after),
                sha256=sha256 or hashlib.sha256(text.encode()).hexdigest(),
            )
        )
        return number

    def some(self, finding: Finding, most: int = 3) -> tuple[str, ...]:
        """The first signals of a finding, one of each node first, and the last."""
        if len(self.evidence) >= MOST_EVIDENCE:
            return ()
        chosen: list[Placed] = []
        nodes: set[str | None] = set()
        for placed in finding.placed:
            if placed.node not in nodes:
                nodes.add(placed.node)
                chosen.append(placed)
        for placed in [*finding.placed[:2], *finding.placed[-1:]]:
            if placed not in chosen:
                chosen.append(placed)
        return tuple(self.of(placed) for placed in chosen[:most])


def refs(ids: Iterable[str]) -> str:
    return f"[{', '.join(ids)}]"


def clock_time(at: float | None) -> str:
    text = rfc3339(at)
    return text[11:19] if text else "an unknown time"
