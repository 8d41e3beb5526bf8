"""The part of a node's log that an attempt's window of time needs, of files that hold days.

Lines are in order of time, as log daemons write them, so the borders are found by halves. Of a compressed file those
blocks are taken whose lines reach into the window. What tells no time is taken whole.
"""

from __future__ import annotations

from calendar import timegm
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from time import gmtime
from typing import BinaryIO
from zoneinfo import ZoneInfo

import msgspec

from engine.clock import Stamp
from engine.lines import clean

UNKNOWN_ZONE = 14 * 3600.0
"""Added to both sides of a window when lines name no zone and none is configured."""
_SAMPLE_LINES = 200
_NEAR = 1 << 16
_BLOCK = 1 << 18
_MAX_LINE = 1 << 16
_KINDS = ("full", "no_year", "epoch")


class Window(msgspec.Struct, frozen=True):
    """From when to when, in epoch seconds; `zone` of lines that name none."""

    start: float
    end: float
    zone: ZoneInfo | None = None

    def where(self, line: bytes) -> int | None:
        """-1 for a line before the window, 0 in it, 1 after it; None when it tells no time."""
        stamp = clean(line[:_MAX_LINE]).stamp
        if stamp is None or stamp.kind not in _KINDS:
            return None
        at, slack = self._utc(stamp)
        if at < self.start - slack:
            return -1
        return 1 if at > self.end + slack else 0

    def _utc(self, stamp: Stamp) -> tuple[float, float]:
        """Epoch seconds, and by how much they may be wrong."""
        naive = stamp.naive if stamp.kind != "no_year" else self._with_year(stamp.naive)
        if stamp.offset is not None:
            return naive - stamp.offset, 0.0
        if self.zone is None:
            return naive, UNKNOWN_ZONE
        east = datetime.fromtimestamp(naive, UTC).replace(tzinfo=self.zone).utcoffset()
        return naive - (east.total_seconds() if east else 0.0), 0.0

    def _with_year(self, naive: float) -> float:
        middle, written = (self.start + self.end) / 2, gmtime(naive)
        around = gmtime(middle).tm_year
        choices = [float(timegm((year, *written[1:6]))) for year in (around - 1, around, around + 1)]
        return min(choices, key=lambda at: abs(at - middle))


def tells_time(content: BinaryIO, window: Window) -> bool:
    """Whether any of the first lines has a time that can be ordered. Leaves the position at the start."""
    content.seek(0)
    found = _where(_lines(content, _SAMPLE_LINES), window)
    content.seek(0)
    return found is not None


def borders(content: BinaryIO, size: int, window: Window) -> tuple[int, int]:
    """The part of a plain file, from and to which byte; equal when nothing lies in the window."""
    start = _first(content, 0, size, window, after=-1)
    return start, _first(content, start, size, window, after=0)


def _first(content: BinaryIO, low: int, high: int, window: Window, after: int) -> int:
    """Where the first line begins that lies further than `after`; `high` when there is none."""
    top = high
    while high - low > _NEAR:
        middle = (low + high) // 2
        content.seek(middle)
        content.readline(_MAX_LINE)
        where = _where(_lines(content, _SAMPLE_LINES), window)
        if where is not None and where <= after:
            low = middle
        else:
            high = middle
    content.seek(low)
    at = low
    if low:
        at += len(content.readline(_MAX_LINE))
    while at < top:
        line = content.readline(_MAX_LINE)
        if not line:
            break
        where = window.where(line)
        if where is not None and where > after:
            return at
        at += len(line)
    return top


def blocks(content: BinaryIO, window: Window) -> Iterator[bytes]:
    """The same of what can only be read from its start on: whole lines, up to a block too much on either side."""
    before: bytes | None = None
    """The block before, when it began before the window: its last lines may lie in it."""
    for block in _whole_lines(content):
        where = _where(block.split(b"\n", _SAMPLE_LINES)[:_SAMPLE_LINES], window)
        if where == -1 or (where is None and before is not None):
            before = block
            continue
        if before is not None:
            yield before
            before = None
        if where == 1:
            return
        yield block
    if before is not None and _where(reversed(before.rsplit(b"\n", _SAMPLE_LINES)), window) == 0:
        yield before


def _where(lines: Iterable[bytes], window: Window) -> int | None:
    """Where the first of the lines lies that tells."""
    return next((where for line in lines if (where := window.where(line)) is not None), None)


def _whole_lines(content: BinaryIO) -> Iterator[bytes]:
    rest = b""
    read = getattr(content, "read1", content.read)  # small steps: what stands before a damage is given
    while block := read(_NEAR):
        whole, line_end, rest = (rest + block).rpartition(b"\n")
        if whole or len(rest) > _BLOCK:
            yield whole + line_end or rest
            rest = rest if whole else b""
    if rest:
        yield rest


def _lines(content: BinaryIO, most: int) -> Iterator[bytes]:
    for _ in range(most):
        line = content.readline(_MAX_LINE)
        if not line:
            return
        yield line
