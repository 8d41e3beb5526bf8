"""Long lines that a container runtime wrote in parts: ``<time> stderr P first``, ``<time> stderr F rest``.

A part is at most 16 KB, so a message may lie across two of them, and a line of the other stream may stand between.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from engine.database import Database

_PART = re.compile(rb"\d{4}-\d\d-\d\dT[\d:.]{8,18}(?:Z|[+-]\d\d:\d\d) (stdout|stderr) ([FP])(?: |$)")
_MARK = r"\x20P\x20"
FORMS = (r"stdout\x20P\x20", r"stderr\x20P\x20")
"""For the scanner: what stands in every part but the last of a line."""
LONGEST = 2 << 20
"""Bytes of one line that are put together; what comes behind them is a line of its own."""
GAP, SPAN = 64 << 10, 4 << 20
"""Bytes from one part of a line to the next, and from its first part to its last: what comes later is not its rest."""


class _Chain:
    """The parts of one line that were met so far."""

    def __init__(self, start: int, end: int) -> None:
        self.spans = [(start, end)]
        """Of its parts; those behind the first without their envelopes."""
        self.begin, self.last, self.size = start, start, end - start
        self.is_over = False

    def add(self, begin: int, start: int, end: int) -> None:
        self.spans.append((start, end))
        self.last, self.size = begin, self.size + end - start

    def may_go_on(self, at: int) -> bool:
        """Can a part that begins at `at` be the line's next one?"""
        near = at - self.last <= GAP and at - self.begin <= SPAN
        return near and self.size < LONGEST and not self.is_over


def _chains(data: bytes, start: int, end: int) -> Iterator[_Chain]:
    """Every line in [start, end) that was written in parts."""
    open_: dict[bytes, _Chain] = {}
    while start < end:
        if not open_:
            first = data.find(b" P ", start, end)
            if first < 0:
                return
            start = max(data.rfind(b"\n", start, first) + 1, start)
        stop = data.find(b"\n", start, end)
        stop = stop if stop >= 0 else end
        for name in [name for name, chain in open_.items() if not chain.may_go_on(start)]:
            open_[name].is_over = True
            yield open_.pop(name)
        found = _PART.match(data, start, stop)
        if found:
            chain = open_.get(found[1])
            if chain is not None:
                chain.add(start, found.end(), stop)
                if found[2] == b"F":
                    chain.is_over = True
                    yield open_.pop(found[1])
            elif found[2] == b"P":
                open_[found[1]] = _Chain(start, stop)
        start = stop + 1
    yield from open_.values()


def join(data: bytes) -> bytes:
    """Every line whole where its first part stands, and an empty line for each further part."""
    places: dict[int, bytes] = {}
    """Where a line begins -> what stands there instead."""
    for chain in _chains(data, 0, len(data)):
        places[chain.begin] = b"".join(data[a:b] for a, b in chain.spans)
        for a, _ in chain.spans[1:]:
            places[data.rfind(b"\n", 0, a) + 1] = b""
    out, position = [], 0
    for begin in sorted(places):
        out += [data[position:begin], places[begin]]
        stop = data.find(b"\n", begin)
        position = stop if stop >= 0 else len(data)
    return b"".join((*out, data[position:]))


def whole(data: bytes, start: int, end: int) -> bytes:
    """The line that begins at `start`, with its further parts up to `end`; as it is when it has none."""
    stop = data.find(b"\n", start, end)
    line = data[start : stop if stop >= 0 else end]
    found = _PART.match(line)
    if not found or found[2] == b"F":
        return line
    chain = next(chain for chain in _chains(data, start, end) if chain.begin == start)
    return b"".join(data[a:b] for a, b in chain.spans)


def cut_before_open(data: bytes, start: int, end: int, read: int) -> int:
    """A place in [start, end] where no line is between two of its parts; `start` is one, `end` behind a line end, and
    behind `read` the next line ends.
    """
    if not _marks().found_in(memoryview(data)[max(end - GAP, start) : end]):
        return end
    following = end if read - end <= SPAN and _PART.match(data, end) else read
    return min((chain.begin for chain in _chains(data, start, end) if chain.may_go_on(following)), default=end)


@cache
def _marks() -> Database:
    return Database([(_MARK, 0)], once_each=True)
