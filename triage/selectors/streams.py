"""Reading the raw lines of a stream from the blob store, anywhere in it, at once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from triage.models import Attempt, Stream


class StreamGone(LookupError):
    """The stream's bytes were pruned or can't be read; the evidence kept with the diagnosis stays."""


@dataclass(frozen=True)
class StreamLine:
    """One line as it is stored (secrets masked), decoded, not made printable: pages escape and clean it."""

    number: int
    """From 1."""
    offset: int
    """Byte offset of its start in the decompressed stream."""
    text: str
    """Without its line end; cut when `cut`."""
    cut: bool
    """The line was longer than what is shown."""
    at: datetime | None = None
    """The time it tells, where it tells one. Only set by `lines_around_time`."""


@dataclass(frozen=True)
class StreamWindow:
    """Some neighbouring lines of a stream."""

    stream: Stream
    lines: list[StreamLine]
    first: int
    """Number of the first line here; 0 when there is none."""
    last: int
    total: int
    """Lines in the whole stream."""

    @property
    def has_before(self) -> bool:
        return self.first > 1

    @property
    def has_after(self) -> bool:
        return 0 < self.last < self.total


MAX_LINES = 1000
MAX_LINE_BYTES = 16 * 1024


def get_stream(attempt_id: int, name: str) -> Stream:
    """A stream of an attempt by its name. Raises Stream.DoesNotExist."""
    return Stream.objects.select_related("attempt__workload", "attempt__cluster").get(attempt_id=attempt_id, name=name)


def stream_lines(stream: Stream, first: int, count: int) -> StreamWindow:
    """`count` lines from line number `first` on (both are brought into range). Raises StreamGone."""
    raise NotImplementedError


def lines_around_line(stream: Stream, line: int, *, before: int = 20, after: int = 20) -> StreamWindow:
    """A line by its number, with the lines around it. Raises StreamGone."""
    raise NotImplementedError


def lines_around_offset(stream: Stream, offset: int, *, before: int = 20, after: int = 20) -> StreamWindow:
    """The line that holds a byte offset, with the lines around it. Raises StreamGone."""
    raise NotImplementedError


def lines_around_time(stream: Stream, at: datetime, *, before: int = 2, after: int = 2) -> StreamWindow | None:
    """The lines nearest to a moment; None when the stream's lines tell no time. Raises StreamGone."""
    raise NotImplementedError


def same_moment(attempt: Attempt, at: datetime, *, but: Stream | None = None, limit: int = 8) -> list[StreamWindow]:
    """What the other streams of the attempt said around a moment: one window a stream that tells times."""
    raise NotImplementedError
