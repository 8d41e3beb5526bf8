"""Time stamps of every usual style, and what is unknown about them: year, zone, date, the moment of boot.

`read_stamp` takes a stamp off the front of a text. `StreamClock` turns the stamps of one stream into UTC, deciding
once per stream what they leave open, by the attempt's window and by the stream's own hints. Nothing here asks for
the current time.
"""

from __future__ import annotations

import re
from calendar import timegm
from collections.abc import Iterable
from time import gmtime
from typing import NamedTuple

_MONTHS = {
    name: number
    for number, name in enumerate(
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"], 1
    )
}
_MONTH = "|".join(_MONTHS)
_DAY = "Mon|Tue|Wed|Thu|Fri|Sat|Sun"
_HMS = r"(?P<h>\d{2}):(?P<mi>\d{2}):(?P<s>\d{2})(?:[.,](?P<f>\d{1,9}))?"
_YMD = r"(?P<y>\d{4})[-/](?P<mo>\d{2})[-/](?P<d>\d{2})"
_CLOCK = r"(?P<h>\d{2}):(?P<mi>\d{2}):(?P<s>\d{2})"
_ZONES = {
    "Z": 0, "UTC": 0, "GMT": 0, "WET": 0, "WEST": 1, "CET": 1, "CEST": 2, "EET": 2, "EEST": 3, "MSK": 3,
    "EST": -5, "EDT": -4, "CDT": -5, "MST": -7, "MDT": -6, "PST": -8, "PDT": -7, "JST": 9, "KST": 9,
}  # fmt: skip
"""Hours east of UTC of zones whose short name has one meaning (CST, IST and BST have several)."""
_NAMED_ZONE = "|".join(sorted(_ZONES, key=len, reverse=True))
_ZONE = rf"(?:\s?(?P<z>(?:{_NAMED_ZONE})\b|[+-]\d{{2}}:?\d{{2}}(?!\d)))?"
_LEVEL = r"(?:\[?(?:DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL)\]?[:\s|]\s*)?"

_STYLES: tuple[re.Pattern[str], ...] = tuple(
    re.compile(pattern)
    for pattern in (
        rf"{_LEVEL}[\[(]?{_YMD}[T _]\s?{_CLOCK}"
        rf"(?:[.,:](?P<f>\d{{1,9}}))?{_ZONE}[\])]?(?=\W|$)",
        rf"(?:<\d{{1,3}}>)?(?P<mon>{_MONTH}) +(?P<d>\d{{1,2}}) {_HMS}(?= )",
        rf"\[?(?:{_DAY}) (?P<mon>{_MONTH}) +(?P<d>\d{{1,2}}) {_HMS}(?: (?P<z>{_NAMED_ZONE}))? (?P<y>\d{{4}})\]?",
        r"\[?[IWEF]0000 00:00:(?P<ep>1[0-9]{9})(?P<epf>\.\d{1,9})",
        rf"\[?[IWEF](?P<mo>\d{{1,2}})(?P<d>\d{{2}}) {_HMS}",
        rf"{_LEVEL}(?P<mo>\d{{2}})-(?P<d>\d{{2}}) {_HMS}",
        rf"{_LEVEL}[\[(]?(?P<mo>\d{{2}})/(?P<d>\d{{2}})(?:/(?P<y>\d{{4}}|\d{{2}}))?[ ,T]\s?{_HMS}(?: (?P<ap>[AP]M))?",
        r"\[?(?P<y>\d{4})(?P<mo>\d{2})(?P<d>\d{2})[ T_-]"
        r"(?P<h>\d{2}):?(?P<mi>\d{2}):?(?P<s>\d{2})(?:[.,](?P<f>\d+))?\]?(?=\W)",
        r"\[ *(?P<up>\d{1,9}\.\d{6})\]",
        r"(?P<ep>1[0-9]{9})(?:(?P<epf>\.\d{1,9})|(?P<epn>\d{9}|\d{6}|\d{3}))?(?=[ \t:|\]])",
        rf"{_LEVEL}[\[(]?{_HMS}[\])]?(?=[ \t|:-])",
        rf"(?:time|ts)=\"?{_YMD}[T ]{_CLOCK}(?:[.,](?P<f>\d{{1,9}}))?"
        rf"{_ZONE}\"?",
    )
)
_ANYWHERE = re.compile(rf"(?<![\d.-])(?=20){_YMD}[T ]{_CLOCK}(?:[.,](?P<f>\d{{1,9}}))?{_ZONE}")
_AUDIT = re.compile(r"audit(?:\(|: type=\d+ audit\()(1[0-9]{9}\.\d{3}):")
_LEAD = re.compile(r"[\s\[(\"]{0,12}[\dA-Z<t]")


LAST_YEAR = 2200
"""No stamp is later: such a number is not a year."""


class Stamp(NamedTuple):
    """A time as it was written. `naive` is what it would be in UTC (without a year: in 1972, a leap year)."""

    kind: str
    """full | no_year | no_date | uptime | epoch"""
    naive: float
    offset: int | None = None
    """Seconds east of UTC, None when the stamp names no zone."""


class Resolved(NamedTuple):
    at: float | None
    clock: str


def read_stamp(text: str) -> tuple[Stamp, int] | None:
    """The stamp at the front of `text` and where it ends, or None."""
    if not _LEAD.match(text):
        return None
    for style in _STYLES:
        found = style.match(text)
        if found:
            stamp = _stamp(found.groupdict())
            if stamp:
                return stamp, found.end()
    return None


def find_stamp(text: str) -> Stamp | None:
    """A full stamp anywhere in the first part of `text`."""
    found = _ANYWHERE.search(text[:200])
    return _stamp(found.groupdict()) if found else None


def parse_time(value: object) -> Stamp | None:
    """A time from structured data: a number (epoch in s, ms, us or ns) or a string."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, (int, float)):
        return _epoch(float(value)) if abs(value) < 1e20 else None
    text = str(value).strip()
    if re.fullmatch(r"\d{10,19}(\.\d+)?", text):
        return _epoch(float(text))
    found = read_stamp(text + " ")
    return found[0] if found else None


def _epoch(number: float) -> Stamp | None:
    for scale in (1.0, 1e3, 1e6, 1e9):
        if 9e8 <= number / scale < 5e9:
            return Stamp("epoch", number / scale, 0)
    return None


def _stamp(parts: dict[str, str | None]) -> Stamp | None:
    if parts.get("up"):
        return Stamp("uptime", float(parts["up"] or 0))
    if parts.get("ep"):
        whole = float(parts["ep"] or 0)
        if parts.get("epf"):
            whole += float(parts["epf"] or 0)
        elif parts.get("epn"):
            digits = parts["epn"] or ""
            whole += int(digits) / 10 ** len(digits)
        return Stamp("epoch", whole, 0)
    fraction = float(f"0.{parts.get('f') or 0}")
    hour, minute, second = int(parts["h"] or 0), int(parts["mi"] or 0), int(parts["s"] or 0)
    if parts.get("ap") == "PM" and hour < 12:
        hour += 12
    if hour > 23 or minute > 59 or second > 60:
        return None
    if parts.get("d") is None:
        return Stamp("no_date", hour * 3600 + minute * 60 + second + fraction)
    month = _MONTHS[parts["mon"] or ""] if parts.get("mon") else int(parts["mo"] or 0)
    day = int(parts["d"] or 0)
    written = parts.get("y") or "1972"
    year = int(written) + (2000 if len(written) == 2 else 0)
    if not (1 <= month <= 12 and 1 <= day <= 31 and 1970 <= year <= LAST_YEAR):
        return None
    naive = timegm((year, month, day, hour, minute, second)) + fraction
    return Stamp("full" if parts.get("y") else "no_year", naive, _zone(parts.get("z")))


def _zone(text: str | None) -> int | None:
    if not text:
        return None
    if text in _ZONES:
        return _ZONES[text] * 3600
    sign = -1 if text[0] == "-" else 1
    digits = text[1:].replace(":", "")
    return sign * (int(digits[:2]) * 3600 + int(digits[2:4]) * 60)


_DAY_S = 86_400.0
WITH_THE_JOB = 300.0
"""Seconds between the job's start or end and the first or last stamp of its log."""
ZONE_SHIFTS = tuple(
    hours * 3600.0
    for hours in sorted(
        [*range(-12, 15), -9.5, -3.5, 3.5, 4.5, 5.5, 5.75, 6.5, 9.5, 10.5], key=lambda h: (h % 1 != 0, abs(h), h)
    )
)
"""Seconds east of UTC of every zone that is in use, the likelier ones first."""


def zone_shift(seconds: float, tolerance: float) -> float | None:
    """The zone that is `seconds` east of UTC, within a tolerance; None when there is no such zone."""
    nearest = min(ZONE_SHIFTS, key=lambda shift: abs(shift - seconds))
    return nearest if abs(nearest - seconds) < tolerance else None


class StreamClock:
    """Resolves the stamps of one stream against the attempt's window.

    What a stamp leaves open is decided for the whole stream: the zone is UTC unless only another one brings the
    stream into the window; the year is the one nearest to the window; uptimes need an anchor (`boot`).
    """

    def __init__(
        self,
        start: float | None,
        end: float | None,
        samples: Iterable[tuple[Stamp, str]] = (),
        *,
        covers_job: bool = True,
        local_shift: float = 0.0,
    ) -> None:
        """`covers_job`: the stream begins and ends with the job, as a job's log does and a system log doesn't.

        `local_shift`: seconds east of UTC of the cluster's zone, where something else told it.
        """
        self.start = start if start is not None else end
        self.end = end if end is not None else start
        self.shift = 0.0
        self.boot: float | None = None
        self._zone_note = "zone assumed UTC"
        kept = list(samples)
        self._anchor_boot(kept)
        told = self._zone_by_audit(kept)
        if told is not None:
            self.shift, self._zone_note = told, f"zone UTC{told / 3600:+g} by an audit line"
        else:
            self._choose_zone([stamp for stamp, _ in kept], covers_job, local_shift)

    def resolve(self, stamp: Stamp | None) -> Resolved:
        """UTC epoch seconds of a stamp, and in words how they were found."""
        if stamp is None:
            return Resolved(None, "unknown: no time stamp")
        if stamp.kind == "epoch":
            return Resolved(stamp.naive, "own: epoch")
        if stamp.kind == "uptime":
            if self.boot is None:
                return Resolved(None, "unknown: uptime without an anchor")
            return Resolved(self.boot + stamp.naive, "own: uptime, anchored by a line with both times")
        if stamp.kind == "no_date":
            return self._nearest_day(stamp)
        naive = stamp.naive
        notes = []
        if stamp.kind == "no_year":
            naive = self._with_year(naive)
            notes.append("year by the attempt's window")
        if stamp.offset is not None:
            return Resolved(naive - stamp.offset, "own" + (": " + ", ".join(notes) if notes else ""))
        notes.append(self._zone_note)
        return Resolved(naive - self.shift, "own: " + ", ".join(notes))

    def _with_year(self, naive: float) -> float:
        middle = self.end if self.end is not None else self.start
        if middle is None:
            return naive
        local = middle + self.shift
        written, fraction = gmtime(naive), naive % 1.0
        around = gmtime(local).tm_year
        choices = [timegm((year, *written[1:6])) + fraction for year in (around - 1, around, around + 1)]
        return min(choices, key=lambda at: abs(at - local))

    def _nearest_day(self, stamp: Stamp) -> Resolved:
        if self.start is None or self.end is None:
            return Resolved(None, "unknown: time of day without a date")
        local_end = self.end + self.shift
        day = local_end // _DAY_S * _DAY_S
        choices = [day + k * _DAY_S + stamp.naive - self.shift for k in (-1, 0, 1)]
        fitting = [at for at in choices if self.start - 60 <= at <= self.end + 60]
        if self.end - self.start > _DAY_S or len(fitting) != 1:
            at = min(choices, key=lambda c: abs(c - (self.end or 0)))
            return Resolved(at, "own: date by the end of the attempt")
        return Resolved(fitting[0], f"own: date by the attempt's window, {self._zone_note}")

    def _anchor_boot(self, samples: list[tuple[Stamp, str]]) -> None:
        for stamp, text in samples:
            if stamp.kind == "uptime":
                audit = _AUDIT.search(text)
                if audit:
                    self.boot = float(audit[1]) - stamp.naive
                    return
        for stamp, text in samples:
            if stamp.kind == "uptime":
                both = find_stamp(text)
                if both and both.kind == "full":
                    self.boot = both.naive - (both.offset or 0) - stamp.naive
                    return

    def _choose_zone(self, stamps: list[Stamp], covers_job: bool, local_shift: float) -> None:
        """The zone of the stream's own hints, else the one that brings it into the attempt's window.

        A job's log begins and ends with the job. A system log goes on for hours on both sides, so there the cluster's
        zone is believed before the window is.
        """
        local = [s for s in stamps if s.offset is None and s.kind in ("full", "no_year")]
        if not local or self.start is None or self.end is None:
            return
        slack = 300.0 if covers_job else 7200.0
        low, high = self.start - slack, self.end + slack

        def outside(shift: float) -> int:
            self.shift = shift
            return sum(not low <= (self.resolve(s).at or 0.0) <= high for s in local)

        def apart(shift: float) -> tuple[int, bool]:
            """Stamps outside the window; then whether the log begins or ends with the job, as it should."""
            count = outside(shift)
            times = [self.resolve(s).at or 0.0 for s in local]
            begins, ends = abs(min(times) - low - slack), abs(max(times) - high + slack)
            return count, min(begins, ends) > WITH_THE_JOB

        if covers_job:
            best = min((0.0, local_shift), key=outside)
        else:
            best = local_shift if outside(local_shift) < len(local) else 0.0
        cost = outside(best)
        if cost > (0.1 if covers_job else 0.5) * len(local):
            found = min(ZONE_SHIFTS, key=apart if covers_job else outside)
            if outside(found) < cost * 0.5:
                best = found
        elif covers_job and cost:
            # A job's log cannot go on after the job: one stamp beyond the end is enough if a zone accounts for it.
            found = min((shift for shift in ZONE_SHIFTS if not shift % 3600), key=outside)
            best = found if outside(found) == 0 else best
        self.shift = best
        if best:
            self._zone_note = f"zone UTC{best / 3600:+g} by the attempt's window"

    def _zone_by_audit(self, samples: list[tuple[Stamp, str]]) -> float | None:
        """Seconds east of UTC by an audit line: its epoch beside the stream's own stamp."""
        for stamp, text in samples:
            audit = _AUDIT.search(text)
            if audit and stamp.offset is None and stamp.kind in ("full", "no_year"):
                naive = self._with_year(stamp.naive) if stamp.kind == "no_year" else stamp.naive
                shift = zone_shift(naive - float(audit[1]), 600.0)
                if shift is not None:
                    return shift
        return None
