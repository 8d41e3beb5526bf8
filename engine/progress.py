"""Proof of life: when the job last made progress, how fast it was, and whether it slowed down."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import median

import msgspec

from engine.clock import StreamClock
from engine.model import Source
from engine.origin import Places
from engine.scan import Mark, StreamScan
from engine.skew import Skews, node_of_mark
from engine.window import Window

SLOWDOWN = 1.4
"""The job slowed down when iterations of a later, lasting part took this many times longer than those before."""
PLAINLY = 1.2
"""The same where hardly an iteration of the one part is as long as those of the other."""
LONGEST_START = 900.0
"""Seconds that a job may take before its first step, where nothing tells."""
LEAST_EPISODE, LONG_EPISODE = 12, 900.0
"""Iterations and seconds that a slow stretch must last at least, where the job became fast again."""
SETTLE = 5
"""First iterations that are ignored: compilation, caches, warm-up."""


class Step(msgspec.Struct, frozen=True):
    """One mark of progress with its time."""

    at: float | None
    stream: str
    mark: Mark
    node: str | None
    seconds: float | None


class Slowdown(msgspec.Struct, frozen=True):
    at: float
    """Of the first slow iteration that is known."""
    since: float
    """Of the last fast one before it; of long logs not every iteration is read."""
    until: float | None
    """Of the last slow iteration, where the job became as fast as before again."""
    before_s: float
    after_s: float
    step: Step
    pauses: bool = False
    """Are not the iterations slower, but the pauses between them longer? An evaluation may take its time."""

    @property
    def what(self) -> str:
        return "a pause between iterations" if self.pauses else "an iteration"


class Progress(msgspec.Struct):
    steps: list[Step] = []
    last: Step | None = None
    first: Step | None = None
    last_offsets: dict[str, int] = {}
    """stream -> offset of its last mark, for streams without times."""
    ordinary: list[float] = []
    """Times of ordinary lines of the job's log, where no line of progress is understood."""
    paced: list[tuple[float, float]] = []
    """When iterations ended, and how long they took, of the log that tells most."""
    iteration_s: float | None = None
    slowdown: Slowdown | None = None

    @property
    def last_at(self) -> float | None:
        """Not before this moment was the last progress."""
        return self.last.at if self.last else None

    def stopped_at(self, window: Window) -> float | None:
        """When progress stopped, where that can be said: by the last line's time, else by adding up the iterations.

        A sum that ends before a time stamp above the last line left something out: then the stamp counts.
        """
        if self.is_exact:
            return self.last_at
        if self.steps and window.start is not None and not any(step.mark.exact for step in self.steps):
            added = _added_up(self.steps, window.start)
            return added if added is None or self.last_at is None else max(added, self.last_at)
        return None

    def slow_for(self, window: Window) -> float:
        """Seconds for which iterations were slower, as far as is known; 0 where only pauses were longer."""
        slow = self.slowdown
        until = None if slow is None else slow.until if slow.until is not None else window.end or self.last_at
        return 0.0 if slow is None or slow.pauses or until is None else max(until - slow.since, 0.0)

    @property
    def is_exact(self) -> bool:
        """Does the last line of progress have a time of its own?"""
        if self.last is None:
            return False
        return all(step.mark.exact for step in self.steps if step.mark.offset == self.last_offsets.get(step.stream))


def _order(step: Step) -> tuple[float, str, int, int, str, str]:
    """By time; at one moment by place and content, so that other file names change nothing."""
    at = step.at if step.at is not None else float("-inf")
    rank = step.mark.rank if step.mark.rank is not None else -1
    return (at, step.node or "", rank, step.mark.offset, step.mark.sha256, step.stream)


def _added_up(steps: Sequence[Step], start: float) -> float | None:
    """The latest moment at which the last step can have ended, in a log without times whose lines tell the pace."""
    lanes: dict[tuple[str, int | None], list[tuple[int, float]]] = {}
    for step in steps:
        number = step.mark.number
        if step.seconds is not None and number is not None:
            lanes.setdefault((step.stream, step.mark.rank), []).append((number, step.seconds))
    spans = [
        (lane[-1][0] - lane[0][0]) * median([seconds for _, seconds in lane])
        for lane in lanes.values()
        if len(lane) >= 20 and lane[-1][0] > lane[0][0]
    ]
    return start + LONGEST_START + max(spans) * 1.1 if spans else None


def read_progress(
    scans: Sequence[StreamScan], clocks: Mapping[str, StreamClock], places: Places, off: Skews, window: Window
) -> Progress:
    """Progress of the whole job from the marks of every stream. `off`: what is taken off the times of wrong clocks."""
    progress = Progress()
    for scan in scans:
        node, clock = places.stream_node(scan.stream), clocks[scan.stream.name]
        for mark in scan.marks:
            at = clock.resolve(mark.stamp).at
            if at is not None and off:
                at -= off.ahead(scan.stream.source, node_of_mark(mark, scan, places))
            if at is not None and (window.before(at) or window.after(at)):
                continue
            progress.steps.append(Step(at, scan.stream.name, mark, node, _seconds(mark.captures)))
            progress.last_offsets[scan.stream.name] = max(mark.offset, progress.last_offsets.get(scan.stream.name, 0))
    if not progress.steps:
        stamps = [
            (scan, clocks[scan.stream.name].resolve(stamp).at)
            for scan in scans
            if scan.stream.source is Source.APPLOG
            for stamp in scan.ordinary
        ]
        progress.ordinary = sorted(
            at - off.ahead(scan.stream.source, places.stream_node(scan.stream)) for scan, at in stamps if at is not None
        )
    progress.steps.sort(key=_order)
    paced = _paced(progress.steps, window)
    timed = [step for step in progress.steps if step.at is not None]
    if timed:
        progress.first, progress.last = timed[0], timed[-1]
    if paced:
        progress.paced = [(step.at, seconds) for step, seconds in paced if step.at is not None]
        progress.iteration_s = median([seconds for _, seconds in paced])
        progress.slowdown = _slowdown(paced)
        if progress.slowdown is not None and _keeps_its_rate(paced, progress.slowdown):
            progress.slowdown = None
    return progress


def usual_gap(steps: Sequence[Step]) -> float:
    """The longest time that usually passes between two lines of progress of the job; 0 when nothing tells.

    Of long logs only some lines are read. What was left out may hide a pause, which is no longer than the time that
    its iterations don't account for.
    """
    lanes: dict[str, list[tuple[int, float, Step]]] = {}
    for step in steps:
        if step.at is not None:
            lanes.setdefault(step.stream, []).append((step.mark.offset, step.at, step))
    read, unread, pauses = _Spans(), _Spans(), list[float]()
    for lane in lanes.values():
        lane.sort(key=lambda one: one[0])
        pace = _pace(lane)
        for (_, before, earlier), (_, after, step) in pairwise(lane):
            (unread if step.mark.skipped else read).add(before, after)
            if step.mark.skipped:
                accounted = (pace or 0.0) * max(_passed(earlier, step), 0)
                pauses.append(max(after - before - accounted, 0.0))
    times = sorted(at for lane in lanes.values() for _, at, _ in lane)
    gaps = sorted(
        pauses
        + [
            after - before
            for before, after in pairwise(times)
            if read.cover(before, after) or not unread.cover(before, after)
        ]
    )
    return max(median(gaps), gaps[int(len(gaps) * 0.99)]) if gaps else 0.0


def _pace(lane: Sequence[tuple[int, float, Step]]) -> float | None:
    """Seconds an iteration, by lines of which none between them was left out."""
    found = [
        (after - before) / passed
        for (_, before, earlier), (_, after, step) in pairwise(lane)
        if not step.mark.skipped and (passed := _passed(earlier, step)) > 0
    ]
    return median(found) if found else None


class _Spans:
    """Whether one of several spans of time covers another one; asked in order of time."""

    def __init__(self) -> None:
        self._spans: list[tuple[float, float]] = []
        self._at, self._latest = 0, float("-inf")
        self._sorted = False

    def add(self, start: float, end: float) -> None:
        self._spans.append((min(start, end), max(start, end)))

    def cover(self, start: float, end: float) -> bool:
        if not self._sorted:
            self._spans.sort()
            self._sorted = True
        while self._at < len(self._spans) and self._spans[self._at][0] <= start:
            self._latest = max(self._latest, self._spans[self._at][1])
            self._at += 1
        return self._latest >= end


def _seconds(captures: dict[str, str]) -> float | None:
    for key, scale in (("step_ms", 0.001), ("step_s", 1.0)):
        try:
            return float(captures[key].replace(",", "")) * scale
        except (KeyError, ValueError):
            continue
    try:
        rate = float(captures["steps_per_s"].replace(",", ""))
    except (KeyError, ValueError):
        return None
    return 1.0 / rate if rate > 0 else None


def longest_lane(steps: Iterable[Step]) -> list[Step]:
    """The steps of the one writer that tells most, in the order given; [] of none."""
    lanes: dict[tuple[str, int | None, str], list[Step]] = {}
    for step in steps:
        lanes.setdefault((step.stream, step.mark.rank, step.mark.rule.id), []).append(step)
    return max(lanes.values(), key=_how_much_it_tells, default=[])


def _how_much_it_tells(lane: Sequence[Step]) -> tuple[int, int, str, str]:
    first = lane[0]
    return len(lane), -(first.mark.rank or 0), first.mark.sha256, first.stream


def _paced(steps: Sequence[Step], window: Window) -> list[tuple[Step, float]]:
    """Steps of the stream that tells most, each with its iteration time: as logged, else between its marks."""
    lane = longest_lane(steps)
    logged = [(step, step.seconds) for step in lane if step.seconds is not None]
    if len(logged) >= len(lane) * 0.8:
        if sum(step.mark.exact for step, _ in logged) < len(logged) / 2:
            logged = _timed_by_pace(logged, window)
        logged = [(step, seconds) for step, seconds in logged if step.at is not None]
        return logged[SETTLE:] if len(logged) > 4 * SETTLE else logged
    gaps = []
    for before, step in pairwise(lane):
        passed = _passed(before, step)
        if before.at is not None and step.at is not None and passed and 0 < passed <= 10_000:
            gaps.append((step, (step.at - before.at) / passed))
    return gaps[SETTLE:] if len(gaps) > 4 * SETTLE else gaps


def _timed_by_pace(lane: Sequence[tuple[Step, float]], window: Window) -> list[tuple[Step, float]]:
    """Steps of a log without times, with the moments that their own pace gives them within the attempt.

    The sum of the iterations leaves out what came between them: it may be too early, by as much as it falls short.
    """
    if window.start is None or window.end is None:
        return []
    in_order = sorted(lane, key=lambda pair: pair[0].mark.offset)
    passed, moments = 0.0, []
    last: int | None = None
    for step, seconds in in_order:
        number = step.mark.number
        ahead = number - last if number is not None and last is not None else 1
        passed += seconds * (ahead if 0 < ahead <= 10_000 else 1)
        last = number
        moments.append(passed)
    scale = min(1.0, (window.end - window.start) / passed) if passed > 0 else 1.0
    return [
        (msgspec.structs.replace(step, at=window.start + at * scale), seconds)
        for (step, seconds), at in zip(in_order, moments, strict=True)
    ]


_RATE = re.compile(
    r"(?i)\b(?:tok(?:en)?s?(?:/s(?:ec(?:ond)?)?|_per_s(?:ec(?:ond)?)?)(?:[/_](?:gpu|device))?|tps|tgs|tflops?(?:/s)?|mfu)"
    r"[\s\"':=]{1,3}(\d[\d,]*(?:\.\d+)?)"
)
"""How much work is done in a time: unlike samples or iterations of it, these don't fall when each is made larger."""
KEPT = 0.85


def _keeps_its_rate(paced: Sequence[tuple[Step, float]], slow: Slowdown) -> bool:
    """Do the lines of progress tell that as much work is done in a time as before? Then each iteration does more."""
    before, after = list[float](), list[float]()
    for step, _ in paced:
        told = _RATE.search(step.mark.text)
        if told is not None and step.at is not None:
            is_slow = step.at >= slow.at and (slow.until is None or step.at <= slow.until)
            (after if is_slow else before).append(float(told[1].replace(",", "")))
    return len(before) >= SETTLE and len(after) >= SETTLE and median(after) >= KEPT * median(before)


def _passed(before: Step, step: Step) -> int:
    """Iterations between two marks, by their numbers where they have some."""
    first, second = before.mark.number, step.mark.number
    return 1 if first is None or second is None else second - first


def _slowdown(paced: Sequence[tuple[Step, float]]) -> Slowdown | None:
    """The moment from which iterations stayed slower until the end, if there is one, else the time when they were."""
    return _for_good(paced) or _for_a_while(paced)


def _for_a_while(paced: Sequence[tuple[Step, float]]) -> Slowdown | None:
    """A long stretch of slow iterations with fast ones before and after it."""
    times = [seconds for _, seconds in paced]
    if len(times) < 3 * LEAST_EPISODE:
        return None
    usual = sorted(times)[len(times) // 4]
    slow = [seconds >= usual * SLOWDOWN for seconds in times]
    first, end = _densest(slow)
    inside, outside = slow[first:end], slow[:first] + slow[end:]
    if not LEAST_EPISODE <= len(inside) <= len(times) - 2 * LEAST_EPISODE or min(first, len(times) - end) < 6:
        return None
    if sum(inside) < 0.9 * len(inside) or sum(outside) > 0.05 * len(outside):
        return None
    step, before, last = paced[first][0], paced[first - 1][0], paced[end - 1][0]
    if step.at is None or last.at is None or last.at - step.at < LONG_EPISODE:
        return None
    fast = [seconds for seconds, is_slow in zip(times, slow, strict=True) if not is_slow]
    return Slowdown(step.at, before.at or step.at, last.at, median(fast), median(times[first:end]), step)


def _densest(flags: Sequence[bool]) -> tuple[int, int]:
    """The stretch with the most set flags, each other one in it counting against three of them: first and end."""
    best, first, end = 0, 0, 0
    total, start = 0, 0
    for index, flag in enumerate(flags):
        if total <= 0:
            total, start = 0, index
        total += 1 if flag else -3
        if total > best:
            best, first, end = total, start, index + 1
    return first, end


def _for_good(paced: Sequence[tuple[Step, float]]) -> Slowdown | None:
    times = [seconds for _, seconds in paced]
    if len(times) < 12:
        return None
    size = max(len(times) // 60, 1)
    first, last = max(6, len(times) // 20), len(times) - max(5, len(times) // 12)
    best = _parting(times, range(first, last, size))
    if best is not None:
        best = _parting(times, range(max(best[1] - size, first), min(best[1] + size, last)))
    if best is None or best[0] > len(times) * 0.12:
        return None
    was, became = median(times[: best[1]]), median(times[best[1] :])
    if became < was * SLOWDOWN and best[0] > len(times) * 0.02:
        return None
    step, before = paced[best[1]][0], paced[best[1] - 1][0]
    at = step.at or 0.0
    return Slowdown(at, before.at or at, None, was, became, step)


def _parting(times: Sequence[float], cuts: Iterable[int]) -> tuple[int, int] | None:
    """The cut that parts fast iterations from slow ones best: how many are on the wrong side, and where."""
    best: tuple[int, int] | None = None
    for cut in cuts:
        ahead, behind = median(times[:cut]), median(times[cut:])
        if ahead > 0 and behind / ahead >= PLAINLY:
            middle = (ahead + behind) / 2
            # Slow iterations may be of any length, as long as they are longer than the fast ones.
            longer = min(middle, ahead * PLAINLY) if behind / ahead >= SLOWDOWN else middle
            wrong = sum(t > middle for t in times[:cut]) + sum(t < longer for t in times[cut:])
            if best is None or wrong < best[0]:
                best = (wrong, cut)
    return best
