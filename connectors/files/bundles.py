"""The streams of a capture bundle, within limits."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

from connectors.base import CollectionReport, Limits
from engine.bundle import Bundle
from engine.model import Stream


class CollectedBundle:
    """The streams of an open bundle, and a report a source."""

    def __init__(
        self, bundle: Bundle, limits: Limits, connector: str, ref: str, stop: threading.Event | None = None
    ) -> None:
        self._bundle, self._limits, self._connector, self._ref, self._stop = bundle, limits, connector, ref, stop
        self._began = time.monotonic()
        self._counts: dict[str, tuple[int, int]] = {}
        self._left_out: dict[str, str] = {}

    def streams(self) -> Iterator[Stream]:
        """Streams by name, until a limit is reached."""
        taken, size = 0, 0
        for stream in sorted(self._bundle.streams, key=lambda stream: stream.name):
            why = self._over(taken, size + max(stream.size, 0))
            if why:
                self._left_out.setdefault(stream.source.value, why)
                continue
            taken, size = taken + 1, size + max(stream.size, 0)
            streams, total = self._counts.get(stream.source.value, (0, 0))
            self._counts[stream.source.value] = (streams + 1, total + max(stream.size, 0))
            yield stream

    def reports(self) -> list[CollectionReport]:
        """What was there and what a limit left out, by source. A source that a bundle doesn't have gets no report."""
        reports = [
            CollectionReport(
                source=report.source, status=report.status, note=report.note, connector=self._connector, query=self._ref
            )
            for report in self._bundle.reports
        ]
        for source in sorted({*self._counts, *self._left_out}):
            streams, size = self._counts.get(source, (0, 0))
            note = self._left_out.get(source, "")
            reports.append(
                CollectionReport(
                    source=source,
                    status="partial" if note else "ok",
                    note=note,
                    streams=streams,
                    bytes=size,
                    connector=self._connector,
                    duration_s=round(time.monotonic() - self._began, 3),
                    query=self._ref,
                )
            )
        return reports

    def _over(self, streams: int, size: int) -> str:
        if streams >= self._limits.streams:
            return f"more than {self._limits.streams} streams: the rest was left out"
        if size > self._limits.bytes:
            return f"more than {self._limits.bytes} bytes: the rest was left out"
        if time.monotonic() - self._began > self._limits.seconds:
            return f"not finished within {self._limits.seconds:.0f} s: the rest was left out"
        if self._stop is not None and self._stop.is_set():
            return "stopped before it was finished"
        return ""
