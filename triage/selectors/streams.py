"""Reading the raw lines of a stream from the blob store, anywhere in it, at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.db.models import Q

from triage.blobs import BlobError, BlobReader
from triage.line_times import LineTimes
from triage.models import Attempt, Stream
from triage.services.facts import moment, seconds
from triage.services.sources import blob_store


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


LOGS = ("applog", "syslog", "scheduler")
MAX_LINES = 1000
MAX_LINE_BYTES = 16 * 1024


def get_stream(attempt_id: int, name: str) -> Stream:
    """A stream of an attempt by its name. Raises Stream.DoesNotExist."""
    return Stream.objects.select_related("attempt__workload", "attempt__cluster").get(attempt_id=attempt_id, name=name)


def kept_logs(attempt_id: int, limit: int) -> list[Stream]:
    """The streams of lines whose text is kept, kernel logs last. One query."""
    logs = Stream.objects.filter(attempt_id=attempt_id, source__in=LOGS).exclude(blob="")
    return list(logs.order_by("source", "name").only("id", "name", "node", "rank", "source", "lines")[:limit])


def stream_lines(stream: Stream, first: int, count: int) -> StreamWindow:
    """`count` lines from line number `first` on (both are brought into range). Raises StreamGone."""
    with opened(stream) as reader:
        return _window(stream, reader, first, count)


def lines_around_line(stream: Stream, line: int, *, before: int = 20, after: int = 20) -> StreamWindow:
    """A line by its number, with the lines around it. Raises StreamGone."""
    with opened(stream) as reader:
        line = max(1, min(line, reader.lines))
        first = max(1, line - max(0, before))
        return _window(stream, reader, first, line - first + 1 + max(0, after))


def lines_around_offset(stream: Stream, offset: int, *, before: int = 20, after: int = 20) -> StreamWindow:
    """The line that holds a byte offset, with the lines around it. Raises StreamGone."""
    with opened(stream) as reader:
        line = reader.line_of(offset)
        first = max(1, line - max(0, before))
        return _window(stream, reader, first, line - first + 1 + max(0, after))


def lines_around_time(stream: Stream, at: datetime, *, before: int = 2, after: int = 2) -> StreamWindow | None:
    """The lines nearest to a moment; None when the stream's lines tell no time. Raises StreamGone."""
    with opened(stream) as reader:
        attempt = stream.attempt
        times = LineTimes(reader, seconds(attempt.started_at), seconds(attempt.ended_at))
        if not times.tells_time:
            return None
        line = _first_line_since(reader, times, at.timestamp())
        first = max(1, min(line, reader.lines + 1) - max(0, before))
        window = _window(stream, reader, first, min(line, reader.lines + 1) - first + max(1, after))
        timed = [
            replace(line, at=moment(times.at(line.text.encode("utf-8", "surrogateescape")))) for line in window.lines
        ]
        return replace(window, lines=timed)


def same_moment(
    attempt: Attempt, at: datetime, *, but: Stream | None = None, limit: int = 8, prefer: Sequence[str] = ()
) -> list[StreamWindow]:
    """What the other streams of the attempt said around a moment: one window a stream that tells times.

    Streams of the nodes in `prefer` first, in that order; of those kernel logs first, then job logs. Only streams that
    cover the moment or come near to it (an hour).
    """
    near = timedelta(hours=1)
    covers = (Q(first_at__lte=at + near) | Q(first_at__isnull=True)) & (
        Q(last_at__gte=at - near) | Q(last_at__isnull=True)
    )
    streams = attempt.streams.filter(covers, source__in=["applog", "syslog"])
    rank = {node: index for index, node in enumerate(prefer)}
    if but is not None:
        streams = streams.exclude(pk=but.pk)
    windows: list[StreamWindow] = []
    found = sorted(
        streams.exclude(blob="").order_by("-source", "name")[:5000], key=lambda s: rank.get(s.node or "", len(rank))
    )
    for stream in found[: 3 * limit]:
        if len(windows) == limit:
            break
        stream.attempt = attempt
        try:
            window = lines_around_time(stream, at)
        except StreamGone:
            continue
        if window is not None and window.lines:
            windows.append(window)
    return windows


@contextmanager
def opened(stream: Stream) -> Iterator[BlobReader]:
    if not stream.blob:
        raise StreamGone(f"{stream.name}: no longer kept")
    try:
        with blob_store().reader(stream.blob) as reader:
            yield reader
    except BlobError as error:
        raise StreamGone(f"{stream.name}: {error}") from None


def _window(stream: Stream, reader: BlobReader, first: int, count: int) -> StreamWindow:
    first = max(1, min(first, reader.lines))
    raw = reader.read_lines(first, max(0, min(count, MAX_LINES)), max_line_bytes=MAX_LINE_BYTES)
    lines = [StreamLine(line.number, line.offset, _decoded(line.raw), line.cut) for line in raw]
    return StreamWindow(
        stream=stream,
        lines=lines,
        first=lines[0].number if lines else 0,
        last=lines[-1].number if lines else 0,
        total=reader.lines,
    )


def _decoded(raw: bytes) -> str:
    return raw.rstrip(b"\r").decode("utf-8", "backslashreplace")


def _first_line_since(reader: BlobReader, times: LineTimes, at: float) -> int:
    """The number of the first line at or after a moment, by halving; lines without a time count as the next that has
    one.

    Lines are taken to be in the order of time, as logs nearly are. `lines + 1` when all are earlier.
    """
    low, high = 1, reader.lines + 1
    while low < high:
        middle = (low + high) // 2
        told = _time_at_or_after(reader, times, middle)
        if told is not None and told < at:
            low = middle + 1
        else:
            high = middle
    return _next_timed(reader, times, low)


def _next_timed(reader: BlobReader, times: LineTimes, number: int) -> int:
    """The first line from `number` on that tells a time itself; `number` when none of the next few hundred does."""
    for line in reader.read_lines(number, 340, max_line_bytes=4096):
        if times.at(line.raw) is not None:
            return line.number
    return number


def _time_at_or_after(reader: BlobReader, times: LineTimes, number: int) -> float | None:
    """The time of a line, or of the nearest following line that tells one; None when none of the next few hundred
    does.
    """
    for step in (4, 16, 64, 256):
        for line in reader.read_lines(number, step, max_line_bytes=4096):
            told = times.at(line.raw)
            if told is not None:
                return told
        number += step
    return None
