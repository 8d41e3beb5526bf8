"""The two contracts that every connector fulfils, and the report of each collection.

A connector **finds** attempts (from a cursor on, in an order that makes the cursor safe to keep) and **collects** an
attempt's streams. Both stream, both are bounded by `Limits`. What a source could not give is a report in plain words;
an exception (`ConnectorError`) is only for what makes the whole collection impossible.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, runtime_checkable

import msgspec

from engine.model import Attempt, SourceReport, Stream


class ConnectorError(Exception):
    """Nothing could be collected or found; one line that an operator can act on.

    `temporary` says that the same request may succeed later.
    """

    def __init__(self, message: str, *, temporary: bool = False) -> None:
        super().__init__(message)
        self.temporary = temporary


class ConfigError(ValueError):
    """A connector can't be set up as configured; one line that names the connector and the key."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one collection may use up at most. Reaching a limit gives a `partial` report, not an error."""

    streams: int = 20_000
    bytes: int = 64 * 1024**3
    """Of all streams together, decompressed."""
    stream_bytes: int | None = None
    """Of a plain file; of a longer one beginning and end are given, as of one for which not enough is left of all."""
    seconds: float = 1800.0


class CollectionReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one source of one connector gave, and what it could not give: the engine's report and how it was asked."""

    source: str
    """applog, syslog, scheduler, metric, flight_recorder; or the connector's name when it failed as a whole."""
    status: str
    """ok | empty | missing | partial | error"""
    note: str = ""
    """Why, in words that an operator can act on."""
    streams: int = 0
    lines: int = 0
    """As far as the connector has read them itself; whoever reads the streams knows better, as of the times."""
    bytes: int = 0
    first_at: str | None = None
    last_at: str | None = None
    connector: str = ""
    duration_s: float = 0.0
    failed: bool = False
    """A question had no answer: asked again later, the source may give more."""
    query: str = ""
    """What was asked, without secrets."""
    link: str = ""
    """The source's own view of the same."""

    def for_engine(self) -> SourceReport:
        """The part that belongs to the diagnosis: nothing that changes from one collection to the next."""
        return SourceReport(
            source=self.source,
            status=self.status,
            streams=self.streams,
            lines=self.lines,
            bytes=self.bytes,
            first_at=self.first_at,
            last_at=self.last_at,
            note=self.note,
        )


class FoundAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that a connector found, with its own handle for collecting it."""

    attempt: Attempt
    ref: str
    label: str = ""
    """What people call it, e.g. a file name."""
    content_key: str = ""
    """Changes when there is something new to collect under the same ref."""


class FindProblem(msgspec.Struct, frozen=True, kw_only=True):
    """Something that looked like an attempt and could not be read."""

    ref: str
    message: str


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a search. Everything up to `cursor` has been told; it is safe to keep once `found` has been dealt
    with.
    """

    cursor: dict[str, Any]
    found: FoundAttempt | FindProblem | None = None


class CollectRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Whose streams, from where, within which limits."""

    attempt: Attempt
    ref: str
    limits: Limits = Limits()


class Collected(Protocol):
    """An open collection. Streams can be read while it is open; reports are complete once all streams have been
    taken.
    """

    def streams(self) -> Iterator[Stream]:
        """The streams, one after another, in a stable order."""
        ...

    def reports(self) -> Sequence[CollectionReport]:
        """One report a source."""
        ...


@runtime_checkable
class Connector(Protocol):
    """What a connector is to the rest of Faultline."""

    name: str
    """A connector that reads from file systems, which may hang, has `patience` besides: seconds within which each of
    its steps and reads gives something.
    """

    def find(self, cursor: dict[str, Any]) -> Iterator[Found]:
        """Attempts that are new since `cursor` ({} at first). Raises ConnectorError when the source can't be asked."""
        ...

    def collect(
        self, request: CollectRequest, stop: threading.Event | None = None
    ) -> AbstractContextManager[Collected]:
        """Opens the evidence of an attempt. Raises ConnectorError when nothing of it can be had."""
        ...


class CollectsOnly:
    """For connectors of sources that know lines or metrics, but no attempts."""

    def find(self, cursor: dict[str, Any]) -> Iterator[Found]:
        """Nothing."""
        return iter(())


def check_report(name: str, asked: list[str], ask: Callable[[], tuple[str, str]]) -> CollectionReport:
    """The report of a connector's check: `ask` gives status and note, or raises ConnectorError, and may add to `asked`
    what it asked.
    """
    began = time.monotonic()
    try:
        status, note = ask()
    except ConnectorError as error:
        status, note = "error", str(error)
    return CollectionReport(
        source=name,
        status=status,
        note=note,
        connector=name,
        duration_s=round(time.monotonic() - began, 3),
        failed=status == "error",
        query="\n".join(asked),
    )
