"""When a line of a stored stream was written, by the engine's own clock."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from engine.clock import Stamp, StreamClock
from engine.lines import clean
from triage.blobs import BlobReader
from triage.services.facts import moment

_SAMPLED = 200
_LINE_BYTES = 4096


class LineTimes:
    """The clock of one stream: what its stamps leave open is decided by the attempt's window and the stream's own
    lines.
    """

    def __init__(self, reader: BlobReader, started_at: float | None, ended_at: float | None) -> None:
        head = reader.read_lines(1, _SAMPLED, max_line_bytes=_LINE_BYTES)
        tail = reader.read_lines(max(1, reader.lines - _SAMPLED + 1), _SAMPLED, max_line_bytes=_LINE_BYTES)
        self._head, self._tail = [line.raw for line in head], [line.raw for line in tail]
        samples: list[tuple[Stamp, str]] = []
        for raw in [*self._head, *self._tail]:
            line = clean(raw)
            if line.stamp is not None:
                samples.append((line.stamp, line.text))
        self._clock = StreamClock(started_at, ended_at, samples)
        self.tells_time = bool(samples)
        """Whether any of the lines looked at has a time stamp."""

    def at(self, raw: bytes) -> float | None:
        """Epoch seconds of a line; None when it tells none."""
        stamp = clean(raw[:_LINE_BYTES]).stamp
        return None if stamp is None else self._clock.resolve(stamp).at

    def first(self) -> datetime | None:
        """Time of the first line that has one, of those looked at."""
        return moment(self._first_of(self._head))

    def last(self) -> datetime | None:
        """Time of the last line that has one, of those looked at."""
        return moment(self._first_of(reversed(self._tail)))

    def _first_of(self, lines: Iterable[bytes]) -> float | None:
        return next((at for raw in lines if (at := self.at(raw)) is not None), None)
