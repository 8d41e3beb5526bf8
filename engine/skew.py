"""Nodes whose clocks are wrong by minutes: how far, and of which of their logs that must be taken off.

A clock is known to be wrong by the moment at which the node's slurmd launched the job, by what the node's time service
says again and again, and by the job's own logs: all nodes take a training's step together, begin and end together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from statistics import median

import msgspec

from engine.clock import WITH_THE_JOB, StreamClock
from engine.lines import FARTHEST_ZONE, ZONE_GRID
from engine.medians import median_of_others
from engine.model import Source
from engine.origin import Places
from engine.scan import Mark, StreamScan
from engine.window import Window

LEAST, MOST = 90.0, 6 * 3600.0
"""A node's clock counts as skewed when it is off by at least, at most so many seconds."""
ALIKE = LEAST / 9
"""Seconds by which several tellings of one skew may differ."""
ENDS_ALIKE = 30.0
"""The same for when logs begin and end."""
LEAST_STEPS = 8
"""Steps that nodes must have in common before they tell a skew."""
LONG_ENOUGH = 600.0
"""Seconds of steps in which nodes that don't wait for each other would have drifted apart."""

Clocks = Mapping[str, StreamClock]
Spans = Mapping[str, tuple[float, float]]
"""Node -> when its logs begin and end, by its own clock."""


class Skews(msgspec.Struct, frozen=True):
    """Seconds by which nodes' clocks are ahead; nodes whose clocks are right are left out."""

    of_system: dict[str, float] = {}
    of_jobs: dict[str, float] = {}
    """For the job's logs: what the job wrote there has the node's own time too."""

    def __bool__(self) -> bool:
        return bool(self.of_system or self.of_jobs)

    def ahead(self, source: Source, node: str | None) -> float:
        """What is to be taken off the stamps that a node wrote into a log of this kind."""
        known = {Source.SYSLOG: self.of_system, Source.APPLOG: self.of_jobs}.get(source, {})
        return known.get(node or "", 0.0)


def skews(scans: Sequence[StreamScan], clocks: Clocks, places: Places, window: Window) -> Skews:
    """By the moment of launch, else by the node's time service, else by the job's own logs."""
    logs = [scan for scan in scans if scan.stream.source is Source.APPLOG]
    spans = _spans(logs, clocks, places)
    stepped = _by_steps(logs, clocks, places, window, spans)
    by_logs = {node: off for node, off in stepped.items() if off} | _by_ends(spans, window, stepped)
    launched = dict(_by_launch(scans, clocks, places, window))
    told = _by_time_service(scans, places) | {n: off for n, off in launched.items() if not _is_zone(off)}
    believed = {node: off for node, off in told.items() if node not in stepped and _fits(off, spans.get(node), window)}
    return Skews(by_logs | told | launched, believed | by_logs)


def launches(scans: Iterable[StreamScan], clocks: Clocks, places: Places) -> Iterator[tuple[str, float]]:
    """When each node's slurmd launched the job, by the node's own clock."""
    for scan in scans:
        node = places.stream_node(scan.stream)
        if scan.stream.source is not Source.SYSLOG or node is None:
            continue
        for hit in scan.hits:
            if hit.rule.id == "origin.slurmd-launch" and hit.captures.get("job") == places.attempt.workload.id:
                at = clocks[scan.stream.name].resolve(hit.stamp).at
                if at is not None:
                    yield node, at


def node_of_mark(mark: Mark, scan: StreamScan, places: Places) -> str | None:
    """The node on which a line of progress was written: its log's, in a log of all ranks the rank's."""
    return places.stream_node(scan.stream) or (places.ranks.get(mark.rank) if mark.rank is not None else None)


def _by_launch(
    scans: Iterable[StreamScan], clocks: Clocks, places: Places, window: Window
) -> Iterator[tuple[str, float]]:
    if window.start is None:
        return
    seen: set[str] = set()
    for node, at in launches(scans, clocks, places):
        off = at - window.start
        if node not in seen and abs(off) > LEAST and (abs(off) < MOST or _is_zone(off)):
            seen.add(node)
            yield node, off


def _is_zone(off: float) -> bool:
    """Rather another zone than a wrong clock."""
    return abs(off - round(off / ZONE_GRID) * ZONE_GRID) < LEAST and abs(off) < FARTHEST_ZONE


def _by_time_service(scans: Iterable[StreamScan], places: Places) -> dict[str, float]:
    """Said again and again, and not set right since."""
    found: dict[str, float] = {}
    for scan in scans:
        node = places.stream_node(scan.stream)
        if scan.stream.source is not Source.SYSLOG or node is None:
            continue
        said = [hit for hit in scan.hits if hit.rule.id == "origin.clock-step"]
        if not all("clock wrong by" in hit.text for hit in said):
            continue  # before and after it was set its lines are by different clocks
        off = [-float(hit.captures["seconds"]) for hit in said]
        if len(off) >= 2 and max(off) - min(off) < ALIKE and LEAST < abs(median(off)) < MOST:
            found[node] = median(off)
    return found


def _by_steps(
    logs: Sequence[StreamScan], clocks: Clocks, places: Places, window: Window, spans: Spans
) -> dict[str, float]:
    """Node -> how far its clock is off by the steps that it took with the others; 0 where it is right.

    Nodes that take steps at a pace of their own drift apart; a clock that is wrong is always wrong by as much.
    """
    taken: dict[str, dict[tuple[str, int], float]] = defaultdict(dict)
    for scan in logs:
        for mark in scan.marks:
            number = mark.number
            node = node_of_mark(mark, scan, places) if number is not None and mark.exact else None
            at = clocks[scan.stream.name].resolve(mark.stamp).at
            if node is not None and number is not None and at is not None:
                step = (mark.rule.id, number)
                taken[node][step] = min(at, taken[node].get(step, at))
    everyone: dict[tuple[str, int], list[float]] = defaultdict(list)
    for steps in taken.values():
        for step, at in steps.items():
            everyone[step].append(at)
    for times in everyone.values():
        times.sort()
    found: dict[str, float] = {}
    for node, steps in taken.items():
        shared = [(at, everyone[step]) for step, at in steps.items() if len(everyone[step]) > 1]
        apart = [at - median_of_others(times, at) for at, times in shared]
        judges = min((len(times) - 1 for _, times in shared), default=len(taken) - 1)
        off = median(apart) if apart else 0.0
        if len(apart) < LEAST_STEPS or sum(abs(one - off) > ALIKE for one in apart) > 0.05 * len(apart):
            continue
        # Of two nodes each is as far from the other: the one that leaves the job's time is wrong.
        outvoted = judges >= 2 and max(steps.values()) - min(steps.values()) > LONG_ENOUGH
        if abs(off) <= LEAST:
            found[node] = 0.0
        elif abs(off) < MOST and (outvoted or _leaves((*steps.values(), *spans.get(node, ())), off, window)):
            found[node] = off
    return found


def _by_ends(spans: Spans, window: Window, stepped: Mapping[str, float]) -> dict[str, float]:
    """How far a node's clock is off by when its log begins and ends, where that is outside the job's time."""
    found: dict[str, float] = {}
    begins, ends = sorted(first for first, _ in spans.values()), sorted(last for _, last in spans.values())
    for node, (first, last) in spans.items():
        if node in stepped or len(spans) < 2:
            continue
        early, late = first - median_of_others(begins, first), last - median_of_others(ends, last)
        off = (early + late) / 2
        if LEAST < abs(off) < MOST and abs(early - late) < ENDS_ALIKE and _leaves((first, last), off, window):
            found[node] = off
    return found


def _spans(logs: Sequence[StreamScan], clocks: Clocks, places: Places) -> Spans:
    found: dict[str, tuple[float, float]] = {}
    for scan in logs:
        node, clock = places.stream_node(scan.stream), clocks[scan.stream.name]
        stamps = (scan.first, scan.last, *(hit.stamp for hit in scan.hits if hit.inherited is None))
        times = [at for stamp in stamps if (at := clock.resolve(stamp).at) is not None]
        if node is not None and times:
            times = sorted(chain(times, found.get(node, ())))
            found[node] = times[0], times[-1]
    return found


def _leaves(times: Iterable[float], off: float, window: Window) -> bool:
    """Are these stamps outside the job's time by something like `off`, and inside it without?"""
    stamps = sorted(times)
    if not stamps or window.start is None or window.end is None:
        return False
    if off > 0:
        return stamps[-1] - window.end > LEAST / 2 and stamps[0] - off > window.start - WITH_THE_JOB / 5
    return window.start - stamps[0] > LEAST / 2 and stamps[-1] - off < window.end + WITH_THE_JOB / 5


def _fits(off: float, span: tuple[float, float] | None, window: Window) -> bool:
    """Is a node's log in the job's time without `off`, so that its stamps can be of that clock? In a log of many nodes
    only steps tell.
    """
    if span is None or window.start is None or window.end is None:
        return False
    slack = WITH_THE_JOB / 5
    return span[0] - off > window.start - slack and span[1] - off < window.end + slack
