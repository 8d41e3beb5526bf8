"""A stream as blocks that end at a line end, each with what stands before and behind it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import BinaryIO

import msgspec

from engine import parts
from engine.lines import printable, strip_ansi
from engine.model import Stream

BLOCK = 1 << 20
KEEP_TAIL = 32 << 10
"""Bytes of the block before that stay at hand, for context and inherited time stamps."""
LOOK_AHEAD = 128 << 10
MAX_LINE = 8 << 20
"""A longer line is cut into pieces of this size."""
CONTEXT_LINES = 3


class Block(msgspec.Struct):
    """Bytes `data`; only [start, end) are to be scanned, the rest is context on both sides."""

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


def _read(source: BinaryIO) -> bytes:
    """A full block, however little the source gives at once, so that blocks don't depend on the reader."""
    pieces, wanted = [], BLOCK
    while wanted > 0 and (piece := source.read(wanted)):
        pieces.append(piece)
        wanted -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def blocks(stream: Stream) -> Iterator[Block]:
    """Blocks that end at a line end, each with what stands before and behind it."""
    with stream.open() as source:
        tail, rest, offset, number = b"", b"", 0, 1
        pending = _read(source)
        while pending or rest:
            current = rest + pending
            pending = _read(source) if pending else b""
            rest = b""
            if pending:
                cut = parts.cut_before_open(current, current.rfind(b"\n") + 1)
                if cut == 0 and len(current) < MAX_LINE:
                    rest = current
                    continue
                cut = cut or len(current)
                current, rest = current[:cut], current[cut:]
            ahead = (rest + pending)[:LOOK_AHEAD]
            lines = current.count(b"\n")
            data = b"".join((tail, current, ahead))
            yield Block(data, len(tail), len(tail) + len(current), offset - len(tail), number, lines, not pending)
            number += lines
            offset += len(current)
            tail = current[-KEEP_TAIL:] if len(current) >= KEEP_TAIL else (tail + current)[-KEEP_TAIL:]
            tail = tail[tail.find(b"\n") + 1 :] if len(tail) == KEEP_TAIL else tail


def starts_of(data: bytes, start: int, end: int) -> list[int]:
    starts = [start]
    position = data.find(b"\n", start, end)
    while position >= 0:
        starts.append(position + 1)
        position = data.find(b"\n", position + 1, end)
    return starts


def line_at(block: Block, start: int) -> bytes:
    end = block.data.find(b"\n", start)
    return block.data[start : end if end >= 0 else len(block.data)]


def line_numbers(block: Block, starts: list[int]) -> list[int]:
    """Line numbers of ascending line starts of the block."""
    if not starts:
        return []
    numbers = [block.line + block.data.count(b"\n", block.start, starts[0])]
    for before, start in pairwise(starts):
        numbers.append(numbers[-1] + block.data.count(b"\n", before, start))
    return numbers


def context(block: Block, start: int) -> tuple[list[str], list[str]]:
    before: list[str] = []
    position = start
    for _ in range(CONTEXT_LINES):
        if position <= 0:
            break
        position = block.data.rfind(b"\n", 0, position - 1) + 1
        before.insert(0, _printable_line(line_at(block, position)))
    after: list[str] = []
    position = start
    for _ in range(CONTEXT_LINES):
        position = block.data.find(b"\n", position) + 1
        if position == 0 or position >= len(block.data):
            break
        after.append(_printable_line(line_at(block, position)))
    return before, after


def _printable_line(raw: bytes) -> str:
    return printable(strip_ansi(raw[:4096]).decode("utf-8", "replace").rstrip("\r"))
