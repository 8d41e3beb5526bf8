"""The bytes of a log as the scanner reads them: the same lines without colours, NUL bytes and JSON's escapes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property

from engine import parts
from engine.blocks import starts_of
from engine.database import Bytes, Database
from engine.lines import strip_ansi

SLICE = 64 << 10
"""Bytes that are looked through for triggers at once; only lines with one are scanned with all patterns."""
MOST_TOLD = 32
"""Triggers in a slice from which on it is scanned as a whole."""
SHORT_GAP = 200
"""Bytes between two lines with triggers up to which they are scanned together."""

_ODDITIES = (b"\x00", b"\x1b", b"\\")
"""What only lines hold of which the scanner may read others; `find` passes over the rest faster than the scanner."""

Span = tuple[int, int]
"""Where some lines begin and end in the bytes of a slice."""


class Slice:
    """Some whole lines of a block."""

    def __init__(self, data: bytes, start: int, end: int, cleaned: bytes | None) -> None:
        self._data, self._start, self._end = data, start, end
        self._cleaned = cleaned
        self.text: Bytes = memoryview(data)[start:end] if cleaned is None else cleaned
        self._lines = (data, start, end) if cleaned is None else (cleaned, 0, len(cleaned))
        """Bytes and which of them are the text."""

    @classmethod
    def joined(cls, data: bytes, start: int, end: int) -> Slice:
        """With the parts of lines put together."""
        return cls(data, start, end, _flat(parts.join(_plain(data[start:end]))))

    def lines_with(self, triggers: Database) -> list[Span]:
        """The parts of the text whose lines hold a match; all of it where many do."""
        ends: set[int] = set()

        def on_match(_number: int, _from: int, end: int, *_: object) -> bool:
            ends.add(end)
            return len(ends) > MOST_TOLD

        triggers.scan(self.text, on_match)
        if not ends:
            return []
        lines, first, last = self._lines
        if len(ends) > MOST_TOLD:
            return [(first, last)]
        spans: list[Span] = []
        for end in sorted(ends):
            end += first
            if spans and end <= spans[-1][1]:
                continue
            begin = max(lines.rfind(b"\n", first, end - 1) + 1, first)
            stop = lines.find(b"\n", end, last)
            if spans and begin - spans[-1][1] < SHORT_GAP:
                begin = spans.pop()[0]
            spans.append((begin, stop if stop >= 0 else last))
        return spans

    def matches(self, database: Database, spans: Sequence[Span] | None = None) -> Iterator[tuple[int, int, int]]:
        """Where in the block a line begins, the number of a pattern that matches in it, and where in the line the last
        match ends. `spans`: the lines that are looked through, as `lines_with` tells them.
        """
        lines, first, last = self._lines
        found: dict[tuple[int, int], int] = {}
        lines_of: dict[int, Span] = {}
        """Number of a pattern -> the line that it matched last."""
        shift = first

        def on_match(number: int, _from: int, end: int, *_: object) -> None:
            end += shift
            begin, stop = lines_of.get(number, (end, end))
            if not begin < end <= stop:
                begin = max(lines.rfind(b"\n", first, end - 1) + 1, first)
                stop = lines.find(b"\n", end, last)
                lines_of[number] = begin, stop if stop >= 0 else last
            found[begin, number] = end - begin

        whole = memoryview(lines)
        for shift, until in [(first, last)] if spans is None else spans:
            database.scan(whole[shift:until], on_match)
        for (begin, number), end in found.items():
            yield self.place(begin - first), number, end

    def first_matches(self, database: Database, limit: int) -> set[tuple[int, int, int]]:
        """Where in the block a line begins, where a match in it ends, the pattern's number; up to a number of them."""
        ends: set[tuple[int, int]] = set()

        def on_match(number: int, _from: int, end: int, *_: object) -> bool:
            ends.add((end, number))
            return len(ends) >= limit

        database.scan(self.text, on_match)
        lines, first, _ = self._lines
        return {
            (self.place(max(lines.rfind(b"\n", first, first + end - 1) + 1, first) - first), self._start + end, number)
            for end, number in ends
        }

    def place(self, begin: int) -> int:
        """Where in the block the line begins that begins at `begin` of the text."""
        if self._cleaned is None:
            return self._start + begin
        raw, cleaned = self._starts
        return raw[min(bisect_right(cleaned, begin) - 1, len(raw) - 1)]

    @cached_property
    def _starts(self) -> tuple[list[int], list[int]]:
        """Line starts of the block's bytes and of the cleaned ones, which have the same lines."""
        return starts_of(self._data, self._start, self._end), starts_of(self._cleaned or b"", 0, len(self.text))


def slices(data: bytes, start: int, end: int, size: int = SLICE) -> Iterator[Slice]:
    """The lines of [start, end), some at a time, without colours, NUL bytes and JSON's escapes."""
    while start < end:
        stop = data.rfind(b"\n", start, min(start + size, end)) + 1 if end - start > size else end
        if not stop:
            stop = data.find(b"\n", start + size, end) + 1 or end
        cleaned = None
        if any(data.find(odd, start, stop) >= 0 for odd in _ODDITIES):
            raw = data[start:stop]
            cleaned = _flat(_plain(raw))
            cleaned = None if cleaned == raw else cleaned
        yield Slice(data, start, stop, cleaned)
        start = stop


def _plain(raw: bytes) -> bytes:
    return strip_ansi(raw).replace(b"\x00", b"")


def _flat(text: bytes) -> bytes:
    """JSON lines with their messages unescaped, each still on one line."""
    out, position = [], 0
    at = text.find(b"\\")
    while at >= 0:
        begin, end = text.rfind(b"\n", 0, at) + 1, text.find(b"\n", at)
        end = end if end >= 0 else len(text)
        line = text[begin:end]
        if b'{"' in line:
            out += [text[position:begin], _unescaped(line)]
            position = end
        at = text.find(b"\\", end)
    return b"".join((*out, text[position:])) if out else text


def _unescaped(line: bytes) -> bytes:
    return (
        line.replace(b"\\n", b" ")
        .replace(b'\\"', b'"')
        .replace(b"\\t", b" ")
        .replace(b"\\/", b"/")
        .replace(b"\\u003c", b"<")
        .replace(b"\\u003e", b">")
    )
