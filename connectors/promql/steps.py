"""Which moments are asked for: a step that fits the window and the number of series, in chunks that a server takes.

Chunks begin at multiples of their step. A server evaluates at the start, start + step, ...: chunks that don't overlap
join without a sample twice or missing. VictoriaMetrics moves start and end to such multiples by itself, so they are
chosen like that from the outset.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

MAX_POINTS = 11_000
"""A series in one answer, by Prometheus' own limit."""
LEAST_POINTS = 60
FINE_TAIL_SECONDS = 1800
"""The last stretch of the window is always asked for at full resolution: there the attempt ended."""


class Chunk(msgspec.Struct, frozen=True):
    """Samples at start, start + step, ..., end; whole seconds."""

    start: int
    end: int
    step: int

    @property
    def points(self) -> int:
        return (self.end - self.start) // self.step + 1

    def halves(self) -> tuple[Chunk, Chunk] | None:
        """Two chunks with the same samples; None when there is only one."""
        if self.points < 2:
            return None
        middle = self.start + (self.points // 2) * self.step
        return Chunk(self.start, middle - self.step, self.step), Chunk(middle, self.end, self.step)


def chunks(start: float, end: float, step: int) -> Iterator[Chunk]:
    """A window in chunks of at most MAX_POINTS."""
    first, last = math.ceil(start / step) * step, math.floor(end / step) * step
    while first <= last:
        stop = min(last, first + (MAX_POINTS - 1) * step)
        yield Chunk(first, stop, step)
        first = stop + step


def plan(start: float, end: float, resolution: int, series: int, budget: int) -> list[Chunk]:
    """A window so that `series` series have about `budget` samples in all: at `resolution` (seconds) if that fits, else
    coarser, but for its last half hour.
    """
    points = min(max(budget // max(series, 1), LEAST_POINTS), MAX_POINTS)
    if (end - start) / resolution <= points:
        return list(chunks(start, end, resolution))
    tail = max(end - FINE_TAIL_SECONDS, start)
    step = math.ceil((tail - start) / points / resolution) * resolution
    if step <= resolution:
        return list(chunks(start, end, resolution))
    coarse = list(chunks(start, tail, step))
    after = coarse[-1].end if coarse else start
    return [*coarse, *chunks(max(after + 1, tail), end, resolution)]
