"""Several streams of an attempt merged by time: complete between two moments, with each node's clock put right.

A stream in which many ranks write can be parted into a lane a rank.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from engine.lines import clean
from engine.model import Source
from triage import times
from triage.models import Attempt, Stream
from triage.selectors.streams import StreamGone, StreamLine, lines_around_time

MAX_LANES = 8
REACH = 60
"""Lines of each stream on both sides of the moment."""
RANKED_REACH = 480
"""The same of a stream that is parted by ranks: of each rank only a few of them are."""
MAX_RANK_BYTES = 4096
"""Of a line that are looked at for its rank."""
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
    rank: int | None = None
    """The rank that wrote it, where the line says so and its stream doesn't."""


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
    rank: int | None = None
    """Of a stream that is parted by ranks: the lane's."""


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
    attempt: Attempt,
    streams: Sequence[Stream],
    at: datetime,
    corrected: Mapping[str, float],
    reach: int = REACH,
    ranks: Sequence[int] = (),
) -> Merged:
    """The streams around a moment. A stream whose lines tell no times has a lane without lines.

    With `ranks`, a job's log that many ranks write has a lane for each of these that writes there, and a log of another
    rank has none.
    """
    lanes: list[tuple[Stream, float, bool, int | None]] = []
    collected: list[list[MergedLine]] = []
    low: list[datetime] = []
    high: list[datetime] = []
    for stream in streams:
        if len(lanes) >= MAX_LANES or (ranks and stream.rank is not None and stream.rank not in ranks):
            continue
        stream.attempt = attempt
        parted = bool(ranks) and stream.rank is None and stream.source == Source.APPLOG.value
        own = corrected.get(stream.node or "", 0.0) if stream.source == Source.SYSLOG.value else 0.0
        by = timedelta(seconds=own)
        wide = RANKED_REACH if parted else reach
        try:
            window = lines_around_time(stream, at - by, before=wide, after=wide)
        except StreamGone:
            window = None
        timed = _timed(window.lines, stream, by) if window else []
        parts = _by_rank(timed, ranks, MAX_LANES - len(lanes)) if parted else [(None, timed)]
        for rank, part in parts:
            lanes.append((stream, own, bool(part), rank))
            collected.append([replace(line, lane=len(lanes) - 1) for line in part])
        if window and timed and parts:
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
            LaneInfo(number, stream, own, tells, len(kept[number]), rank)
            for number, (stream, own, tells, rank) in enumerate(lanes)
        ),
        lines=tuple(lines),
        first=lines[0].at if lines else None,
        last=lines[-1].at if lines else None,
        has_before=bool(low),
        has_after=bool(high),
    )


def _by_rank(lines: Sequence[MergedLine], ranks: Sequence[int], most: int) -> list[tuple[int | None, list[MergedLine]]]:
    """The lines of each of these ranks that wrote any; lines that name no rank belong to nobody."""
    parts: dict[int, list[MergedLine]] = {}
    for line in lines:
        if line.rank is not None and line.rank in ranks:
            parts.setdefault(line.rank, []).append(line)
    return [(rank, parts[rank]) for rank in ranks if rank in parts][:most]


def _rank_of(line: StreamLine, stream: Stream) -> int | None:
    """The rank that a line says it is of; a number within the node is counted on from the allocation's order."""
    told = clean(line.text.encode("utf-8", "surrogateescape")[:MAX_RANK_BYTES])
    if told.rank is not None or told.local_rank is None:
        return told.rank
    attempt = stream.attempt
    if stream.node in attempt.nodes and attempt.gpus_per_node:
        return attempt.nodes.index(stream.node) * attempt.gpus_per_node + told.local_rank
    return None


def _timed(lines: Sequence[StreamLine], stream: Stream, by: timedelta) -> list[MergedLine]:
    """Lines with a time each: what tells none belongs to the line before it."""
    known = next((line.at for line in lines if line.at is not None), None)
    if known is None:
        return []
    made = []
    whose = stream.rank is None and stream.source == Source.APPLOG.value
    for line in lines:
        known = line.at or known
        rank = _rank_of(line, stream) if whose else None
        made.append(MergedLine(0, line, known + by, line.at is not None, rank))
    return made


def failing_evidence(contract: Mapping[str, Any]) -> set[str]:
    """Ids of the evidence of the root and of what it explains; without a root, of every symptom."""
    root = contract.get("root_cause")
    owners = [symptom for symptom in contract["symptoms"] if symptom["explained_by"] or not root]
    return {ref for owner in [*([root] if root else []), *owners] for ref in owner["evidence"]}


def first_failures(contract: Mapping[str, Any]) -> dict[tuple[str, int | None], tuple[datetime, str]]:
    """By stream, and by stream and rank, when it first reported a cause or a symptom, and by which evidence. Who didn't
    is absent.
    """
    cited = failing_evidence(contract)
    found: dict[tuple[str, int | None], tuple[datetime, str]] = {}
    for item in contract["evidence"]:
        at = times.parse(item["at"])
        if item["id"] not in cited or at is None:
            continue
        for key in {(item["stream"], None), (item["stream"], item.get("rank"))}:
            if key not in found or at < found[key][0]:
                found[key] = (at, item["id"])
    return found
