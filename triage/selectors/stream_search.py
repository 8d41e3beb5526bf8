"""Search inside a stream: plain words or a regex, over every byte of it, in linear time and bounded memory.

The engine's scanner (hyperscan) runs over the stored frames. A regex that it can't run in linear time is refused with
the reason. A search that takes too long or finds too much stops, says where, and can be taken up again from there.
"""

from __future__ import annotations

import re
import time
from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Any

import hyperscan
from django.core.cache import cache

from engine.lines import strip_ansi
from engine.patterns import PatternError, to_search
from triage.blobs import BlobReader
from triage.models import Stream
from triage.selectors.streams import opened

MAX_PATTERN = 400
"""Characters of what is searched for."""
MAX_LINES = 100_000
"""Matching lines after which a search stops."""
MAX_SECONDS = 5.0
MAX_LINE = 8 << 20
"""A longer line is searched in pieces of this size that overlap."""
OVERLAP = 64 << 10
KEPT_SECONDS = 600
KEPT_LINES = 20_000
"""Results with more lines are not kept for the next page."""


class SearchRefused(ValueError):
    """What can't be searched for; one sentence that says why."""


@dataclass(frozen=True)
class Query:
    """What to search for. Without `case`, ASCII letters match in either case."""

    text: str
    regex: bool = False
    case: bool = False

    @property
    def pattern(self) -> str:
        """The scanner's form. Raises SearchRefused."""
        if len(self.text) > MAX_PATTERN:
            raise SearchRefused(f"It is longer than {MAX_PATTERN} characters.")
        if not self.regex:
            return "".join(f"\\x{byte:02x}" for byte in self.text.encode("utf-8", "surrogatepass"))
        try:
            return to_search(self.text)
        except PatternError as error:
            raise SearchRefused(f"This regex {error}." if str(error)[:4] != "not " else f"It is {error}.") from None

    @property
    def flags(self) -> int:
        return int(hyperscan.HS_FLAG_MULTILINE | (0 if self.case else hyperscan.HS_FLAG_CASELESS))

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where it matches in a shown line, from the left, the longest of each; empty where that can't be told."""
        if not self.regex:
            found = re.finditer(re.escape(self.text), text, 0 if self.case else re.IGNORECASE | re.ASCII)
            return [match.span() for match in found]
        database = _database(self.pattern, self.flags | int(hyperscan.HS_FLAG_SOM_LEFTMOST))
        if database is None:
            return []
        raw = text.encode("utf-8", "surrogatepass")
        ends: dict[int, int] = {}

        def on_match(_: int, start: int, end: int, *__: Any) -> bool | None:
            ends[start] = max(end, ends.get(start, 0))
            return True if len(ends) > 500 else None

        _scan(database, raw, on_match)
        spans, last = [], 0
        for start, end in sorted(ends.items()):
            if start >= last:
                spans.append((len(raw[:start].decode("utf-8", "ignore")), len(raw[:end].decode("utf-8", "ignore"))))
                last = end
        return spans

    def first_end(self, raw: bytes) -> int | None:
        """The byte after the first match in a line; None when there is none."""
        ends: list[int] = []

        def on_match(_: int, __: int, end: int, *___: Any) -> bool:
            ends.append(end)
            return True

        _scan(self.database, raw, on_match)
        return ends[0] if ends else None

    @property
    def database(self) -> Any:
        """The compiled scanner. Raises SearchRefused."""
        pattern = self.pattern
        database = _database(pattern, self.flags)
        if database is None:
            raise SearchRefused("This regex is too large to run in linear time: its counted repeats multiply.")
        return database


@dataclass(frozen=True)
class Findings:
    """The lines of a stream that match, as far as it was searched."""

    lines: array[int]
    """Numbers, ascending."""
    since: int
    """The line with which the search began."""
    searched: int
    """The last line that was searched."""
    total: int
    """Lines of the stream."""
    stopped: str = ""
    """Why it ended before the end of the stream: `time` or `lines`; empty when it didn't."""

    @property
    def count(self) -> int:
        return len(self.lines)

    @property
    def complete(self) -> bool:
        return not self.stopped and self.since <= 1

    def place(self, line: int) -> int | None:
        """Which match this line is, from 1."""
        at = bisect_left(self.lines, line)
        return at + 1 if at < len(self.lines) and self.lines[at] == line else None

    def at_or_after(self, line: int) -> int | None:
        """The first matching line from here on, else the very first."""
        at = bisect_left(self.lines, line)
        return self.lines[at] if at < len(self.lines) else self.lines[0] if self.lines else None

    def next(self, line: int) -> int | None:
        at = bisect_right(self.lines, line)
        return self.lines[at] if at < len(self.lines) else None

    def previous(self, line: int) -> int | None:
        at = bisect_left(self.lines, line)
        return self.lines[at - 1] if at else None

    def among(self, first: int, last: int) -> set[int]:
        return set(self.lines[bisect_left(self.lines, first) : bisect_right(self.lines, last)])


def search(
    stream: Stream, query: Query, *, since: int = 1, seconds: float = MAX_SECONDS, most: int = MAX_LINES
) -> Findings:
    """Search from line `since` to the end. Raises SearchRefused and StreamGone."""
    database = query.database
    key = "search:" + sha256(f"{stream.blob}\0{query.pattern}\0{query.flags}\0{since}".encode()).hexdigest()
    kept = cache.get(key)
    if kept is not None:
        return Findings(*kept)
    with opened(stream) as reader:
        found = _Pass(reader, database, max(1, min(since, reader.lines)), most).run(time.monotonic() + seconds)
    if found.stopped != "time" and found.count <= KEPT_LINES:
        cache.set(key, (found.lines, found.since, found.searched, found.total, found.stopped), KEPT_SECONDS)
    return found


@lru_cache(maxsize=64)
def _database(pattern: str, flags: int) -> Any:
    """A compiled pattern; None when the scanner refuses it as too large. Raises SearchRefused for other refusals."""
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    try:
        database.compile(expressions=[pattern.encode()], ids=[0], flags=[flags])
    except hyperscan.error as error:
        if "too large" in str(error).lower():
            return None
        raise SearchRefused(f"The scanner refuses this regex: {str(error)[:200]}") from None
    return database


def _scan(database: Any, data: bytes, on_match: Any) -> bool:
    """Whether the whole of `data` was scanned. Each scan has its own scratch, because pages run in threads."""
    scratch = hyperscan.Scratch(database)
    try:
        database.scan(data, match_event_handler=on_match, scratch=scratch)
    except hyperscan.ScanTerminated:
        return False
    return True


class _Pass:
    """One pass over a stream, from a line to its end."""

    def __init__(self, reader: BlobReader, database: Any, since: int, most: int) -> None:
        self._reader, self._database, self._most = reader, database, most
        self._since = self._line = since
        """Number of the line that the next piece begins with."""
        self._lines: array[int] = array("Q")

    def run(self, deadline: float) -> Findings:
        offset, rest = self._reader.line_start(self._since), b""
        while offset < self._reader.size:
            if time.monotonic() > deadline:
                return self._end("time", self._line - 1)
            piece = self._reader.piece_at(offset)
            offset += len(piece)
            data = rest + piece if rest else piece
            cut = data.rfind(b"\n") + 1
            if not cut and len(data) < MAX_LINE and offset < self._reader.size:
                rest = data  # a line longer than a frame: all of it at once
                continue
            if cut and offset < self._reader.size:
                data, rest = data[:cut], data[cut:]
            else:
                rest = data[-OVERLAP:] if offset < self._reader.size else b""
            if not self._piece(data):
                return self._end("lines", self._lines[-1])
            self._line += data.count(b"\n")
        return self._end("", self._reader.lines)

    def _end(self, why: str, searched: int) -> Findings:
        return Findings(self._lines, self._since, searched, self._reader.lines, why)

    def _piece(self, data: bytes) -> bool:
        if b"\x1b" in data:
            data = strip_ansi(data)  # keeps line ends; what is searched is what is shown
        counted, line, until = 0, self._line, -1
        lines, most = self._lines, self._most

        def on_match(_: int, __: int, end: int, *___: Any) -> bool | None:
            nonlocal counted, line, until
            at = end - 1
            if at < until:
                return None  # this line is known already
            line += data.count(b"\n", counted, at)
            counted = at
            until = data.find(b"\n", at)
            until = len(data) if until < 0 else until
            if not lines or lines[-1] != line:
                lines.append(line)
            return True if len(lines) >= most else None

        return _scan(self._database, data, on_match)
