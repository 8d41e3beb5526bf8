"""The moment at which a node booted, which turns the kernel's seconds since then into times."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from engine.stamps import AUDIT, Stamp, find_stamp, parse_time

_RTC = re.compile(r"RTC time: +(\d{1,2}:\d\d:\d\d), date: (?:(\d{4}-\d\d-\d\d)|(\d\d)/(\d\d)/(\d\d))")
_HEADER = re.compile(
    r"(?i)\b(?:system boot|boot(?:ed)?(?:[ _-]?(?:time|at|on|since))?|btime|up since|uptime -s)\b[^\d\n]{0,24}"
    r"(20\d\d-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?|1\d{9}(?:\.\d+)?)(?!\d)"
)
"""What a person or a script writes above the output of dmesg: ``# booted 2026-10-25 12:00:00``."""
HEADER_LINES = 12
"""Lines at the beginning of a log in which such a header is looked for."""


class Boot(NamedTuple):
    at: float
    by: str
    """What told it, in words."""


def boot_by_line(stamp: Stamp, text: str) -> float | None:
    """The moment of boot by a line of the kernel that has both its uptime and the time of day."""
    if stamp.kind != "uptime":
        return None
    audit = AUDIT.search(text)
    if audit:
        return float(audit[1]) - stamp.naive
    rtc = _RTC.search(text)
    if rtc:
        date = rtc[2] or f"20{rtc[5]}-{rtc[3]}-{rtc[4]}"
        at = parse_time(f"{date} {rtc[1]:0>8}")
        return None if at is None else at.naive - stamp.naive
    both = find_stamp(text)
    if both is not None and both.kind == "full":
        return both.naive - (both.offset or 0) - stamp.naive
    return None


def boot_by_samples(samples: Sequence[tuple[Stamp, str]]) -> Boot | None:
    """The same by the sampled lines of a log; an audit line, which is exact, before others."""
    exact = [(stamp, text) for stamp, text in samples if stamp.kind == "uptime" and "audit(" in text]
    for stamp, text in (*exact, *samples):
        at = boot_by_line(stamp, text)
        if at is not None:
            return Boot(at, "a line with both times")
    return None


def boot_by_header(head: Iterable[str], zone: float) -> Boot | None:
    """The same by what stands above the kernel's lines. `zone`: seconds east of UTC of a time that names no zone."""
    for text in head:
        found = _HEADER.search(text)
        at = parse_time(found[1] if found[1].count(":") != 1 else f"{found[1]}:00") if found else None
        if at is not None:
            return Boot(at.naive - (zone if at.offset is None else at.offset), "the log's header")
    return None


def boot_by_neighbours(samples: Sequence[tuple[Stamp, str]]) -> Boot | None:
    """The same by a line with two stamps: syslog keeps the kernel's own, ``2026-11-03T... n1 kernel: [8123.45]``."""
    for (one, text), (other, same) in pairwise(samples):
        if text == same and other.kind == "uptime" and one.kind == "full" and one.offset is not None:
            return Boot(one.naive - one.offset - other.naive, "another log of the node")
    return None
