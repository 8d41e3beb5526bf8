"""Metric series -> signals: detectors with stated thresholds over Prometheus query results.

A signal's text is a sentence with the series, the values and the time, so that a reader can check it against the plot.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import pairwise
from math import isfinite
from statistics import median
from typing import Any

import msgspec

from engine.clock import Stamp, StreamClock
from engine.findings import Placed
from engine.lines import Line
from engine.medians import median_of_others
from engine.model import Role, Source, Stream
from engine.origin import Places, normal_device
from engine.ruleset import Matcher, MetricSpec, Rule, Ruleset, build_rule
from engine.scan import Hit
from engine.window import Window

MAX_BYTES = 512 * 2**20
SLOWDOWN = "throughput.slowdown"
"""The rule of the symptom that engine/progress.py finds."""
_LAST = 1e10
"""No sample is later (the year 2286): such a number is not a time."""
ALIKE = 2 / 3
"""At least this part of the others must be alike for one to be called an outlier."""
OUTDONE = 30.0
"""So many times faster another counter grows where this one's growth is only what comes of it."""
LONG_UNUSED = 1800.0
"""Seconds for which a counter must have been looked at to be called unused."""
_NODE_LABELS = (
    "Hostname",
    "hostname",
    "node",
    "instance",
    "host",
    "nodename",
    "kubernetes_node",
    "exported_instance",
    "exported_host",
)
_DEVICE_LABELS = ("device", "pci_bus_id", "pciBusId", "gpu", "GPU", "chip", "interface", "sensor")


class Series(msgspec.Struct):
    """One metric of one thing over time."""

    name: str
    labels: dict[str, str]
    times: list[float]
    values: list[float]
    stream: str
    offset: int
    line: int
    node: str | None
    device: str | None


class Seen(msgspec.Struct, frozen=True):
    """What a detector found in one series."""

    at: float
    said: str
    """What the series did, as the end of a sentence."""
    until: float | None = None
    """The last sample that shows it; None where it did not end."""
    again: float | None = None
    """When it happened last, of what happens again and again."""


class Measured(msgspec.Struct):
    series: list[Series] = []
    hits: list[tuple[Rule, Series, Seen, str]] = []
    streams: int = 0
    errors: list[str] = []
    samples: int = 0


def read_series(streams: Sequence[Stream], ruleset: Ruleset, places: Places, window: Window) -> Measured:
    """Read every metric stream and run the detectors of the metric rules."""
    found = Measured()
    for stream in streams:
        if stream.source is not Source.METRIC:
            continue
        found.streams += 1
        try:
            with stream.open() as source:
                content = source.read(MAX_BYTES)
            found.series += _parse(content, stream, places)
        except (OSError, ValueError, msgspec.DecodeError, RecursionError) as error:
            found.errors.append(f"{stream.name}: {' '.join(str(error).split())[:200]}")
    found.series.sort(key=lambda s: (s.name, s.node or "", s.device or "", sorted(s.labels.items())))
    found.samples = sum(len(series.times) for series in found.series)
    for matcher in ruleset.metric_matchers:
        if matcher.spec.metric is not None:
            found.hits += list(_run(matcher, matcher.spec.metric, found.series, window, places))
    return found


def series_of(stream: Stream, places: Places, most: int = MAX_BYTES) -> list[Series]:
    """The series of one metric stream, of its first `most` bytes at most. Raises OSError and ValueError (msgspec's
    DecodeError is one), which say what is wrong with it.
    """
    with stream.open() as source:
        content = source.read(most + 1)
    if len(content) > most:
        raise ValueError(f"larger than {most} bytes")
    return list(_parse(content, stream, places))


def _parse(content: bytes, stream: Stream, places: Places) -> Iterable[Series]:
    document = msgspec.json.decode(content)
    data = document.get("data", document) if isinstance(document, dict) else document
    results = data.get("result", []) if isinstance(data, dict) else data
    if not isinstance(results, list):
        raise ValueError("no result list: not the answer of a Prometheus query")
    position, line, labelled = 0, 1, True
    for result in results:
        named = result.get("metric", {}) if isinstance(result, dict) else None
        if not isinstance(named, dict):
            continue
        labels = {str(k): str(v)[:1000] for k, v in named.items()}
        pairs = result.get("values") or ([result["value"]] if result.get("value") else [])
        times, values = _numbers(pairs)
        # Sought no more once there is none: that would look through the rest of the file for every result.
        found = content.find(b'"metric"', position) if labelled else -1
        labelled, found = found >= 0, max(found, position)
        line += content.count(b"\n", position, found)
        position = found
        node = _node(labels, places)
        device = next((labels[key] for key in _DEVICE_LABELS if labels.get(key)), None)
        if device and labels.get("port") and "infiniband" in labels.get("__name__", ""):
            device = f"{device}:{labels['port']}"
        series = Series(
            labels.get("__name__", _stem(stream.name)),
            labels,
            times,
            values,
            stream.name,
            position,
            line,
            node,
            normal_device(device) if device else None,
        )
        position += 1
        if times:
            yield series


def _stem(name: str) -> str:
    return name.rsplit("/", 1)[-1].removesuffix(".json")


def _numbers(pairs: Any) -> tuple[list[float], list[float]]:
    """Times and values in the order of time, without what is no number."""
    found = []
    for pair in pairs if isinstance(pairs, list) else []:
        try:
            at, value = float(pair[0]), float(pair[1])
        except (TypeError, ValueError, IndexError, KeyError, OverflowError):
            continue
        if 0 <= at < _LAST and isfinite(value):
            found.append((at, value))
    found.sort(key=lambda pair: pair[0])
    return [at for at, _ in found], [value for _, value in found]


def _node(labels: dict[str, str], places: Places) -> str | None:
    if labels.get("__name__", "").startswith("kube_"):
        # Told by the service that watches the cluster: `instance` is where that runs.
        told = labels.get("node") or labels.get("exported_node")
        return (places.known(told) or told) if told else places.pods.get(labels.get("pod", ""))
    for key in _NODE_LABELS:
        host = re.sub(r":\d+\Z", "", labels.get(key, ""))
        if host:
            known = places.known(host) or places.ips.get(host) or places.pods.get(host)
            if known:
                return known
    first = next((labels[key] for key in _NODE_LABELS if labels.get(key)), None)
    return re.sub(r":\d+\Z", "", first) if first else None


def _run(
    matcher: Matcher, spec: MetricSpec, everything: list[Series], window: Window, places: Places
) -> Iterable[tuple[Rule, Series, Seen, str]]:
    wanted = [
        s
        for s in everything
        if s.name in spec.names and all(re.search(p, s.labels.get(k, "")) for k, p in spec.labels.items())
    ]
    # A container's series belong to a pod; what other pods of a node do is not the job's.
    wanted = [
        s
        for s in wanted
        if not (
            s.name.startswith(("container_", "kube_pod_")) and places.is_another_jobs("Pod", s.labels.get("pod", ""))
        )
    ]
    inside = [_inside(series, window) for series in wanted]
    peers = _Peers(inside)
    for series, part in zip(wanted, inside, strict=True):
        found = _DETECTORS[spec.detector](spec, part, peers) if part.times else None
        if found is not None:
            label = f"{series.name} of {series.node or '?'}" + (f" {series.device}" if series.device else "")
            yield matcher.meaning({}), series, found, f"{label} {found.said}"


class _Peers:
    """All series of a detector. What they are compared by is worked out once: a job has thousands of them."""

    def __init__(self, everyone: Sequence[Series]) -> None:
        self._everyone = everyone
        self._most_risen: float | None = None

    @cached_property
    def _levels(self) -> dict[int, float]:
        long = [s for s in self._everyone if len(s.values) > 2]
        return {id(s): median(_rates_if_counter(s).values) for s in long}

    @cached_property
    def _growths(self) -> dict[int, float]:
        return {id(s): max(s.values[-1] - s.values[0], 0.0) for s in self._everyone if len(s.values) > 1}

    @cached_property
    def levels(self) -> list[float]:
        """Usual values of all, in order."""
        return sorted(self._levels.values())

    @cached_property
    def growths(self) -> list[float]:
        """By how much all grew, in order."""
        return sorted(self._growths.values())

    def growth(self, mine: Series) -> float:
        return self._growths[id(mine)]

    def spread(self, usual: float, own: float) -> float:
        """How far the others' usual values are from theirs together, in the middle."""
        if usual not in self._spreads:
            self._spreads[usual] = sorted(abs(level - usual) for level in self.levels)
        return median_of_others(self._spreads[usual], abs(own - usual))

    def within(self, usual: float, near: float) -> int:
        """How many usual values are as near as that to what is usual."""
        return bisect_right(self._spreads[usual], near)

    def stepped(self, mine: Series, spec: MetricSpec, direction: int) -> tuple[int, int]:
        """How many of the others there are, and how many of them changed their level alike."""
        if direction not in self._steps:
            rates = [(id(s), _rates_if_counter(s)) for s in self._everyone]
            self._steps[direction] = {one for one, rate in rates if _step(spec, rate, direction) is not None}
        stepped = self._steps[direction]
        return len(self._everyone) - 1, len(stepped) - (id(mine) in stepped)

    @cached_property
    def _spreads(self) -> dict[float, list[float]]:
        """The others' usual value, which is one of two or three whoever asks -> how far all are from it."""
        return {}

    def most_risen(self, spec: MetricSpec) -> float:
        """The highest rate a second to which a counter rose."""
        if self._most_risen is None:
            risen = (_risen(spec, s) for s in self._everyone)
            self._most_risen = max((one.after for one in risen if one is not None), default=0.0)
        return self._most_risen

    @cached_property
    def _steps(self) -> dict[int, set[int]]:
        return {}


def _inside(series: Series, window: Window) -> Series:
    low = bisect_left(series.times, window.start) if window.start is not None else 0
    high = bisect_left(series.times, window.end + 0.001) if window.end is not None else len(series.times)
    return msgspec.structs.replace(series, times=series.times[low:high], values=series.values[low:high])


def _lasting(flags: list[bool], least: int) -> int | None:
    """Index of the first of at least `least` set flags in a row."""
    run = 0
    for index, flag in enumerate(flags):
        run = run + 1 if flag else 0
        if run >= least:
            return index - least + 1
    return None


def _bits(spec: MetricSpec, series: Series, _peers: _Peers) -> Seen | None:
    flags = [int(value) & spec.mask != 0 for value in series.values]
    index = _lasting(flags, spec.min_samples)
    if index is None:
        return None
    said = f"is {int(series.values[index]):#x} (bits of {spec.mask:#x}) in {sum(flags)} of {len(flags)} samples"
    return Seen(series.times[index], said, _last(series, flags))


def _last(series: Series, flags: list[bool]) -> float:
    """When the last set flag was."""
    return max(at for at, flag in zip(series.times, flags, strict=True) if flag)


def _above(spec: MetricSpec, series: Series, _peers: _Peers) -> Seen | None:
    flags = [value > spec.threshold for value in series.values]
    return _crossed(spec, series, flags, "rises above {:g} (up to {:g})", max)


def _below(spec: MetricSpec, series: Series, _peers: _Peers) -> Seen | None:
    flags = [value < spec.threshold for value in series.values]
    return _crossed(spec, series, flags, "falls below {:g} (down to {:g})", min)


def _crossed(
    spec: MetricSpec, series: Series, flags: list[bool], words: str, furthest: Callable[[Iterable[float]], float]
) -> Seen | None:
    index = _lasting(flags, spec.min_samples)
    if index is None:
        return None
    said = words.format(spec.threshold, furthest(series.values[index:]))
    return Seen(series.times[index], said, _last(series, flags))


def _increase(spec: MetricSpec, series: Series, peers: _Peers) -> Seen | None:
    grown, first, last = 0.0, None, 0
    for index in range(1, len(series.values)):
        step = series.values[index] - series.values[index - 1]
        if step > 0:
            grown += step
            first, last = index if first is None else first, index
    least = max(spec.threshold, 1e-9)
    if first is None or grown < least:
        return None
    if len(peers.growths) > 1 and grown < 5 * median_of_others(peers.growths, peers.growth(series)):
        return None
    return Seen(series.times[first], f"grows by {grown:g}", series.times[last], series.times[last])


def _step(spec: MetricSpec, series: Series, direction: int) -> tuple[float, float, float] | None:
    """Where the level changes for good by at least the threshold: (time, before, after)."""
    values = series.values
    best: tuple[float, int, float, float] | None = None
    for cut in range(3, len(values) - 2, max(len(values) // 200, 1)):
        before, after = median(values[:cut]), median(values[cut:])
        change = (after - before) / abs(before) if before else 0.0
        if change * direction >= spec.threshold:
            middle = (before + after) / 2
            wrong = sum((v - middle) * direction > 0 for v in values[:cut]) + sum(
                (v - middle) * direction < 0 for v in values[cut:]
            )
            if best is None or wrong < best[0]:
                best = (wrong, cut, before, after)
    if best is None or best[0] > 0.15 * len(values):
        return None
    return series.times[best[1]], best[2], best[3]


def _rates_if_counter(series: Series) -> Series:
    """A counter (by its name, and never falling) as its rate a second."""
    return _rates(series) if series.name.lower().endswith(("_total", "_counter", "_violation")) else series


def _rates(series: Series) -> Series:
    rising = all(b >= a for a, b in pairwise(series.values))
    if not rising or len(series.values) < 3:
        return series
    pairs = list(zip(series.times, series.values, strict=True))
    rates = [(b[1] - a[1]) / max(b[0] - a[0], 1e-9) for a, b in pairwise(pairs)]
    return msgspec.structs.replace(series, times=series.times[1:], values=rates)


def _step_down(spec: MetricSpec, series: Series, peers: _Peers) -> Seen | None:
    return _stepped(spec, series, peers, -1)


def _step_up(spec: MetricSpec, series: Series, peers: _Peers) -> Seen | None:
    return _stepped(spec, series, peers, 1)


def _stepped(spec: MetricSpec, series: Series, peers: _Peers, direction: int) -> Seen | None:
    found = _step(spec, _rates_if_counter(series), direction)
    if found is None:
        return None
    others, alike = peers.stepped(series, spec, direction)
    if others and alike > others / 2 and not spec.alike:
        return None  # everyone alike: an effect, not this one's fault
    at, before, after = found
    return Seen(at, f"changes from {before:g} to {after:g}")


def _outlier(spec: MetricSpec, series: Series, peers: _Peers) -> Seen | None:
    mine, others = _rates_if_counter(series), len(peers.levels) - 1
    if others < 3 or len(mine.values) < 3:
        return None
    own = median(mine.values)
    usual = median_of_others(peers.levels, own)
    far = abs(own - usual)
    if usual == 0 or far / abs(usual) < spec.threshold:
        return None
    if far < 6 * (peers.spread(usual, own) or abs(usual) * 0.02):
        return None
    # Where the others are not of one mind, none is the odd one out: half of the nodes may be slow.
    near = abs(usual) * spec.threshold / 2
    if peers.within(usual, near) - (far <= near) < ALIKE * others:
        return None
    odd = [t for t, v in zip(mine.times, mine.values, strict=True) if abs(v - usual) / abs(usual) >= spec.threshold]
    odd = odd or [mine.times[0]]
    return Seen(odd[0], f"is {own:g} where its {others} peers are at {usual:g}", odd[-1])


def _changed(spec: MetricSpec, series: Series, _peers: _Peers) -> Seen | None:
    for index in range(1, len(series.values)):
        if series.values[index] != series.values[index - 1] and series.values[index] != 0:
            if spec.threshold and series.values[index] != spec.threshold:
                continue
            if spec.values and series.values[index] not in spec.values:
                continue
            said = f"changes from {series.values[index - 1]:g} to {series.values[index]:g}"
            return Seen(series.times[index], said)
    return None


def _rate_rises(spec: MetricSpec, series: Series, peers: _Peers) -> Seen | None:
    """A counter that grew by less than half of the threshold a second, and from some moment on by at least as much;
    unless another one's does so by far more: then this one only feels it.
    """
    found = _risen(spec, series)
    if found is None or found.after * OUTDONE < peers.most_risen(spec):
        return None
    said = f"grows by {found.after:.3g} a second instead of {found.before:.3g}"
    return Seen(found.at, said, again=found.last)


class _Risen(msgspec.Struct, frozen=True, gc=False):
    at: float
    last: float
    """When the rate was last high."""
    before: float
    after: float


def _risen(spec: MetricSpec, series: Series) -> _Risen | None:
    rate = _rates(series)
    if rate is series or len(rate.values) < 2 * spec.min_samples:
        return None
    high = [value >= spec.threshold / 2 for value in rate.values]
    best = _parting(high)
    if min(best, len(high) - best) < spec.min_samples:
        return None
    before, after = median(rate.values[:best]), median(rate.values[best:])
    wrong = sum(high[:best]) + sum(not one for one in high[best:])
    if before >= spec.threshold / 2 or after < spec.threshold or wrong > 0.1 * len(high):
        return None
    last = max(at for at, one in zip(rate.times, high, strict=True) if one)
    return _Risen(rate.times[best], last, before, after)


def _unused(spec: MetricSpec, series: Series, peers: _Peers) -> Seen | None:
    """A counter that hardly grew for the whole of a long time, as did those of all others."""
    lasted = series.times[-1] - series.times[0]
    most = spec.threshold * lasted
    grown = series.values[-1] - series.values[0]
    if lasted < LONG_UNUSED or not 0 <= grown <= most or peers.growths[-1] > most:
        return None
    return Seen(series.times[0], f"grows by {grown:g} in {lasted / 60:.0f} min")


def _stays(spec: MetricSpec, series: Series, _peers: _Peers) -> Seen | None:
    """A gauge that is one of some values in every sample."""
    if len(series.values) < spec.min_samples or not set(series.values) <= set(spec.values):
        return None
    return Seen(series.times[0], f"is {series.values[0]:g} in all {len(series.values)} samples")


def _parting(high: list[bool]) -> int:
    """The index that parts low from high with the fewest on the wrong side."""
    wrong = least = sum(not one for one in high)
    best = 0
    for index, one in enumerate(high, 1):
        wrong += 1 if one else -1
        if wrong < least:
            least, best = wrong, index
    return best


_DETECTORS = {
    "rate_rises": _rate_rises,
    "unused": _unused,
    "stays": _stays,
    "bits": _bits,
    "above": _above,
    "below": _below,
    "increase": _increase,
    "step_down": _step_down,
    "step_up": _step_up,
    "outlier": _outlier,
    "changed": _changed,
}


def as_placed(measured: Measured, places: Places) -> list[Placed]:
    """Metric signals as placed hits."""
    out = []
    for rule, series, seen, said in measured.hits:
        hit = Hit(
            rule=rule,
            captures={},
            stream=series.stream,
            source=Source.METRIC,
            offset=series.offset,
            line=series.line,
            text=said,
            cleaned=Line([said], []),
            stamp=Stamp("epoch", seen.at, 0),
        )
        aside = None
        if series.node and places.attempt.nodes and not places.known(series.node):
            aside = f"{series.node} is not one of the attempt's nodes"
        out.append(
            Placed(
                hit,
                rule,
                seen.at,
                "own: sample time",
                series.node,
                None,
                series.device,
                aside=aside,
                elapsed=rule.delay,
                until=seen.until,
                again=seen.again,
            )
        )
    return out


def slowdown_rule() -> Rule:
    """The symptom that engine/progress.py finds; not in a pack because no pattern finds it."""
    return build_rule(
        {
            "id": SLOWDOWN,
            "title": "{what} and stayed so",
            "role": Role.SYMPTOM,
            "guide": "Compare the nodes' clocks, temperatures, link rates and storage waits before and after.",
            "does_not_prove": "Which node is slow: a synchronous job waits for the slowest.",
        },
        "active",
    )


def clock_of(stream: Stream, window: Window) -> StreamClock:
    return StreamClock(window.start, window.end)
