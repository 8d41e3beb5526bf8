"""Capture bundles: folders and archives under configured roots. Finds them in watched folders, collects their
streams.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from connectors.base import (
    CollectionReport,
    CollectRequest,
    ConfigError,
    ConnectorError,
    FindProblem,
    Found,
    FoundAttempt,
    Limits,
)
from connectors.files.client import Roots, content_key
from connectors.values import named, words
from engine.bundle import Bundle, BundleError, open_bundle
from engine.model import Stream

_KEYS = {"name", "roots", "watch"}
SETTLE_SECONDS = 3.0
"""A bundle that changed less than that ago may still be copied and is left for the next search."""


class FilesConnector:
    """`roots`: name -> folder that refs may name. `watch`: those of them that are searched for bundles."""

    def __init__(self, *, name: str = "files", roots: Mapping[str, Path], watch: Sequence[str] = ()) -> None:
        self.name = name
        self._roots = Roots(roots)
        self._watch = tuple(watch)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> FilesConnector:
        """From plain values: `{"name", "roots": {name: path}, "watch": [names]}`. Raises ConfigError."""
        name, _ = named(config, "files", _KEYS)
        roots = config.get("roots", {})
        if not isinstance(roots, Mapping) or not all(isinstance(path, (str, Path)) for path in roots.values()):
            raise ConfigError(f"connector {name}: roots must map names to folders")
        if any(not key or ":" in key for key in roots):
            raise ConfigError(f"connector {name}: roots: a name is empty or holds a colon")
        watch = words(config, "watch", f"connector {name}", "names of roots")
        missing = [entry for entry in watch if entry not in roots]
        if missing:
            raise ConfigError(f"connector {name}: watch: {missing[0]!r} is not one of its roots")
        return cls(name=name, roots={key: Path(path) for key, path in roots.items()}, watch=list(watch))

    def find(self, cursor: dict[str, Any]) -> Iterator[Found]:
        """Bundles in the watched roots that are new or changed. The cursor maps each ref to its content key."""
        seen = dict(cursor)
        there: set[str] = set()
        for root in self._watch:
            for ref, path in self._roots.bundles(root):
                there.add(ref)
                try:
                    key = content_key(path)
                    settled = time.time() - _changed_at(path) >= SETTLE_SECONDS
                except OSError:
                    continue
                if seen.get(ref) == key or not settled:
                    continue
                seen[ref] = key
                yield Found(cursor=dict(seen), found=self._look_into(ref, path, key))
        gone = {ref for ref in seen if ref not in there}
        if gone:
            yield Found(cursor={ref: key for ref, key in seen.items() if ref not in gone})

    def _look_into(self, ref: str, path: Path, key: str) -> FoundAttempt | FindProblem:
        try:
            with open_bundle(path) as bundle:
                return FoundAttempt(attempt=bundle.attempt, ref=ref, label=path.name, content_key=key)
        except (BundleError, OSError) as error:
            return FindProblem(ref=ref, message=one_line(error))

    @contextmanager
    def collect(self, request: CollectRequest, stop: threading.Event | None = None) -> Iterator[CollectedBundle]:
        """Opens the bundle that the ref names. Raises ConnectorError when it can't be opened."""
        path = self._roots.resolve(request.ref)
        try:
            opened = open_bundle(path)
            bundle = opened.__enter__()
        except (BundleError, OSError) as error:
            raise ConnectorError(one_line(error), temporary=False) from None
        try:
            yield CollectedBundle(bundle, request.limits, self.name, request.ref, stop)
        finally:
            opened.__exit__(None, None, None)


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


def one_line(error: BaseException) -> str:
    """An error's own words on one line."""
    return " ".join(str(error).split()) or type(error).__name__


def _changed_at(path: Path) -> float:
    if path.is_file():
        return path.stat().st_mtime
    return max((entry.stat().st_mtime for entry in path.rglob("*")), default=path.stat().st_mtime)
