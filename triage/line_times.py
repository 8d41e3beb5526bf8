"""When a line of a stored stream was written, by the engine's own clock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import islice

from engine.clock import Stamp, StreamClock
from engine.lines import clean
from triage.blobs import BlobReader
from triage.services.facts import moment

_SAMPLED = 200
"""Lines at either end among which a stamp is looked for."""
_ENOUGH = 12
"""So many stamps at either end tell what all of them leave open; to read more takes longer than to store the stream."""
_LINE_BYTES = 4096


class LineTimes:
    """The clock of one stream: what its stamps leave open is decided by the attempt's window and the stream's own
    lines.
    """

    def __init__(self, reader: BlobReader, started_at: float | None, ended_at: float | None) -> None:
        self._head = list(islice(_stamped(_lines(reader, 1)), _ENOUGH))
        tail = _lines(reader, max(1, reader.lines - _SAMPLED + 1))
        self._tail = list(islice(_stamped(reversed(tail)), _ENOUGH))
        samples = [*self._head, *reversed(self._tail)]
        self._clock = StreamClock(started_at, ended_at, samples)
        self.tells_time = bool(samples)
        """Whether any of the lines looked at has a time stamp."""

    def at(self, raw: bytes) -> float | None:
        """Epoch seconds of a line; None when it tells none."""
        stamp = clean(raw[:_LINE_BYTES]).stamp
        return None if stamp is None else self._clock.resolve(stamp).at

    def first(self) -> datetime | None:
        """Time of the first line that has one, of those looked at."""
        return self._first_of(self._head)

    def last(self) -> datetime | None:
        """Time of the last line that has one, of those looked at."""
        return self._first_of(self._tail)

    def _first_of(self, samples: Iterable[tuple[Stamp, str]]) -> datetime | None:
        times = (self._clock.resolve(stamp).at for stamp, _ in samples)
        return moment(next((at for at in times if at is not None), None))


def _lines(reader: BlobReader, first: int) -> list[bytes]:
    return [line.raw for line in reader.read_lines(first, _SAMPLED, max_line_bytes=_LINE_BYTES)]


def _stamped(lines: Iterable[bytes]) -> Iterator[tuple[Stamp, str]]:
    """Stamps with the text of their lines."""
    for raw in lines:
        line = clean(raw)
        if line.stamp is not None:
            yield line.stamp, line.text
