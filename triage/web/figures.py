"""Where the parts of small figures stand. Templates draw them as SVG: widths are attributes, so the policy holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date

from triage.selectors.nodes import Day
from triage.statistics import Share
from triage.times import MONTHS

STEP, BAR = 12, 10
"""Pixels a day, and of its bar."""
_ENDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


@dataclass(frozen=True)
class Bar:
    x: float
    y: float
    width: float
    height: float
    kind: str
    domain: str = ""
    title: str = ""


@dataclass(frozen=True)
class Label:
    x: float
    text: str


@dataclass(frozen=True)
class Strip:
    """Days side by side."""

    width: int
    bars: list[Bar]
    months: list[Label]
    marks: list[Label] = field(default_factory=list)
    """Where a person noted something."""


def strip(days: Sequence[Day], noted: Sequence[date] = ()) -> Strip:
    """A bar a day: high when the node was to blame, half when an attempt failed for another reason, low when all went
    well, a line when nothing ran.
    """
    bars, months = [], []
    at = {day.day: number for number, day in enumerate(days)}
    for number, day in enumerate(days):
        x = number * STEP
        if day.blamed:
            bars.append(Bar(x, 6, BAR, 40, "b", day.domain or "unattributed"))
        elif day.failed:
            bars.append(Bar(x, 22, BAR, 24, "b past"))
        elif day.attempts:
            bars.append(Bar(x, 36, BAR, 10, "b past"))
        else:
            bars.append(Bar(x, 44, BAR, 2, "stall"))
        if day.day.day == 1 or (number == 0 and day.day.day < 25):
            months.append(Label(x, f"{day.day.day} {MONTHS[day.day.month - 1]}"))
    marks = [Label(at[day] * STEP + BAR / 2, "") for day in sorted(set(noted)) if day in at]
    return Strip(len(days) * STEP, bars, months, marks)


@dataclass(frozen=True)
class Interval:
    """A share as a dot with its interval, on a scale that rows may have in common."""

    left: float
    right: float
    dot: float
    y: float = 0


@dataclass(frozen=True)
class Scale:
    """From 0 to `end`, between two places in pixels."""

    end: float
    begin: float
    width: float

    def at(self, share: float) -> float:
        return round(self.begin + min(1.0, share / self.end) * self.width, 1)

    def interval(self, share: Share, y: float = 0) -> Interval:
        return Interval(self.at(share.low), self.at(share.high), self.at(share.share), y)

    @property
    def ticks(self) -> list[Label]:
        parts = 4 if self.end in (0.02, 0.2, 1.0) else 5
        return [
            Label(round(self.begin + self.width * part / parts, 1), f"{self.end * 100 * part / parts:g} %")
            for part in range(parts + 1)
        ]


def scale_for(shares: Sequence[Share], begin: float, width: float) -> Scale:
    """The smallest round scale on which all intervals end."""
    most = max((share.high for share in shares), default=1.0)
    return Scale(next((end for end in _ENDS if end >= most), 1.0), begin, width)


@dataclass(frozen=True)
class RowBars:
    """One row of small multiples as two outlines: what was, and what is now."""

    past: str
    now: str


def row_bars(values: Sequence[float], most: float, *, width: float = 300, height: float = 32) -> RowBars:
    """A bar a period, the last one is now. Rows share `most`."""
    step = width / max(1, len(values))
    outlines = []
    for number, value in enumerate(values):
        tall = max(1.0, value / most * (height - 2)) if value and most else 0.0
        wide = round(step * 0.68, 1)
        outlines.append(f"M{number * step:.1f} {height:g}v{-tall:.1f}h{wide:g}v{tall:.1f}z" if tall else "")
    return RowBars("".join(outlines[:-1]), outlines[-1] if outlines else "")
