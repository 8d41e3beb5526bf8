"""What each kind of source gave to a diagnosis, and in words what is missing."""

from __future__ import annotations

from collections.abc import Sequence

from engine.clock import StreamClock
from engine.collective import Dumps
from engine.facts import Fact
from engine.model import Attempt, Source, SourceReport, rfc3339
from engine.origin import Places
from engine.scan import StreamScan
from engine.series import Measured

_SOURCES = (
    (Source.APPLOG, "No job log: the program's own errors and progress are unknown."),
    (Source.SYSLOG, "No kernel or system log: a fault of a GPU, link, disk or of the kernel would not show."),
    (Source.SCHEDULER, "No scheduler records: only attempt.yaml tells how the attempt ended."),
    (Source.METRIC, "No metrics: temperatures, error counters and link rates are unknown."),
    (
        Source.FLIGHT_RECORDER,
        "No flight-recorder dumps: which rank a collective waited for is only known from the log.",
    ),
)


def coverage(
    scans: Sequence[StreamScan],
    measured: Measured,
    dumps: Dumps,
    facts: Sequence[Fact],
    clocks: dict[str, StreamClock],
    reports: Sequence[SourceReport],
    attempt: Attempt,
    places: Places,
) -> tuple[SourceReport, ...]:
    """What each kind of source gave, and in words what is missing."""
    out = []
    for source, absent in _SOURCES:
        own = [s for s in scans if s.stream.source is source and s.stream.name != "attempt.yaml"]
        if source is Source.METRIC:
            times = [t for s in measured.series for t in (s.times[0], s.times[-1])]
            out.append(
                _report(source, measured.streams, measured.samples, 0, times, absent, "; ".join(measured.errors[:3]))
            )
        elif source is Source.FLIGHT_RECORDER:
            entries = sum(len(d.entries) for d in dumps.dumps.values())
            out.append(_report(source, dumps.streams, entries, 0, [], absent, "; ".join(dumps.errors[:3])))
        else:
            times = [
                at
                for s in own
                for stamp in (s.first, s.last)
                if (at := clocks[s.stream.name].resolve(stamp).at) is not None
            ]
            note = _nodes_without(own, attempt, places) if source is Source.SYSLOG and own else ""
            out.append(
                _report(source, len(own), sum(s.lines for s in own), sum(s.bytes for s in own), times, absent, note)
            )
    return (*out, *sorted(reports, key=lambda r: (r.source, r.note)))


def _nodes_without(scans: Sequence[StreamScan], attempt: Attempt, places: Places) -> str:
    seen = {places.stream_node(s.stream) for s in scans} | {places.known(h.cleaned.host) for s in scans for h in s.hits}
    missing = [node for node in attempt.nodes if node not in seen]
    return f"No system log of {', '.join(missing[:6])}." if missing else ""


def _report(
    source: Source, streams: int, lines: int, size: int, times: Sequence[float], absent: str, note: str
) -> SourceReport:
    status = "missing" if not streams else "empty" if not lines else "partial" if note else "ok"
    return SourceReport(
        source=source.value,
        status=status,
        streams=streams,
        lines=lines,
        bytes=size,
        first_at=rfc3339(min(times)) if times else None,
        last_at=rfc3339(max(times)) if times else None,
        note=absent if not streams else note,
    )
