"""Times and writers of the lines around one: what a line without a time of its own is dated by.

Only what may tell is cleaned and read: the scanner finds the lines that may hold a time, in small cells of the block
that are looked through once, and a line of a certain writer holds its name or number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

from engine.blocks import BACK, NEAR, Block, line_at, line_end
from engine.clock import Stamp
from engine.database import Database
from engine.lines import RANK, Line

LINES_BACK, LINES_AHEAD = 40, 20
"""Lines around one without a time whose time it may have."""
CELL = 2 << 10
"""Bytes that are looked through at once."""
_LONGEST_FORM = 32
_RANK = re.compile(rb" {0,6}(\d{1,6}): |\[rank(\d{1,6})\]: ")
_MAY_MARK_RANK = re.compile(rb"\[rank|<std|pid=|\{")
_MAY_TELL_TIME = (
    r"(?:^|[^<0-9])[0-9]{2}:[0-9]{2}:[0-9]{2}",  # a time of day; behind a < it is one of tqdm's durations
    r"[12][0-9]{7}[T _-][0-9]{2}",  # a date in digits
    r"(?:^|[^1-9])(?:[1-4][0-9]|9)[0-9]{8}(?:[0-9]{3}){0,3}(?:[^0-9]|$)",  # seconds since 1970, or their thousandths
    r"\.[0-9]{6}\]",  # seconds since a boot
    r"[0-9][eE]\+?0{0,3}[1-9][0-9]?[\t ,}\]]",  # a number of JSON
    r"[\x00\x1b]",  # what may stand between digits
)
"""What stands in every line with a time stamp, of whatever style."""


class Neighbours:
    """Of the lines in one block."""

    def __init__(self, block: Block, cleaned: Callable[[bytes], Line]) -> None:
        self._block, self._cleaned = block, cleaned
        self._cells: dict[int, list[int]] = {}
        self._lines: dict[int, tuple[Stamp | None, tuple[Any, ...]]] = {}
        """Where a line begins -> its time and its writer."""

    def stamp(self, start: int, number: int, lane: tuple[Any, ...]) -> tuple[Stamp | None, str | None]:
        """The stamp of the nearest line before the one at `start`, of the same rank if there is one, else behind it."""
        return self.stamp_before(start, number, lane) or self._stamp_behind(start, number) or (None, None)

    def stamp_before(self, start: int, number: int, lane: tuple[Any, ...]) -> tuple[Stamp, str] | None:
        """The stamp of the nearest line before, of the same rank if there is one, and where it stands."""
        data, at, seen = self._block.data, number, start
        for position in self._timed_before(start):
            at -= data.count(b"\n", position, seen)
            seen = position
            if at < number - LINES_BACK:
                return None
            stamp, writer = self._line(position)
            if stamp is not None:
                break
        else:
            return None
        names = [str(part).encode() for part in lane if part is not None]
        # A line without a rank's mark goes with its nearest neighbour, whoever wrote that.
        if writer == lane or not names:
            return stamp, f"line {at}"
        other, nearest = stamp, at
        rank = lane[RANK] if isinstance(lane[RANK], int) else None
        for position in self._naming(names, rank, self._floor(start), seen):
            at -= data.count(b"\n", position, seen)
            seen = position
            stamp, writer = self._line(position)
            if stamp is not None and writer == lane:
                return stamp, f"line {at}"
        return other, f"line {nearest} of another rank"

    def _stamp_behind(self, start: int, number: int) -> tuple[Stamp, str] | None:
        data, end = self._block.data, line_end(self._block, start)
        at, seen, limit = number + 1, end + 1, end + NEAR
        for position in self._timed_behind(end + 1, limit):
            at += data.count(b"\n", seen, position)
            seen = position
            is_whole = data.find(b"\n", position, limit) >= 0 or (self._block.is_last and len(data) < limit)
            if at > number + LINES_AHEAD or not is_whole:
                break
            stamp, _ = self._line(position)
            if stamp is not None:
                return stamp, f"line {at}, which comes after it"
        return None

    def _line(self, start: int) -> tuple[Stamp | None, tuple[Any, ...]]:
        known = self._lines.get(start)
        if known is None:
            line = self._cleaned(line_at(self._block, start))
            known = self._lines[start] = line.stamp, line.lane
        return known

    def _least(self, start: int) -> int:
        """Where the first line can begin that is near enough to the one at `start`."""
        low = start - BACK
        return 0 if low <= 0 and self._block.base == 0 else max(low, 0) + 1

    def _floor(self, start: int) -> int:
        """Where the furthest line begins that is before the one at `start` and near enough."""
        data, least, floor = self._block.data, self._least(start), start
        for _ in range(LINES_BACK):
            before = data.rfind(b"\n", max(least - 1, 0), floor - 1) + 1
            if not before and least:
                return floor
            floor = before
            if not floor:
                break
        return floor

    def _naming(self, names: Sequence[bytes], rank: int | None, floor: int, end: int) -> Iterator[int]:
        """Where lines in [floor, end) begin that hold all these names, may tell a time and are not plainly those of
        another rank, from the last one on.
        """
        data, name = self._block.data, max(names, key=len)
        if data.find(b"\x00", floor, end) >= 0 or data.find(b"\x1b", floor, end) >= 0:
            name = b"\n"  # they may stand within a name
        while end > floor:
            found = data.rfind(name, floor, end)
            if found < 0:
                return
            begin = data.rfind(b"\n", floor, found) + 1 or floor
            raw = data[begin : end - 1 if name == b"\n" else data.find(b"\n", found)]
            if begin in self._lines or self._may_be_of(raw, names, rank, may_hide=name == b"\n"):
                yield begin
            end = begin

    @staticmethod
    def _may_be_of(raw: bytes, names: Sequence[bytes], rank: int | None, *, may_hide: bool) -> bool:
        if not may_hide:
            if rank is not None and _is_of_another(raw, rank):
                return False
            if not all(_holds(raw, name) for name in names):
                return False
        return may_tell_time(raw)

    def _timed_before(self, start: int) -> Iterator[int]:
        """Where lines begin that may tell a time, from the one before `start` backwards."""
        data, least, end = self._block.data, self._least(start), start
        number, passed = (start - 1) // CELL, 0
        while number >= 0 and (number + 1) * CELL > least:
            for told in reversed(self._cell(number)):
                if told >= end:
                    continue  # in a line that was met already
                end = data.rfind(b"\n", max(least - 1, 0), told) + 1
                if not end and least:
                    return
                yield end
            passed += data.count(b"\n", number * CELL, min((number + 1) * CELL, start))
            if passed > LINES_BACK:
                return
            number -= 1

    def _timed_behind(self, begin: int, limit: int) -> Iterator[int]:
        """Where lines begin that may tell a time, from `begin` on."""
        data, number, passed, first = self._block.data, begin // CELL, 0, begin
        while number * CELL < min(limit, len(data)):
            for told in self._cell(number):
                if told < begin:
                    continue
                start = max(data.rfind(b"\n", begin, told) + 1, begin)
                begin = data.find(b"\n", told, limit) + 1
                yield start
                if not begin:
                    return
            passed += data.count(b"\n", max(number * CELL, first), (number + 1) * CELL)
            if passed > LINES_AHEAD:
                return
            number += 1

    def _cell(self, number: int) -> list[int]:
        """Where the last bytes of what may be times stand in the cell, in order; it may be the line's end."""
        known = self._cells.get(number)
        if known is None:
            data = self._block.data
            first, last = max(number * CELL - _LONGEST_FORM, 0), min((number + 1) * CELL, len(data))
            ends: list[int] = []
            _times().scan(memoryview(data)[first:last], lambda _number, _from, end, *_: ends.append(first + end - 1))
            known = self._cells[number] = sorted(ends)
        return known


def may_tell_time(line: bytes) -> bool:
    """False only when the line has no time stamp."""
    return bool(_times().found_in(line))


def _holds(raw: bytes, name: bytes) -> bool:
    """Does the name stand in the line; if it is a number, as a number of its own?"""
    at = raw.find(name)
    if not name.isdigit():
        return at >= 0
    while at >= 0:
        end = at + len(name)
        if not raw[end : end + 1].isdigit() and raw[at - 1 : at] not in _DIGITS_BEFORE:
            return True
        at = raw.find(name, at + 1)
    return False


_DIGITS_BEFORE = frozenset(b"%d" % digit for digit in range(1, 10))
"""Not 0: a number may be written with zeros before it."""


def _is_of_another(raw: bytes, rank: int) -> bool:
    """Does a line (without colours) begin with the mark of another rank, and hold nothing behind it that may be one?"""
    found = _RANK.match(raw)
    return found is not None and int(found[1] or found[2]) != rank and not _MAY_MARK_RANK.search(raw, found.end())


@cache
def _times() -> Database:
    return Database([(form, 0) for form in _MAY_TELL_TIME])
