"""Where the parts of small figures stand. Templates draw them as SVG: widths are attributes, so the policy holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

from triage import words
from triage.selectors.nodes import Day
from triage.statistics import Share
from triage.times import MONTHS

STEP, BAR = 12, 10
"""Pixels a day, and of its bar."""
TOGETHER = 7
"""Days within which the same cause is said once."""
CHARACTER = 7.2
"""About the width of a letter."""
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
    url: str = ""
    """The list behind it."""


@dataclass(frozen=True)
class Label:
    x: float
    text: str
    end: bool = False
    """The text ends there instead of beginning there."""
    domain: str = ""


@dataclass(frozen=True)
class Strip:
    """Days side by side."""

    width: int
    bars: list[Bar]
    months: list[Label]
    marks: list[Label] = field(default_factory=list)
    """Where a person noted something."""
    causes: list[Label] = field(default_factory=list)
    """What the node was to blame for, where there is room to say it."""


def strip(days: Sequence[Day], noted: Sequence[date] = (), urls: Mapping[date, str] | None = None) -> Strip:
    """A bar a day: high when the node was to blame, half when an attempt failed for another reason, low when all went
    well, a line when nothing ran. `urls` are the lists behind the days.
    """
    bars, months, urls = [], [], urls or {}
    at = {day.day: number for number, day in enumerate(days)}
    for number, day in enumerate(days):
        x = number * STEP
        more = {"title": _told(day), "url": urls.get(day.day, "")}
        if day.blamed:
            bars.append(Bar(x, 22, BAR, 40, "b", day.domain or "unattributed", **more))
        elif day.failed:
            bars.append(Bar(x, 38, BAR, 24, "b past", **more))
        elif day.attempts:
            bars.append(Bar(x, 52, BAR, 10, "b past", **more))
        else:
            bars.append(Bar(x, 60, BAR, 2, "stall", **more))
        if day.day.day == 1 or (number == 0 and day.day.day < 25):
            months.append(Label(x, f"{day.day.day} {MONTHS[day.day.month - 1]}"))
    marks = [Label(at[day] * STEP + BAR / 2, "") for day in sorted(set(noted)) if day in at]
    return Strip(len(days) * STEP, bars, months, marks, _causes(days))


def _told(day: Day) -> str:
    """What a bar says when one points at it."""
    said = f"{day.day.day} {MONTHS[day.day.month - 1]}: "
    if not day.attempts:
        return said + "nothing ran"
    said += words.count(day.attempts, "attempt")
    return said + (f", {day.failed:,} failed" if day.failed else "") + (f", {day.blamed:,} by it" if day.blamed else "")


def short_cause(rule: str, sub_domain: str) -> str:
    """A cause in a word or two: `Xid 149`, `NVLink`."""
    family, _, name = rule.partition(".")
    number = name.partition("-")[0]
    if family in ("xid", "sxid") and number.isdecimal():
        return f"{'Xid' if family == 'xid' else 'SXid'} {number}"
    return words.sub_domain(sub_domain)


def _causes(days: Sequence[Day]) -> list[Label]:
    """The causes above their bars, the newest first in line for the room; those of one week and kind together."""
    groups: list[tuple[str, str, list[int], int]] = []
    for number, day in enumerate(days):
        if not day.blamed:
            continue
        name = short_cause(day.rule, day.sub_domain)
        if groups and groups[-1][0] == name and number - groups[-1][2][-1] <= TOGETHER:
            _, domain, places, times = groups[-1]
            groups[-1] = (name, domain, [*places, number], times + day.blamed)
        else:
            groups.append((name, day.domain, [number], day.blamed))
    labels: list[Label] = []
    free_until, width = float(len(days) * STEP), len(days) * STEP
    for name, domain, places, times in reversed(groups):
        text = name if times == 1 else f"{name}, {times:,} times"
        begin, wide = float(places[0] * STEP), len(text) * CHARACTER
        end = begin + wide > width
        left = places[-1] * STEP + BAR - wide if end else begin
        if text and left >= 0 and left + wide <= free_until:
            labels.append(Label(places[-1] * STEP + BAR if end else begin, text, end, domain or "unattributed"))
            free_until = left - CHARACTER
    return labels[::-1]


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
