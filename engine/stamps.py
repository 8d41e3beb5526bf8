"""Time stamps of every usual style, as they are written; engine/clock.py says what they mean.

`read_stamp` takes a stamp off the front of a text, `find_stamp` looks for one inside it.
"""

from __future__ import annotations

import re
from datetime import date
from functools import lru_cache
from typing import NamedTuple

from engine.patterns import first_characters

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

STYLES: tuple[re.Pattern[str], ...] = tuple(
    re.compile(pattern)
    for pattern in (
        rf"{_LEVEL}[\[(]?(?:(?:{_DAY}) )?{_YMD}[T _,]\s?{_CLOCK}"
        rf"(?:[.,:](?P<f>\d{{1,9}}))?{_ZONE}[\])]?(?=\W|$)",
        rf"(?:<\d{{1,3}}>)?(?P<mon>{_MONTH}) +(?P<d>\d{{1,2}}) {_HMS}(?= )",
        rf"\[?(?:{_DAY}) (?P<mon>{_MONTH}) +(?P<d>\d{{1,2}}) {_HMS}(?: (?P<z>{_NAMED_ZONE}))? (?P<y>\d{{4}})\]?",
        r"\[?[IWEF]0000 00:00:(?P<ep>1[0-9]{9})(?P<epf>\.\d{1,9})",
        rf"\[?[IWEF](?P<y>20\d\d)?(?P<mo>\d{{1,2}})(?P<d>\d{{2}}) {_HMS}",
        rf"{_LEVEL}[\[(]?(?P<md>(?P<mo>\d{{2}})-(?P<d>\d{{2}}))(?:-(?P<y>20\d\d))?[ ,T]\s?{_HMS}",
        rf"{_LEVEL}[\[(]?(?P<md>(?P<mo>\d{{2}})/(?P<d>\d{{2}}))(?:/(?P<y>\d{{4}}|\d{{2}}))?[ ,T]\s?{_HMS}"
        r"(?: (?P<ap>[AP]M))?",
        r"\[?(?P<y>\d{4})(?P<mo>\d{2})(?P<d>\d{2})[ T_-]"
        r"(?P<h>\d{2}):?(?P<mi>\d{2}):?(?P<s>\d{2})(?:[.,](?P<f>\d+))?\]?(?=\W)",
        r"\[ *(?P<up>\d{1,9}\.\d{6})\]",
        r"(?P<ep>1[0-9]{9})(?:(?P<epf>\.\d{1,9})|(?P<epn>\d{9}|\d{6}|\d{3}))?(?=[ \t:|\]])",
        rf"{_LEVEL}[\[(]?{_HMS}[\])]?(?=[ \t|:-])",
        rf"\[(?P<mon>{_MONTH}) +(?P<d>\d{{1,2}}) {_HMS}(?: [^\]]{{0,40}})?\]",  # slurmctld, with its thread
        rf"\[?(?:(?:{_DAY}),? )?(?P<mon>{_MONTH}) +(?P<d>\d{{1,2}}),? (?P<y>\d{{4}})(?:,| @)? {_HMS}\]?(?=\W|$)",
        rf"(?P<y>20\d\d) (?P<mon>{_MONTH}) +(?P<d>\d{{1,2}}) {_HMS}(?= )",
        rf"\[?(?P<d>\d{{1,2}})[/ -](?P<mon>{_MONTH})[/ -](?P<y>\d{{4}})[: ]{_HMS}{_ZONE}\]?(?=\W|$)",
        rf"\[[A-Za-z]{{1,12}}[ |](?:[A-Z] )?{_YMD}[T ]{_CLOCK}(?:[.,](?P<f>\d{{1,9}}))?{_ZONE}(?: [^\]]{{0,60}})?\]",
        r"\[(?P<ep>1[0-9]{9})(?P<epf>\.\d{1,9})?\]",
        r"(?P<y>20\d\d)(?P<mo>\d\d)(?P<d>\d\d)T(?P<h>\d\d)(?P<mi>\d\d)(?P<s>\d\d)(?P<z>Z)?(?=\W)",
        rf"(?P<d>\d\d)\.(?P<mo>\d\d)\.(?P<y>20\d\d),? {_HMS}(?=\W|$)",
        rf"(?:time|ts|timestamp|t)=\"?{_YMD}[T ]{_CLOCK}(?:[.,](?P<f>\d{{1,9}}))?"
        rf"{_ZONE}\"?",
    )
)
_ISO = STYLES[0]
may_be_stamp = re.compile(
    r"\W*(?:[A-Za-z]{1,12}\W+)?(?:[A-Z][a-z]{0,2}\W+)?(?:(?:time|ts|timestamp|t)=\"?|[IWEF])?\d(?:\d|[\W_A-Z])"
).match
"""What every stamp begins with: a level or the names of day and month at most, then digits. Most messages don't."""
_HEADS = [first_characters(style.pattern) for style in STYLES]
_BY_HEAD = {
    head: tuple(style for style, heads in zip(STYLES, _HEADS, strict=True) if head in heads)
    for head in map(chr, range(128))
}
"""The styles that may begin with a character, so that not each is tried."""
_ANYWHERE = re.compile(
    rf"(?P<y>20(?<![\d.-]20)\d\d)[-/](?P<mo>\d{{2}})[-/](?P<d>\d{{2}})[T ]{_CLOCK}(?:[.,](?P<f>\d{{1,9}}))?{_ZONE}"
)
"""It begins with letters that stand for themselves: `re` passes over a text without them in no time."""
AUDIT = re.compile(r"audit(?:\(|: type=\d+ audit\()(1[0-9]{9}\.\d{3}):")
NETWORK_MANAGER = re.compile(r"<(?:info|warn|error|debug|trace)> +\[(1[0-9]{9}\.\d{1,6})\]")


_EPOCH = date(1970, 1, 1).toordinal()
LAST_YEAR = 2200
"""No stamp is later: such a number is not a year."""


class Stamp(NamedTuple):
    """A time as it was written. `naive` is what it would be in UTC (without a year: in 1972, a leap year)."""

    kind: str
    """full | no_year | no_date | uptime | epoch"""
    naive: float
    offset: int | None = None
    """Seconds east of UTC, None when the stamp names no zone."""
    day_first: float | None = None
    """`naive` with day and month the other way round, where digits leave open which is which (``06/05``)."""


def read_stamp(text: str) -> tuple[Stamp, int] | None:
    """The stamp at the front of `text` and where it ends, or None."""
    if not may_be_stamp(text):
        return None
    for style in _BY_HEAD.get(text[:1], STYLES if text[:1] > "\x7f" else ()):
        found = style.match(text)
        if found:
            stamp = _iso(*found.groups()) if style is _ISO else _stamp(found.groupdict())
            if stamp:
                return stamp, found.end()
    return None


def find_stamp(text: str) -> Stamp | None:
    """A full stamp anywhere in the first part of `text`."""
    found = _ANYWHERE.search(text[:200])
    return _iso(*found.groups()) if found else None


def parse_time(value: object) -> Stamp | None:
    """A time from structured data: a number (epoch in s, ms, us or ns) or a string."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, (int, float)):
        return _epoch(float(value)) if abs(value) < 1e20 else None
    if isinstance(value, dict):  # loguru
        return parse_time(value.get("timestamp") or value.get("repr"))
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


def _iso(y: str, mo: str, d: str, h: str, mi: str, s: str, f: str | None, z: str | None) -> Stamp | None:
    """A full date and time, the most frequent style."""
    midnight, hour, minute, second = _midnight(y, mo, d), int(h), int(mi), int(s)
    if midnight is None or hour > 23 or minute > 59 or second > 60:
        return None
    naive = midnight + hour * 3600 + minute * 60 + second + (float("0." + f) if f else 0.0)
    return Stamp("full", naive, _zone(z))


@lru_cache(maxsize=64)
def _midnight(y: str, mo: str, d: str) -> int | None:
    """Seconds from 1970 to the day's beginning; None when there is no such day."""
    year, month, day = int(y), int(mo), int(d)
    if not (1 <= month <= 12 and 1 <= day <= 31 and 1970 <= year <= LAST_YEAR):
        return None
    return (_first_of(year, month) + day - 1) * 86400


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
    if parts.get("ap") and hour <= 12:
        hour = hour % 12 + (12 if parts["ap"] == "PM" else 0)
    if hour > 23 or minute > 59 or second > 60:
        return None
    if parts.get("d") is None:
        return Stamp("no_date", hour * 3600 + minute * 60 + second + fraction)
    month = _MONTHS[parts["mon"] or ""] if parts.get("mon") else int(parts["mo"] or 0)
    day = int(parts["d"] or 0)
    undecided = bool(parts.get("md")) and month <= 12 and day <= 12  # some write the month first, others the day
    if parts.get("md") and month > 12:
        month, day = day, month
    written = parts.get("y") or "1972"
    year = int(written) + (2000 if len(written) == 2 else 0)
    if not (1 <= month <= 12 and 1 <= day <= 31 and 1970 <= year <= LAST_YEAR):
        return None
    of_day = hour * 3600 + minute * 60 + second + fraction
    naive = (_first_of(year, month) + day - 1) * 86400 + of_day
    day_first = (_first_of(year, day) + month - 1) * 86400 + of_day if undecided else None
    return Stamp("full" if parts.get("y") else "no_year", naive, _zone(parts.get("z")), day_first)


@lru_cache(maxsize=64)
def _first_of(year: int, month: int) -> int:
    """Days from 1 January 1970 to the first of a month."""
    return date(year, month, 1).toordinal() - _EPOCH


def _zone(text: str | None) -> int | None:
    if not text:
        return None
    if text in _ZONES:
        return _ZONES[text] * 3600
    sign = -1 if text[0] == "-" else 1
    digits = text[1:].replace(":", "")
    return sign * (int(digits[:2]) * 3600 + int(digits[2:4]) * 60)
