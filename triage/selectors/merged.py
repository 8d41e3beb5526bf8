"""Several streams of an attempt merged by time: complete between two moments, with each node's clock put right."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from engine.model import Source
from triage import times
from triage.models import Attempt, Stream
from triage.selectors.streams import StreamGone, StreamLine, lines_around_time

MAX_LANES = 8
REACH = 60
"""Lines of each stream on both sides of the moment."""
_CORRECTED = re.compile(r"corrected by ([+-]\d{1,6}) s for this node's clock")


@dataclass(frozen=True)
class MergedLine:
    """One line in its place in time."""

    lane: int
    line: StreamLine
    at: datetime
    """Its own time, or that of the line before it; with the node's clock put right."""
    own: bool
    """Whether the line tells that time itself."""


@dataclass(frozen=True)
class LaneInfo:
    """One stream of the merge."""

    number: int
    stream: Stream
    correction: float
    """Seconds added to the times that it wrote."""
    tells_time: bool
    lines: int
    """How many of its lines are in the merged span."""


@dataclass(frozen=True)
class Merged:
    lanes: tuple[LaneInfo, ...]
    lines: tuple[MergedLine, ...]
    """In the order of time; every line of every lane between `first` and `last`."""
    first: datetime | None
    last: datetime | None
    has_before: bool
    has_after: bool


def corrections(contract: Mapping[str, Any]) -> dict[str, float]:
    """Seconds that the engine added to the clock of a node's kernel log, by node, as its evidence says."""
    found: dict[str, float] = {}
    for item in contract.get("evidence", ()):
        match = _CORRECTED.search(item.get("clock") or "")
        if match and item.get("node"):
            found[item["node"]] = float(match[1])
    return found


def merge(
    attempt: Attempt, streams: Sequence[Stream], at: datetime, corrected: Mapping[str, float], reach: int = REACH
) -> Merged:
    """The streams around a moment. A stream whose lines tell no times has a lane without lines."""
    lanes: list[tuple[Stream, float, bool]] = []
    collected: list[list[MergedLine]] = []
    low: list[datetime] = []
    high: list[datetime] = []
    for number, stream in enumerate(streams[:MAX_LANES]):
        stream.attempt = attempt
        own = corrected.get(stream.node or "", 0.0) if stream.source == Source.SYSLOG.value else 0.0
        by = timedelta(seconds=own)
        try:
            window = lines_around_time(stream, at - by, before=reach, after=reach)
        except StreamGone:
            window = None
        timed = _timed(window.lines, number, by) if window else []
        lanes.append((stream, own, bool(timed)))
        collected.append(timed)
        if window and timed:
            if window.has_before:
                low.append(min(timed[0].at, at))
            if window.has_after:
                high.append(max(timed[-1].at, at))
    first, last = max(low, default=None), min(high, default=None)
    kept = [
        [line for line in lane if (first is None or line.at >= first) and (last is None or line.at <= last)]
        for lane in collected
    ]
    lines = sorted((line for lane in kept for line in lane), key=lambda line: (line.at, line.lane, line.line.number))
    return Merged(
        lanes=tuple(
            LaneInfo(number, stream, own, tells, len(kept[number])) for number, (stream, own, tells) in enumerate(lanes)
        ),
        lines=tuple(lines),
        first=lines[0].at if lines else None,
        last=lines[-1].at if lines else None,
        has_before=bool(low),
        has_after=bool(high),
    )


def _timed(lines: Sequence[StreamLine], lane: int, by: timedelta) -> list[MergedLine]:
    """Lines with a time each: what tells none belongs to the line before it."""
    known = next((line.at for line in lines if line.at is not None), None)
    if known is None:
        return []
    made = []
    for line in lines:
        known = line.at or known
        made.append(MergedLine(lane, line, known + by, line.at is not None))
    return made


def failing_evidence(contract: Mapping[str, Any]) -> set[str]:
    """Ids of the evidence of the root and of what it explains; without a root, of every symptom."""
    root = contract.get("root_cause")
    owners = [symptom for symptom in contract["symptoms"] if symptom["explained_by"] or not root]
    return {ref for owner in [*([root] if root else []), *owners] for ref in owner["evidence"]}


def first_failures(contract: Mapping[str, Any]) -> dict[str, tuple[datetime, str]]:
    """By stream, when it first reported a cause or a symptom, and by which evidence. Streams that didn't are absent."""
    cited = failing_evidence(contract)
    found: dict[str, tuple[datetime, str]] = {}
    for item in contract["evidence"]:
        at = times.parse(item["at"])
        if item["id"] in cited and at is not None and (item["stream"] not in found or at < found[item["stream"]][0]):
            found[item["stream"]] = (at, item["id"])
    return found
