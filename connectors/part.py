"""Parts of a file that are read as if they were the whole: what was there when it was found; beginning and end of what
is longer than there is room for.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, BinaryIO, cast

from connectors.base import Limits

LEAST = 1 << 20
"""Bytes; with less room beginning and end of a log tell too little."""
HEAD_SHARE = 0.25
_MAX_LINE = 1 << 16

Range = tuple[int, int]
"""From and to which byte."""


class Parts(io.RawIOBase):
    """Ranges of a file, which may grow meanwhile, one after another. Closes the file with it."""

    def __init__(self, content: BinaryIO, ranges: Sequence[Range]) -> None:
        self._content, self._ranges, self._left = content, list(ranges), 0

    @classmethod
    def reader(cls, content: BinaryIO, ranges: Sequence[Range]) -> BinaryIO:
        return cast(BinaryIO, io.BufferedReader(cls(content, ranges), 1 << 16))

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._content.fileno()

    def readinto(self, buffer: Any) -> int:
        while not self._left and self._ranges:
            start, end = self._ranges.pop(0)
            self._left = end - start
            self._content.seek(start)
        block = self._content.read(min(len(buffer), self._left))
        buffer[: len(block)] = block
        self._left -= len(block)
        return len(block)

    def close(self) -> None:
        if not self.closed:
            self._content.close()
        super().close()


def room_for(limits: Limits, taken: int) -> int:
    """Bytes that one more stream may have, when `taken` are."""
    left = max(limits.bytes - taken, 0)
    return left if limits.stream_bytes is None else min(left, limits.stream_bytes)


def within(content: BinaryIO, start: int, end: int, room: int) -> list[Range]:
    """What of `start` to `end` is read within `room` bytes: all of it, when it fits or when there is too little room
    for anything else; else whole lines of its beginning and, more of them, of its end.

    A log that tells no times is timed by its first and last step, so that both are needed.
    """
    if end - start <= room or room < LEAST:
        return [(start, end)]
    content.seek(start + int(room * HEAD_SHARE) - _MAX_LINE)
    head = content.tell() + (content.read(_MAX_LINE).rfind(b"\n") + 1)
    content.seek(end - (room - (head - start)))
    tail = min(content.tell() + len(content.readline(_MAX_LINE)), end)
    return [(start, head), (tail, end)]


def size_of(ranges: Sequence[Range]) -> int:
    """Bytes in all of them."""
    return sum(end - start for start, end in ranges)


def left_out(name: str, ranges: Sequence[Range]) -> str:
    """What a report says of a file that is not read whole; empty when it is."""
    if len(ranges) < 2:
        return ""
    (start, head), (tail, end) = ranges
    return (
        f"{name} has {end - start} bytes, more than there is room for: its first {head - start} and its last "
        f"{end - tail} were read"
    )
