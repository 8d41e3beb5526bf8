"""A stream as blocks that end at a line end, each with what stands before and behind it.

How many bytes are read at once (`BLOCK`) changes nothing in what is found: what is looked at around a line is measured
from that line, and what is sampled is sampled by `REGION`, a grid over the whole stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import BinaryIO

import msgspec

from engine import parts
from engine.lines import printable, strip_ansi
from engine.model import Stream

REGION = 1 << 20
"""The unit in which progress and time stamps are sampled: each MiB of the stream, wherever blocks end."""
BLOCK = 1 << 20
"""Bytes read at once."""
BACK = 128 << 10
"""Bytes before a line in which its context and its time are looked for."""
AHEAD = 256 << 10
"""Bytes behind a block that stay at hand."""
TRACEBACK = 128 << 10
"""Bytes behind its first line in which a traceback is read."""
NEAR = 64 << 10
"""Bytes behind a line in which its context and its time are looked for."""
MAX_LINE = 8 << 20
"""A longer line is cut into pieces of this size; more than a block with what is ahead of it."""
CONTEXT_LINES = 3
CONTEXT_BYTES = 4096
"""Of a line that is the context of another one."""


class Region(msgspec.Struct, frozen=True):
    """The whole lines of one REGION of the stream, in the data of the block in which it ends."""

    number: int
    start: int
    end: int
    line: int
    """Number of the line at `start`."""
    end_line: int
    """And of the line at `end`."""
    is_last: bool


class Block(msgspec.Struct):
    """Bytes `data`; only the lines in [start, end) are the block's own, the rest stands around them."""

    data: bytes
    start: int
    end: int
    base: int
    """Stream offset of data[0]."""
    line: int
    """Line number at `start`."""
    lines: int
    """Line ends in [start, end)."""
    is_last: bool
    """`data` reaches the end of the stream."""
    regions: list[Region]
    """Regions that end in this block; they may have begun before it."""


class Around(msgspec.Struct, frozen=True, gc=False):
    """The lines around another one, parted and made readable only when somebody asks for them."""

    raw_before: bytes | None = None
    raw_after: bytes | None = None

    @property
    def before(self) -> list[str]:
        return _readable(self.raw_before)

    @property
    def after(self) -> list[str]:
        return _readable(self.raw_after)


def blocks(stream: Stream) -> Iterator[Block]:
    """The stream from its start to its end. Raises OSError and what a damaged compressed stream raises."""
    _keep_freed_memory()
    grid = _Grid()
    with stream.open() as source:
        data, start, base, number, is_last = b"", 0, 0, 1, False
        wanted = BLOCK + AHEAD
        while not is_last:
            piece = _read(source, wanted)
            is_last, wanted = len(piece) < wanted, BLOCK
            dropped = max(min(start, grid.begin - base) - BACK - 1, 0)
            data = b"".join((memoryview(data)[dropped:], piece)) if data else piece
            base, start = base + dropped, start - dropped
            del piece
            while start < len(data):
                end = _end(data, start, base, is_last)
                if end == start:
                    break  # a line, or parts of one, that must be read further
                block = Block(data, start, end, base, number, 0, is_last, [])
                grid.take(block)
                yield block
                start, number = end, number + block.lines


@cache
def _keep_freed_memory() -> None:
    """Have what a block takes reused by the next one: the C library gives freed memory back to the kernel, and is given
    it again page by page, unless a larger piece (here one that is never written to) was freed before.
    """
    bytes(8 * BLOCK)


def _read(source: BinaryIO, wanted: int) -> bytes:
    """As many bytes as wanted, however few the source gives at once; fewer only at its end."""
    pieces = []
    while wanted > 0 and (piece := source.read(wanted)):
        pieces.append(piece)
        wanted -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _end(data: bytes, start: int, base: int, is_last: bool) -> int:
    """Where the block that begins at `start` ends; `start` itself when more must be read first."""
    limit = len(data) if is_last else len(data) - AHEAD
    if limit - start >= MAX_LINE and data.find(b"\n", start, start + MAX_LINE) < 0:
        return start + MAX_LINE
    if is_last:
        return limit
    # With a region, if one ends here: then little of the data is needed for the next block.
    border = (base + limit) // REGION * REGION - base
    for read in (border, limit):
        end = data.rfind(b"\n", start, read) + 1 if read > start else 0
        if end > start:
            return parts.cut_before_open(data, start, end, read)
    return start


class _Grid:
    """Counts the lines of block after block, and finds the regions that end in each."""

    def __init__(self) -> None:
        self._number = 0
        self._first: tuple[int, int] | None = (0, 1)
        """Stream offset and number of the first line that begins in the region; None when that is still to come."""
        self._end = 0

    @property
    def begin(self) -> int:
        """Stream offset from which the region that has not ended needs the data."""
        return self._first[0] if self._first is not None else self._end

    def take(self, block: Block) -> None:
        data, base, end = block.data, block.base, block.end
        is_end = block.is_last and end == len(data)
        position, line = block.start, block.line
        while True:
            if self._first is None:
                border = self._number * REGION - base
                first = block.start if border <= block.start else data.find(b"\n", border - 1, end - 1) + 1
                if not first:
                    break
                line, position = line + line_ends(data, position, first), first
                self._first = (base + first, line)
                self._number = max(self._number, (base + first) // REGION)
            border = (self._number + 1) * REGION - base
            is_over = is_end and end <= border
            if end < border and not is_over:
                break
            begin = self._first[0] - base
            stop = end if is_over else data.rfind(b"\n", begin, border) + 1
            if stop > begin:
                line, position = line + line_ends(data, position, stop), max(position, stop)
                block.regions.append(Region(self._number, begin, stop, self._first[1], line, is_over))
            if is_over:
                break
            self._number, self._first = self._number + 1, None
        block.lines = line + line_ends(data, position, end) - block.line
        self._end = base + end


def line_ends(data: bytes, start: int, end: int) -> int:
    """How many there are in [start, end)."""
    if end - start < 4096:
        return data.count(b"\n", start, end)
    # Up to Python 3.12 count() looks at every byte in turn; replace() goes from one to the next.
    part = data[start:end]
    return len(part) - len(part.replace(b"\n", b""))


def starts_of(data: bytes, start: int, end: int) -> list[int]:
    starts = [start]
    position = data.find(b"\n", start, end)
    while position >= 0:
        starts.append(position + 1)
        position = data.find(b"\n", position + 1, end)
    return starts


def line_at(block: Block, start: int) -> bytes:
    """The line (or the piece of a very long one) that begins at `start`, without its line end."""
    return block.data[start : line_end(block, start)]


def line_end(block: Block, start: int) -> int:
    end = block.data.find(b"\n", start, start + MAX_LINE)
    return end if end >= 0 else min(start + MAX_LINE, len(block.data))


def line_before(block: Block, start: int, low: int) -> int | None:
    """Where the line before the one at `start` begins; None when that is not behind `low`, or there is none."""
    if start <= 0:
        return None
    found = block.data.rfind(b"\n", max(low, 0), start - 1)
    if found >= 0:
        return found + 1
    return 0 if low <= 0 and block.base == 0 else None


def lines_after(block: Block, end: int, reach: int) -> Iterator[tuple[int, bytes]]:
    """(start, line) of the lines behind the line end at `end` that are whole within `reach` bytes."""
    limit, start = end + reach, end + 1
    while start < len(block.data):
        stop = block.data.find(b"\n", start, limit)
        if stop < 0:
            if block.is_last and len(block.data) < limit:
                yield start, block.data[start:]
            return
        yield start, block.data[start:stop]
        start = stop + 1


def line_numbers(data: bytes, begin: int, line: int, starts: list[int]) -> list[int]:
    """Numbers of ascending line starts, none before `begin`, where the line has the number `line`."""
    numbers = []
    for start in starts:
        line += line_ends(data, begin, start)
        begin = start
        numbers.append(line)
    return numbers


def around(block: Block, start: int) -> Around:
    """The lines before and behind the one at `start`."""
    data, first = block.data, start
    low, has_beginning = max(start - BACK, 0), start <= BACK and block.base == 0
    for _ in range(CONTEXT_LINES):
        found = data.rfind(b"\n", low, first - 1) if first > 0 else -1
        if first <= 0 or (found < 0 and not has_beginning):
            break
        first = found + 1
    end = line_end(block, start)
    last, limit, behind = end + 1, end + NEAR, end + 1
    for _ in range(CONTEXT_LINES):
        if not 0 <= end < limit or end + 1 >= len(data):
            break
        last = end + 1
        end = data.find(b"\n", last, limit)
    stop = end if end >= 0 else min(last + CONTEXT_BYTES, limit)
    return Around(
        _cut(data[first : start - 1]) if first < start else None,
        _cut(data[behind:stop]) if behind < len(data) else None,
    )


def _cut(lines: bytes) -> bytes:
    if len(lines) <= CONTEXT_LINES * CONTEXT_BYTES:
        return lines
    return b"\n".join(line[:CONTEXT_BYTES] for line in lines.split(b"\n"))


def _readable(lines: bytes | None) -> list[str]:
    return [] if lines is None else [_printable_line(raw[:CONTEXT_BYTES]) for raw in lines.split(b"\n")]


def _printable_line(raw: bytes) -> str:
    return printable(strip_ansi(raw).decode("utf-8", "replace").rstrip("\r"))
