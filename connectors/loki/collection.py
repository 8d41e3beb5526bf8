"""One collection from Loki: every query into the spool, streams out of it, a report for each source."""

from __future__ import annotations

import errno
import re
import time
from collections import Counter
from collections.abc import Hashable, Iterator
from functools import partial

import msgspec

from connectors.base import CollectionReport, CollectRequest, ConnectorError
from connectors.loki.client import BACKWARD, FORWARD, LokiClient
from connectors.loki.config import LokiConfig, LokiQuery
from connectors.loki.paging import Pager, split_selector, without
from connectors.loki.parser import Entry, LineWriter, LokiStream, Place, Places
from connectors.placeholders import PER_NODE, MissingValue, batches, values_of
from connectors.refusals import HttpError, Kind
from connectors.spool import Spool, Spooled
from connectors.window import NO_WINDOW, minutes, window_of
from engine.bundle import match_node, place_of
from engine.model import Source, Stream, rfc3339

HEAD_SHARE = 0.75
"""Of bytes and time for reading from the start on; when that is not enough, the rest is for the end of the window."""
SECOND = 10**9
_UNSAFE = re.compile(r"[^\w.@+-]+")


class _Tally(msgspec.Struct):
    """What one source gave so far."""

    asked: list[str] = []
    link: str = ""
    notes: list[str] = []
    answered: int = 0
    failed: int = 0
    missing: int = 0
    partial: bool = False
    streams: int = 0
    lines: int = 0
    bytes: int = 0
    first: int | None = None
    last: int | None = None
    seconds: float = 0.0

    def note(self, words: str) -> None:
        if words not in self.notes:
            self.notes.append(words)


class _Asked(msgspec.Struct, frozen=True):
    """One query as it is sent."""

    text: str
    nodes: tuple[str, ...]


class LokiCollection:
    """Streams by query; reports are complete once all streams were taken."""

    def __init__(self, config: LokiConfig, client: LokiClient, spool: Spool, request: CollectRequest) -> None:
        self._config, self._client, self._spool, self._request = config, client, spool, request
        self._attempt = request.attempt
        self._pager = Pager(client, config.page)
        self._writer = LineWriter()
        self._tallies = {query.source: _Tally() for query in config.queries}
        self._errors: list[ConnectorError] = []
        self._streams = 0
        self._names: set[str] = set()

    def streams(self) -> Iterator[Stream]:
        """One a node, pod, rank and further label of `split_by`; lines in order of time."""
        for index, query in enumerate(self._config.queries):
            began = time.monotonic()
            self._collect(query, parts=len(self._config.queries) - index)
            self._tallies[query.source].seconds += time.monotonic() - began
            mine = [(key[1], spooled) for key, spooled in self._spool.streams().items() if key[0] == index]
            yield from self._as_streams(query, sorted(mine, key=lambda pair: _place_order(pair[0])))
        self._raise_if_nothing()

    def reports(self) -> list[CollectionReport]:
        """One report a source that is configured."""
        return [self._report(source, tally) for source, tally in self._tallies.items()]

    def _collect(self, query: LokiQuery, parts: int) -> None:
        tally = self._tallies[query.source]
        window = window_of(self._attempt, query.before, query.after)
        if window is None:
            tally.missing += 1
            tally.note(NO_WINDOW)
            return
        values = values_of(self._attempt)
        try:
            asked = [
                _Asked(query.template.fill({**values, **more}), nodes)
                for nodes, more in batches(query.template, self._attempt.nodes, self._config.nodes_per_query)
            ]
        except MissingValue as missing:
            tally.missing += 1
            what = "nodes" if "node" in str(missing) else missing
            tally.note(f"not asked: the attempt has no {what}, which the query {query.template.text} needs")
            return
        if not tally.link:
            tally.link = self._config.explore.link(asked[0].text, *window)
        gathering = _Gathering(self, query, tally, int(window[0] * SECOND), int(window[1] * SECOND))
        for index, one in enumerate(asked):
            if index < 3:
                tally.asked.append(one.text)
            gathering.run(one, share=1 / (parts - 1 + len(asked) - index))
            if gathering.hopeless:
                break
        if len(asked) > 3:
            tally.asked.append(f"... and {len(asked) - 3} more for the other nodes")
        if gathering.entries == 0 and not gathering.failed:
            tally.note(self._why_empty(asked[0].text, window))
        silent = [node for node in self._attempt.nodes if node not in gathering.nodes]
        if gathering.nodes and silent and not gathering.failed and query.template.names & PER_NODE:
            names = ", ".join(silent[:10]) + (", ..." if len(silent) > 10 else "")
            tally.note(f"no {query.source} lines from {names} ({len(silent)} of {len(self._attempt.nodes)} nodes)")

    def _why_empty(self, query: str, window: tuple[float, float]) -> str:
        """What to check when Loki answered with nothing."""
        where = f"between {minutes(window[0])} and {minutes(window[1])}"
        words = f"Loki answers, but no line matches {_cut(query)} {where}"
        try:
            there = self._client.labels(int(window[0] * SECOND), int(window[1] * SECOND))
        except ConnectorError:
            return words
        asked = re.findall(r"([A-Za-z_]\w*)\s*(?:=~|!~|!=|=)\s*[\"`]", split_selector(query)[0])
        unknown = [label for label in asked if label not in there]
        if not there:
            return f"{words}: it has no lines at all of that time; check tenant and retention"
        if unknown:
            return f"{words}: no label is called {unknown[0]}; there are {', '.join(sorted(there)[:20])}"
        return f"{words}: check the values of its labels, or whether logs of that time are kept"

    def _as_streams(self, query: LokiQuery, mine: list[tuple[Place, Spooled]]) -> Iterator[Stream]:
        tally = self._tallies[query.source]
        for place, spooled in mine:
            if self._streams >= self._request.limits.streams:
                tally.partial = True
                tally.note(f"more than {self._request.limits.streams} streams: the rest was left out")
                return
            self._streams += 1
            tally.streams += 1
            tally.lines += spooled.lines
            tally.bytes += spooled.size
            name, source = self._name(query, place), Source(query.source)
            yield Stream(
                name=name,
                source=source,
                open=partial(self._spool.open, spooled),
                size=spooled.size,
                node=place.node or match_node(name, self._attempt.nodes),
                rank=place_of(name, source, ())[1] if place.rank is None and source is Source.APPLOG else place.rank,
            )

    def _name(self, query: LokiQuery, place: Place) -> str:
        parts = [self._config.name, query.name, place.node or "", place.pod or "", *place.parts]
        if place.rank is not None:
            parts.append(f"rank{place.rank}")
        safe = [_UNSAFE.sub("_", part).strip("._")[:120] for part in parts]
        if not any(safe[2:]):
            safe.append("all")
        stem = name = f"{query.source}/" + "/".join(part for part in safe if part)
        count = 1
        while name in self._names:
            count += 1
            name = f"{stem}-{count}"
        self._names.add(name)
        return f"{name}.log"

    def _raise_if_nothing(self) -> None:
        """A Loki that failed altogether, and may be better later, is asked again later."""
        temporary = [error for error in self._errors if error.temporary]
        if temporary and not any(tally.answered or tally.lines for tally in self._tallies.values()):
            raise ConnectorError(str(temporary[0]), temporary=True)

    def _report(self, source: str, tally: _Tally) -> CollectionReport:
        if tally.lines:
            status = "partial" if tally.partial or tally.failed else "ok"
        elif tally.failed:
            status = "error"
        elif tally.answered:
            status = "partial" if tally.partial else "empty"
        else:
            status = "missing"
        return CollectionReport(
            source=source,
            status=status,
            note="; ".join([*tally.notes, *(f"Loki warns: {words}" for words in self._client.warnings)]),
            streams=tally.streams,
            lines=tally.lines,
            bytes=tally.bytes,
            first_at=None if tally.first is None else rfc3339(tally.first / SECOND),
            last_at=None if tally.last is None else rfc3339(tally.last / SECOND),
            connector=self._config.name,
            duration_s=round(tally.seconds, 3),
            failed=bool(tally.failed),
            query="\n".join(_cut(asked, 2000) for asked in tally.asked),
            link=tally.link,
        )


class _Gathering:
    """The batches of one query, into the spool."""

    def __init__(self, parent: LokiCollection, query: LokiQuery, tally: _Tally, start: int, end: int) -> None:
        self._parent, self._query, self._tally = parent, query, tally
        self._index = parent._config.queries.index(query)
        self._start, self._end = start, end
        self._places = Places(parent._attempt.nodes, query.split_by)
        self.entries = 0
        self.nodes: set[str] = set()
        """Nodes that gave lines."""
        self.failed = False
        self.hopeless = False
        """Asking for further batches is of no use."""

    def run(self, asked: _Asked, share: float) -> None:
        """Reads one query from the start, and what does not fit into its share from the end."""
        parent = self._parent
        limits, spool = parent._request.limits, parent._spool
        room = (limits.bytes - spool.size) * share
        head_bytes, all_bytes = spool.size + room * HEAD_SHARE, spool.size + room
        total = parent._client.deadline
        mine = total.part(share)
        parent._client.deadline = mine
        pager = parent._pager
        try:
            self._read(asked, FORWARD, self._start, head_bytes, mine.seconds * (1 - HEAD_SHARE))
            if pager.edge < self._end:
                gap, had = pager.edge, pager.had
                self._read(asked, BACKWARD, gap, all_bytes, 0.0, had)
                if pager.edge >= gap:
                    self._tell_gap(gap, pager.edge)
            self._tally.answered += 1
        except ConnectorError as error:
            self._failed(error)
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            hint = "is full: make room or set spool_dir" if full else f"can not be written: {error.strerror}"
            self._failed(ConnectorError(f"the folder for temporary files {hint}", temporary=full))
            self.hopeless = True
        finally:
            parent._client.deadline = total
            for words in parent._pager.notes:
                self._tally.partial = True
                self._tally.note(words)
            parent._pager.notes.clear()

    def _read(
        self,
        asked: _Asked,
        direction: str,
        start: int,
        until_bytes: float,
        spare: float,
        had: Counter[Hashable] | None = None,
    ) -> None:
        """Reads until all is read, or the bytes, or all but `spare` seconds, are used up. `had`: entries at `start`
        that are kept already.
        """
        parent = self._parent
        for page in parent._pager.pages(asked.text, start, self._end, direction):
            self._keep(without(page, start, had) if had else page, direction == BACKWARD)
            if parent._spool.size >= until_bytes or parent._client.deadline.left() <= spare:
                return

    def _keep(self, page: list[LokiStream], tail: bool) -> None:
        """A page into the spool: for each stream its entries in order of time."""
        grouped: dict[Place, list[tuple[int, str, str]]] = {}
        mixed: set[Place] = set()
        for stream in page:
            channel = "stderr" if stream.stream.get("stream") == "stderr" else "stdout"
            for place, entries in self._apart(stream).items():
                if tail:
                    entries.reverse()
                if place in grouped:
                    mixed.add(place)
                grouped.setdefault(place, []).extend((entry.ns, entry.line, channel) for entry in entries)
        for place, lines in grouped.items():
            if place in mixed:
                lines.sort(key=lambda line: line[0])
            self._write(place, lines, tail)

    def _apart(self, stream: LokiStream) -> dict[Place, list[Entry]]:
        """A Loki stream's entries by place: one, unless their structured metadata tell of several."""
        labels, relevant = stream.stream, self._places.relevant
        own = self._places.of(labels)
        found: dict[Place, list[Entry]] = {}
        for entry in stream.values:
            metadata = entry.metadata() if entry.extra else {}
            place = own if relevant.isdisjoint(metadata) else self._places.of({**labels, **metadata})
            found.setdefault(place, []).append(entry)
        return found

    def _write(self, place: Place, entries: list[tuple[int, str, str]], tail: bool) -> None:
        write = self._parent._writer.lines
        content = "".join([write(*entry) for entry in entries]).encode("utf-8", "replace")
        key = (self._index, place)
        self._parent._spool.add(key, content, lines=content.count(b"\n"), tail=tail)
        first, last = entries[0][0], entries[-1][0]
        tally = self._tally
        tally.first = first if tally.first is None else min(tally.first, first)
        tally.last = last if tally.last is None else max(tally.last, last)
        self.entries += len(entries)
        if place.node:
            self.nodes.add(place.node)

    def _tell_gap(self, start: int, end: int) -> None:
        self._tally.partial = True
        limits, deadline = self._parent._request.limits, self._parent._client.deadline
        why = "the time limit" if deadline.left() <= 0 else f"the limit of {limits.bytes} bytes"
        if deadline.stopped():
            why = "being stopped"
        self._tally.note(
            f"lines from {minutes(start / SECOND)} to {minutes(end / SECOND)} are left out for {why}; "
            "those before and after it are there"
        )

    def _failed(self, error: ConnectorError) -> None:
        self.failed = True
        self._tally.failed += 1
        words = str(error)
        if self.entries and isinstance(error, HttpError) and error.kind in (Kind.OVER, Kind.STOPPED):
            words = f"{words}: lines after {minutes(self._parent._pager.edge / SECOND)} are missing"
        self._tally.note(words)
        self._parent._errors.append(error)
        kinds = (Kind.DOWN, Kind.DENIED, Kind.TLS, Kind.ELSEWHERE, Kind.GARBAGE, Kind.STOPPED)
        self.hopeless = not isinstance(error, HttpError) or error.kind in kinds


def _place_order(place: Place) -> tuple[str, str, int, tuple[str, ...]]:
    return (place.node or "", place.pod or "", -1 if place.rank is None else place.rank, place.parts)


def _cut(text: str, most: int = 300) -> str:
    return text if len(text) <= most else f"{text[:most]}... [{len(text) - most} more characters]"
