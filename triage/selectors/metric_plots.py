"""The metric series of an attempt as plots on the axis of its timeline, thinned out on the server, and as a table."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from engine.model import Source
from engine.model import Stream as Raw
from engine.origin import Places
from engine.series import Series, series_of
from triage import times
from triage.blobs import BlobError
from triage.models import Attempt, Stream
from triage.selectors.timeline import Picture
from triage.selectors.timeline_axis import Axis
from triage.services.facts import engine_attempt
from triage.services.sources import blob_store
from triage.text import printable

MAX_STREAMS = 60
MAX_BYTES = 64 << 20
"""A larger stream is named and not plotted."""
MAX_CHARTS = 16
MAX_LINES = 12
"""Series of one chart; the others are counted and stand in the table."""
BUCKET = 2.0
"""Units of the axis in which at most the lowest and the highest sample are kept."""
GAP = 3.5
"""So many usual intervals without a sample are drawn as a gap."""
MAX_INTERVALS = 1000
"""Of a series that are looked at to learn how far apart its samples usually are."""
MAX_TABLE = 500
_UNITS = (
    ("temp", "\u00b0C"), ("clock_throttle", "bits"), ("clock", "MHz"), ("power", "W"), ("util", "%"), ("percent", "%"),
    ("bytes", "bytes"), ("seconds", "s"), ("ratio", "0 to 1"),
)  # fmt: skip


@dataclass(frozen=True)
class Line:
    """One series, thinned out. `values` holds None where samples are missing."""

    label: str
    node: str
    device: str
    cited: bool
    """Whether the diagnosis rests on it."""
    x: list[float]
    at: list[float]
    values: list[float | None]


@dataclass(frozen=True)
class Chart:
    name: str
    unit: str
    lines: list[Line]
    left_out: int
    low: float
    high: float


@dataclass(frozen=True)
class Row:
    """One series in figures."""

    name: str
    unit: str
    node: str
    device: str
    cited: bool
    samples: int
    low: float
    middle: float
    high: float
    at_root: float | None
    """The last sample at or before the root's moment."""
    after: float | None
    """The median after it."""


@dataclass(frozen=True)
class Measured:
    """All series of an attempt, and what could not be read."""

    series: list[Series]
    troubles: list[str]


def metric_streams(attempt: Attempt) -> list[Stream]:
    """The kept metric streams. One query."""
    return list(attempt.streams.filter(source=Source.METRIC.value).exclude(blob="").order_by("name")[:MAX_STREAMS])


def measured(attempt: Attempt, streams: Iterable[Stream]) -> Measured:
    """Read the streams. One that can't be read is named with the reason."""
    series: list[Series] = []
    troubles: list[str] = []
    places = Places(engine_attempt(attempt), [])
    for stream in streams:
        if stream.size > MAX_BYTES:
            troubles.append(f"{printable(stream.name)}: too large to plot ({times.size(stream.size)})")
            continue
        try:
            series += series_of(_raw(stream), places, MAX_BYTES)
        except (OSError, ValueError, BlobError, RecursionError) as error:
            troubles.append(f"{printable(stream.name)}: {printable(str(error))[:160]}")
    return Measured(sorted(series, key=lambda s: (s.name, s.node or "", s.device or "")), troubles)


def _raw(stream: Stream) -> Raw:
    key = stream.blob
    return Raw(name=stream.name, source=Source.METRIC, open=lambda: blob_store().open(key), size=stream.size)


def charts(found: Measured, contract: Mapping[str, Any], axis: Axis) -> tuple[list[Chart], int]:
    """One chart a metric, those that the diagnosis rests on first, and how many there is no room for."""
    cited = _cited(contract)
    by_name: dict[str, list[Series]] = {}
    for series in found.series:
        by_name.setdefault(series.name, []).append(series)
    order = sorted(by_name, key=lambda name: (not any(_is_cited(s, cited) for s in by_name[name]), name))
    made = [chart for name in order[:MAX_CHARTS] if (chart := _chart(name, by_name[name], cited, axis)) is not None]
    return made, max(0, len(order) - MAX_CHARTS)


def _chart(name: str, everyone: Sequence[Series], cited: set[tuple[str, str]], axis: Axis) -> Chart | None:
    inside = [series for series in everyone if _between(series, axis)]
    if not inside:
        return None
    typical = median(value for series in inside for value in series.values)
    ranked = sorted(inside, key=lambda s: (not _is_cited(s, cited), -max(abs(value - typical) for value in s.values)))
    kept = sorted(ranked[:MAX_LINES], key=lambda s: (not _is_cited(s, cited), s.node or "", s.device or ""))
    lines = [_line(series, cited, axis) for series in kept]
    seen = [value for line in lines for value in line.values if value is not None]
    unit = unit_of(name)
    return Chart(printable(name), unit, lines, len(inside) - len(kept), min(seen, default=0.0), max(seen, default=0.0))


def _part(series: Series, axis: Axis) -> tuple[int, int]:
    """The samples to draw: those inside the axis, and one on each side of a zoomed part, so that lines go on."""
    first, last = bisect_left(series.times, axis.start), bisect_right(series.times, axis.end)
    if axis.part and first < len(series.times) and last > 0:
        return max(0, first - 1), min(len(series.times), last + 1)
    return first, last


def _between(series: Series, axis: Axis) -> bool:
    first, last = _part(series, axis)
    return first < last


def _line(series: Series, cited: set[tuple[str, str]], axis: Axis) -> Line:
    first, last = _part(series, axis)
    ats, values = series.times[first:last], series.values[first:last]
    usual = median([b - a for a, b in pairwise(series.times[:MAX_INTERVALS])] or [0.0])
    x: list[float] = []
    at: list[float] = []
    out: list[float | None] = []
    bucket: list[tuple[float, float]] = []

    def flush() -> None:
        if not bucket:
            return
        low, high = min(bucket, key=lambda p: p[1]), max(bucket, key=lambda p: p[1])
        for moment, value in sorted({low, high}):
            place = round(axis.beyond(moment), 2)
            if x and place <= x[-1]:
                place = round(x[-1] + 0.01, 2)
            x.append(place)
            at.append(moment)
            out.append(value)
        bucket.clear()

    place = None
    for index, (moment, value) in enumerate(zip(ats, values, strict=True)):
        if index and usual and moment - ats[index - 1] > GAP * usual:
            flush()
            x.append(round((x[-1] + max(axis.beyond(moment), x[-1] + 0.04)) / 2, 2))
            at.append((ats[index - 1] + moment) / 2)
            out.append(None)
        here = int(axis.beyond(moment) // BUCKET)
        if place is not None and here != place:
            flush()
        place = here
        bucket.append((moment, value))
    flush()
    node, device = printable(series.node or ""), printable(series.device or "")
    return Line(_label(series), node, device, _is_cited(series, cited), x, at, out)


def _label(series: Series) -> str:
    parts = [part for part in (series.node, series.device) if part]
    return printable(" ".join(parts) or next(iter(series.labels.values()), series.name))[:80]


def _cited(contract: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Stream and place of the metric evidence."""
    return {
        (item["stream"], f"{item['node'] or ''} {item['device'] or ''}")
        for item in contract["evidence"]
        if item["source"] == Source.METRIC.value
    }


def _is_cited(series: Series, cited: set[tuple[str, str]]) -> bool:
    return (series.stream, f"{series.node or ''} {series.device or ''}") in cited


def unit_of(name: str) -> str:
    """The unit that a metric's name tells; empty when it tells none."""
    lower = name.lower()
    return next((unit for word, unit in _UNITS if word in lower), "")


def rows(found: Measured, contract: Mapping[str, Any]) -> list[Row]:
    """Every series in figures, those that the diagnosis rests on first."""
    cited = _cited(contract)
    root = contract["root_cause"]
    moment = times.parse(root["at"]) if root else None
    at = moment.timestamp() if moment else None
    made = []
    for series in found.series:
        if not series.values:
            continue
        split = bisect_right(series.times, at) if at is not None else 0
        later = series.values[split:] if at is not None else []
        made.append(
            Row(
                printable(series.name), unit_of(series.name), printable(series.node or ""),
                printable(series.device or ""), _is_cited(series, cited), len(series.values),
                min(series.values), median(series.values), max(series.values),
                series.values[split - 1] if split else None, median(later) if later else None,
            )
        )  # fmt: skip
    return sorted(made, key=lambda row: not row.cited)


def as_plain(picture: Picture, made: Sequence[Chart], left_out: int, troubles: Sequence[str]) -> dict[str, Any]:
    """What the page's script draws: charts in the units of the timeline's axis, and where its lines stand."""
    return {
        "axis": picture.axis.as_plain() | {"ticks": [[float(tick.x), tick.text] for tick in picture.ticks]},
        "events": _events(picture),
        "charts": [
            {
                "name": chart.name, "unit": chart.unit, "left_out": chart.left_out,
                "low": chart.low, "high": chart.high,
                "lines": [
                    {"label": line.label, "cited": line.cited, "x": line.x, "at": line.at, "values": line.values}
                    for line in chart.lines
                ],
            }
            for chart in made
        ],
        "left_out": left_out,
        "troubles": list(troubles),
    }  # fmt: skip


def _events(picture: Picture) -> list[dict[str, Any]]:
    """The lines of the timeline that go on through the plots."""
    found: list[dict[str, Any]] = []
    root_evidence: str | None = None
    for lane in picture.lanes:
        for mark in lane.marks:
            if mark.shape in ("warn", "sym"):
                text = f"{mark.text}, {lane.name}"
                found.append({"kind": mark.shape, "x": float(mark.x), "text": text, "evidence": mark.evidence})
            elif mark.shape == "root":
                root_evidence = root_evidence or mark.evidence
    found = sorted(found, key=lambda event: event["x"])[:40]
    if picture.root_x is not None and picture.root is not None:
        found.append({"kind": "root", "x": float(picture.root_x), "text": picture.root.text, "evidence": root_evidence})
    if picture.end_x is not None and picture.end is not None:
        found.append({"kind": "end", "x": float(picture.end_x), "text": picture.end.text})
    return found
