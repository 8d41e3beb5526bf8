"""The axis of the timeline and of the plots beneath it: where a moment stands, and which moments are named.

The whole attempt may have one change of scale, drawn as a break, when what matters takes a small part of it: most
attempts run for hours and die within seconds. A part that somebody has zoomed to has one scale.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from triage import times

WIDTH = 904.0
LEFT = 96.0
RIGHT = 888.0
GAP = 5.0
STEPS = (
    0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800,
    604800,
)  # fmt: skip
"""Seconds between two ticks."""


@dataclass(frozen=True, slots=True)
class Tick:
    x: str
    text: str


@dataclass(slots=True)
class Axis:
    """Where a moment (epoch seconds) stands, in the picture's own units."""

    start: float
    end: float
    turn: float | None = None
    """Where the scale changes; None when it doesn't."""
    middle: float = field(default=LEFT + (RIGHT - LEFT) * 0.34)
    part: bool = False
    """Whether it shows a part of the attempt that somebody zoomed to."""

    def x(self, at: float) -> float:
        at = min(max(at, self.start), self.end)
        if self.turn is None:
            return self.beyond(at)
        if at <= self.turn:
            return LEFT + (self.middle - GAP / 2 - LEFT) * (at - self.start) / max(self.turn - self.start, 1e-9)
        first = self.middle + GAP / 2
        return first + (RIGHT - first) * (at - self.turn) / max(self.end - self.turn, 1e-9)

    def beyond(self, at: float) -> float:
        """The same without a bound, for lines that come from outside of a part."""
        if self.turn is not None:
            return self.x(at)
        return LEFT + (RIGHT - LEFT) * (at - self.start) / max(self.end - self.start, 1e-9)

    @property
    def breaks(self) -> tuple[float, ...]:
        """The two sides of the break; nothing without one."""
        return () if self.turn is None else (self.middle - GAP / 2, self.middle + GAP / 2)

    def as_plain(self) -> dict[str, Any]:
        """What a script needs to turn a place back into a moment."""
        return {
            "left": LEFT, "right": RIGHT, "width": WIDTH, "start": self.start, "end": self.end, "turn": self.turn,
            "middle": self.middle, "breaks": [round(x, 2) for x in self.breaks],
        }  # fmt: skip


def whole_axis(start: float, end: float, focus: float | None) -> Axis:
    """The axis of a whole attempt; `focus` is where what matters begins."""
    span = end - start
    if focus is None or span <= 0:
        return Axis(start, end)
    turn = focus - max((end - focus) * 0.35, span * 0.002, 1.0)
    if end - turn > 0.3 * span or turn <= start:
        return Axis(start, end)
    return Axis(start, end, turn)


def ticks(axis: Axis) -> list[Tick]:
    """Round moments, at most one every 60 units."""
    parts = [(axis.start, axis.end, RIGHT - LEFT)]
    if axis.turn is not None:
        parts = [(axis.start, axis.turn, axis.middle - LEFT), (axis.turn, axis.end, RIGHT - axis.middle)]
    found = []
    for start, end, width in parts:
        step = _step(max(end - start, 1e-9), width)
        shift = _shift(start) if step >= 3600 else 0
        number = int((start + shift) // step) + 1
        last = -100.0
        while (at := number * step - shift) < end:
            x = axis.x(at)
            if x - last >= 60 and RIGHT - x >= 4:
                found.append(Tick(f"{x:.1f}", _named(at, step)))
                last = x
            number += 1
    return found


def _step(span: float, width: float) -> float:
    step = next((step for step in STEPS if span / step * 72 <= width), None)
    return step if step is not None else int(span / 4 / 604800 + 1) * 604800


def _named(at: float, step: float) -> str:
    moment = times.parse(round(at, 3))
    assert moment is not None
    if step < 1:
        return times.clock(moment, True)[:-2]
    return times.clock(moment) if step < 60 else times.minute(moment) if step < 86400 else times.day(moment)


def _shift(at: float) -> int:
    """Seconds east of UTC in the zone in which times are told, so that ticks stand at its whole hours and days."""
    moment = times.parse(at)
    offset = times.told(moment).utcoffset() if moment else None
    return int(offset.total_seconds()) if offset else 0
