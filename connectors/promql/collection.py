"""One collection of metrics: every query of the pack into the spool, one Prometheus JSON document each, one report."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from connectors.base import CollectionReport, CollectRequest, ConnectorError
from connectors.placeholders import MissingValue, batches, values_of
from connectors.promql.client import PromClient, TooMuch
from connectors.promql.config import PromConfig
from connectors.promql.pack import PackQuery
from connectors.promql.parser import Result, Samples, samples_of
from connectors.promql.steps import chunks, plan
from connectors.refusals import HttpError, Kind
from connectors.spool import Spool, Spooled
from connectors.window import NO_WINDOW, minutes, window_of
from engine.model import Source, Stream, rfc3339

_HOPELESS = (Kind.DOWN, Kind.DENIED, Kind.TLS, Kind.ELSEWHERE, Kind.GARBAGE, Kind.STOPPED)
_QUERIES_SHOWN = 60


class PromCollection:
    """Streams by query; the report is complete once all streams were taken."""

    def __init__(self, config: PromConfig, client: PromClient, spool: Spool, request: CollectRequest) -> None:
        self._config, self._client, self._spool, self._request = config, client, spool, request
        self._began = time.monotonic()
        self._taken = 0.0
        self._window = window_of(request.attempt, config.before, config.after)
        self._asked: list[str] = []
        self._link = ""
        self._notes: list[str] = []
        self._errors: list[ConnectorError] = []
        self._empty: list[str] = []
        self._missing: dict[str, list[str]] = {}
        self._steps: set[int] = set()
        self._streams = self._samples = self._bytes = self._answered = 0
        self._first: float | None = None
        self._last: float | None = None
        self._cut = ""
        """Why something was left out."""

    def streams(self) -> Iterator[Stream]:
        """metrics/<query>.json, for queries that found something."""
        if self._window is None:
            return
        queries = self._config.queries
        for index, query in enumerate(queries):
            self._cut = self._over()
            if self._cut:
                self._note(f"{self._cut}: not asked: {', '.join(left.name for left in queries[index:])}")
                break
            began = time.monotonic()
            hopeless = self._collect(query, len(queries) - index)
            self._taken += time.monotonic() - began
            yield from self._as_stream(query)
            if hopeless:
                break
        temporary = [error for error in self._errors if error.temporary]
        if temporary and not self._answered:
            raise ConnectorError(str(temporary[0]), temporary=True)

    def reports(self) -> list[CollectionReport]:
        """One, for metrics."""
        failed = bool(self._errors) or self._client.partial or bool(self._client.warnings) or bool(self._cut)
        if self._streams:
            status = "partial" if failed else "ok"
        elif self._errors:
            status = "error"
        else:
            status = "empty" if self._answered else "missing"
        return [
            CollectionReport(
                source=Source.METRIC.value,
                status=status,
                note="; ".join(self._words()),
                streams=self._streams,
                lines=self._samples,
                bytes=self._bytes,
                first_at=rfc3339(self._first),
                last_at=rfc3339(self._last),
                connector=self._config.name,
                duration_s=round(self._taken, 3),
                failed=bool(self._errors) or self._client.partial,
                query="\n".join(self._asked[:_QUERIES_SHOWN]),
                link=self._link,
            )
        ]

    def _words(self) -> Iterator[str]:
        if self._window is None:
            yield NO_WINDOW
            return
        yield from self._notes
        if self._client.partial:
            yield "the server says that its answers are partial: some of its storage is not available"
        for words in self._client.warnings:
            yield f"the server warns: {words}"
        for name, queries in self._missing.items():
            yield f"not asked, because the attempt has no {name}: {', '.join(queries)}"
        if self._empty and not self._streams:
            start, end = self._window
            yield (
                f"the server answers, but has no series of these nodes between {minutes(start)} and {minutes(end)}: "
                "check matchers (how exporters name a node), selector, and how long metrics are kept"
            )
        elif self._empty:
            yield f"no series for {', '.join(self._empty)}"
        for words in self._client.infos[:5]:
            yield f"the server remarks: {words}"
        if self._steps and (max(self._steps) > self._config.resolution or len(self._steps) > 1):
            yield f"asked every {' and '.join(f'{step} s' for step in sorted(self._steps))}"

    def _over(self) -> str:
        limits, deadline = self._request.limits, self._client.deadline
        if self._streams >= limits.streams:
            return f"more than {limits.streams} streams"
        if self._spool.size >= limits.bytes:
            return f"more than {limits.bytes} bytes"
        if deadline.stopped():
            return "stopped before it was finished"
        return f"the time limit of {deadline.whole:.0f} s was reached" if deadline.left() <= 0 else ""

    def _collect(self, query: PackQuery, left: int) -> bool:
        """Asks one query into the spool. Whether asking anything further is of no use."""
        assert self._window is not None
        start, end = self._window
        values = values_of(self._request.attempt)
        try:
            asked = [
                query.template.fill({**values, **more}).replace("{window}", f"{int(end - start)}s")
                for _, more in batches(query.template, self._request.attempt.nodes, self._config.nodes_per_query)
            ]
        except MissingValue as missing:
            name = "nodes" if "node" in str(missing) else str(missing)
            self._missing.setdefault(name, []).append(query.name)
            return False
        self._asked.append(f"{query.name}: {_cut(asked[0])}" + (f" and {len(asked) - 1} more" if asked[1:] else ""))
        self._link = self._link or self._config.explore.link(asked[0], start, end)
        whole = self._client.deadline
        self._client.deadline = whole.part(1 / left)
        before = self._spool.size
        try:
            for text in asked:
                self._ask(query, text, self._config.samples_per_query // len(asked))
            self._answered += 1
            if self._spool.size == before:
                self._empty.append(query.name)
            return False
        except TooMuch as refused:
            return self._failed(query, refused.error)
        except ConnectorError as error:
            return self._failed(query, error)
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            hint = "is full: make room or set spool_dir" if full else f"can not be written: {error.strerror}"
            self._failed(query, ConnectorError(f"the folder for temporary files {hint}", temporary=full))
            return True
        finally:
            self._client.deadline = whole

    def _failed(self, query: PackQuery, error: ConnectorError) -> bool:
        hopeless = not isinstance(error, HttpError) or error.kind in _HOPELESS
        self._errors.append(error)
        self._note(str(error) if hopeless else f"{query.name}: {error}")
        return hopeless

    def _note(self, words: str) -> None:
        if words not in self._notes:
            self._notes.append(words)

    def _ask(self, query: PackQuery, text: str, budget: int) -> None:
        assert self._window is not None
        start, end = self._window
        if query.instant:
            self._keep(query, self._client.query(text, end))
            return
        if self._config.step is not None:
            pending = list(chunks(start, end, self._config.step))
        else:
            pending = plan(start, end, self._config.resolution, self._series(text, start, end), budget)
        self._steps |= {chunk.step for chunk in pending}
        pending.reverse()
        while pending:
            chunk = pending.pop()
            try:
                results = self._client.query_range(text, chunk.start, chunk.end, chunk.step)
            except TooMuch as refused:
                halves = chunk.halves()
                if halves is None or (refused.error.kind is Kind.SLOW and chunk.points <= 8):
                    raise
                pending += reversed(halves)
                continue
            self._keep(query, results)
            if self._spool.size >= self._request.limits.bytes:
                self._cut = f"more than {self._request.limits.bytes} bytes: the rest was left out"
                self._note(f"{query.name}: {self._cut}")
                return

    def _series(self, text: str, start: float, end: float) -> int:
        """How many series there are, by three moments; a node may have been down at one."""
        most = 0
        for at in (start + (end - start) * share for share in (0.1, 0.5, 0.9)):
            try:
                most = max(most, self._client.count(text, at))
            except TooMuch:
                return 1000
        return most

    def _keep(self, query: PackQuery, results: Sequence[Result]) -> None:
        for result in results:
            samples = samples_of(result)
            if samples is None:
                continue
            key = (query.name, tuple(sorted(result.metric.items())))
            known = self._spool.has(key)
            self._spool.add(key, b"," + samples.inner if known else samples.inner, lines=samples.count)
            self._samples += samples.count
            self._note_times(samples)

    def _note_times(self, samples: Samples) -> None:
        self._first = samples.first if self._first is None else min(self._first, samples.first)
        self._last = samples.last if self._last is None else max(self._last, samples.last)

    def _as_stream(self, query: PackQuery) -> Iterator[Stream]:
        """The query's series as one document, which is put together when it is read."""
        series = {key[1]: found for key, found in self._spool.streams().items() if key[0] == query.name}
        if not series:
            return
        document = Spooled()
        kind = b"vector" if query.instant else b"matrix"
        self._literal(document, b'{"status":"success","data":{"resultType":"' + kind + b'","result":[')
        between = b"\n"
        for labels, found in sorted(series.items()):
            metric = msgspec.json.encode(dict(labels))
            name = b'"value":' if query.instant else b'"values":['
            self._literal(document, between + b'{"metric":' + metric + b"," + name)
            for offset, size in found.pieces():
                document.add(offset, size, tail=False)
            self._literal(document, b"}" if query.instant else b"]}")
            between = b",\n"
        self._literal(document, b"\n]}}\n")
        self._streams += 1
        self._bytes += document.size
        folder = "metrics" if self._config.name == "promql" else f"metrics/{self._config.name}"
        yield Stream(
            name=f"{folder}/{query.name}.json",
            source=Source.METRIC,
            open=partial(self._spool.open, document),
            size=document.size,
        )

    def _literal(self, document: Spooled, content: bytes) -> None:
        document.add(self._spool.write(content), len(content), tail=False)


def _cut(text: Any, most: int = 600) -> str:
    return text if len(text) <= most else f"{text[:most]}... [{len(text) - most} more characters]"
