"""Every entry of a query, page by page, in either direction: none lost, none twice.

Loki takes `start` as inclusive and gives at most `limit` entries. The next page begins at the last entry's nanosecond,
of which more entries may follow; those already had are left out by counting (labels, line and structured metadata).
A nanosecond with more entries than a page holds is asked for with a higher limit, then stream by stream from both
ends; what even that can't reach is reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator

from connectors.loki.client import BACKWARD, FORWARD, LokiClient, TooManyEntries, WindowTooLong
from connectors.loki.parser import Entry, LineWriter, LokiStream
from connectors.refusals import HttpError, Kind

PAGE = 5000
"""Entries a page: Loki's own default for the most that it gives."""
MIN_WINDOW = 10**9
MOST_AT_ONCE = 640_000
"""The highest limit that is tried for one nanosecond."""
SLOW_TRIES = 4


class Pager:
    """Pages of one query. Keeps what it learns of the server's limits for the next query."""

    def __init__(self, client: LokiClient, page: int = PAGE) -> None:
        self._client = client
        self._page = page
        self._window: int | None = None
        self.notes: list[str] = []
        """What could not be had, in words."""
        self.edge = 0
        """The nanosecond at which the page after the one given last begins."""
        self.had: Counter[Hashable] = Counter()
        """Entries at `edge` that were given already."""

    def pages(self, query: str, start: int, end: int, direction: str = FORWARD) -> Iterator[list[LokiStream]]:
        """Entries from `start` (inclusive) to `end` (exclusive, ns). In each page streams are apart and each stream's
        entries are in `direction`. Raises HttpError and ConnectorError; what was yielded before stays valid.
        """
        forward = direction == FORWARD
        edge = self.edge = start if forward else end - 1
        had = self.had = Counter()
        slow = 0
        while start <= edge < end:
            low, high = self._span(edge, start, end, forward)
            try:
                page = self._client.query_range(query, low, high, self._page, direction)
            except WindowTooLong as refused:
                slow += refused.error.kind is Kind.SLOW
                if high - low <= MIN_WINDOW or slow >= SLOW_TRIES:
                    raise refused.error from None
                says = refused.limit_ns if refused.limit_ns and refused.limit_ns < high - low else None
                self._window = max(int(says * 0.98) if says else (high - low) // 2, MIN_WINDOW)
                continue
            except TooManyEntries as refused:
                smaller = min(refused.limit or self._page // 2, self._page - 1)
                if smaller < 1:
                    raise refused.error from None
                self._page = smaller
                continue
            slow = 0
            count = _count(page)
            if count < self._page:
                fresh = without(page, edge, had)
                edge, had = self._stand(high if forward else low - 1)
                yield fresh
                continue
            last = (max if forward else min)(entry.ns for stream in page for entry in stream.values)
            if not low <= last < high:
                raise HttpError(Kind.GARBAGE, "Loki answers with entries of another time than was asked for")
            if last != edge:
                fresh = without(page, edge, had)
                edge, had = self._stand(last, _at(page, last))
                yield fresh
                continue
            here, already = edge, had
            edge, had = self._stand(edge + (1 if forward else -1))
            yield from self._one_nanosecond(query, here, direction, already)

    def _stand(self, edge: int, had: Counter[Hashable] | None = None) -> tuple[int, Counter[Hashable]]:
        self.edge, self.had = edge, Counter() if had is None else had
        return self.edge, self.had

    def _span(self, edge: int, start: int, end: int, forward: bool) -> tuple[int, int]:
        if self._window is None:
            return (edge, end) if forward else (start, edge + 1)
        return (edge, min(end, edge + self._window)) if forward else (max(start, edge + 1 - self._window), edge + 1)

    def _one_nanosecond(
        self, query: str, ns: int, direction: str, had: Counter[Hashable]
    ) -> Iterator[list[LokiStream]]:
        """All entries of a nanosecond that fills a page by itself."""
        tried, most = self._page, MOST_AT_ONCE
        while tried < most:
            limit = min(tried * 2, most)
            try:
                page = self._client.query_range(query, ns, ns + 1, limit, direction)
            except TooManyEntries as refused:
                most = min(refused.limit or tried, limit - 1)
                continue
            except WindowTooLong:
                break
            if _count(page) < limit:
                yield without(page, ns, had)
                return
            tried = limit
        yield from self._stream_by_stream(query, ns, direction, had)

    def _stream_by_stream(
        self, query: str, ns: int, direction: str, had: Counter[Hashable]
    ) -> Iterator[list[LokiStream]]:
        selector, rest = split_selector(query)
        for labels in self._client.series(selector, ns, ns + 1):
            exact = "{" + ", ".join(f"{name}={quoted(value)}" for name, value in sorted(labels.items())) + "}"
            try:
                yield from self._both_ends(exact, rest, ns, direction, had)
            except (TooManyEntries, WindowTooLong) as refused:
                self.notes.append(f"entries of {exact} at {LineWriter().stamp(ns)} are missing: {refused}")

    def _both_ends(
        self, exact: str, rest: str, ns: int, direction: str, had: Counter[Hashable]
    ) -> Iterator[list[LokiStream]]:
        """One stream's entries of a nanosecond: up to a page from either end."""
        ahead = self._client.query_range(exact + rest, ns, ns + 1, self._page, direction)
        both = _at(ahead, ns)
        yield without(ahead, ns, had)
        if _count(ahead) < self._page:
            return
        other = BACKWARD if direction == FORWARD else FORWARD
        behind = self._client.query_range(exact + rest, ns, ns + 1, self._page, other)
        fresh = without(behind, ns, both)
        if _count(fresh) == _count(behind):
            self.notes.append(
                f"more than {2 * self._page} entries of {exact} have the same time {LineWriter().stamp(ns)}: those "
                f"in the middle can not be asked for; raise max_entries_limit_per_query in Loki"
            )
        yield [LokiStream(stream.stream, stream.values[::-1]) for stream in fresh]


def _count(page: list[LokiStream]) -> int:
    return sum(len(stream.values) for stream in page)


def _key(labels: Hashable, entry: Entry) -> Hashable:
    return labels, entry.line, tuple(sorted(entry.metadata().items())) if entry.extra else ()


def _labels(stream: LokiStream) -> Hashable:
    return tuple(sorted(stream.stream.items()))


def _at(page: list[LokiStream], ns: int) -> Counter[Hashable]:
    """How often each entry stands at a nanosecond."""
    found: Counter[Hashable] = Counter()
    for stream in page:
        labels = _labels(stream)
        found.update(_key(labels, entry) for entry in stream.values if entry.ns == ns)
    return found


def without(page: list[LokiStream], ns: int, had: Counter[Hashable]) -> list[LokiStream]:
    """The page without entries at `ns` that were had, each as often as it was had. Uses `had` up."""
    if not had:
        return page
    left = []
    for stream in page:
        labels, kept = _labels(stream), []
        for entry in stream.values:
            if entry.ns == ns and had:
                key = _key(labels, entry)
                if had.get(key, 0) > 0:
                    had[key] -= 1
                    continue
            kept.append(entry)
        left.append(LokiStream(stream.stream, kept))
    return left


def split_selector(query: str) -> tuple[str, str]:
    """`{...} |= "x"` -> (`{...}`, ` |= "x"`). Raises HttpError when there is no selector."""
    start, quote, position = query.find("{"), "", 0
    position = start
    while 0 <= position < len(query):
        letter = query[position]
        if quote:
            if letter == "\\" and quote != "`":
                position += 1
            elif letter == quote:
                quote = ""
        elif letter in '"`':
            quote = letter
        elif letter == "}":
            return query[start : position + 1], query[position + 1 :]
        position += 1
    raise HttpError(Kind.REJECTED, f"{query}: has no stream selector")


def quoted(value: str) -> str:
    """As a string of LogQL."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
