"""Who idles while the others wait for it: utilisation of the GPUs after the job's last progress.

Waiting in a collective keeps a GPU busy at nearly 100 %. In a job that stands still, the few that do nothing at all are
those that never came to the collective.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from engine.clock import Stamp
from engine.collective import Missing
from engine.facts import Fact
from engine.origin import Places
from engine.series import Series
from engine.window import Window

LEAST_STILL = 480.0
"""Seconds without progress from which on what a GPU does tells who waits and who is waited for."""
LEAST_SAMPLES = 4
SPINS, IDLES, WORKED = 0.9, 0.02, 0.2
"""Parts of full utilisation: a GPU that waits in a collective, one without any work, one that once had work."""
FULL = {
    "DCGM_FI_DEV_GPU_UTIL": 100.0,
    "DCGM_FI_DEV_GPU_UTIL_RATIO": 1.0,
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 1.0,
    "nvidia_smi_utilization_gpu_ratio": 1.0,
}
"""Metric -> what it is when the GPU is busy all the time."""


def waited_for(series: Sequence[Series], stopped: float | None, window: Window, places: Places) -> Missing:
    """The one node whose GPUs, or some of them, stopped working while most others of the job spin until the end.

    `stopped`: when the job's last progress was, where that is known: the GPU did its last work then.
    """
    nobody = Missing()
    end = window.end
    known = [one for one in series if one.name in FULL and places.known(one.node)]
    idle = [(one, at) for one in known if (at := _idle_since(one, window)) is not None]
    if end is None or not idle:
        return nobody
    since = max(at for _, at in idle)
    nodes = {places.known(one.node) for one, _ in idle}
    if len(nodes) != 1 or end - since < LEAST_STILL or (stopped is not None and stopped > since + LEAST_STILL / 4):
        return nobody
    others = [_used(one, since, end) for one in known if all(one is not other for other, _ in idle)]
    spinning = [used for used in others if len(used) >= LEAST_SAMPLES and median(used) >= SPINS]
    if len(idle) >= len(spinning) or len(spinning) < len(others):
        return nobody  # some GPUs do something else: who waits for whom is not told
    facts = [_fact(one, str(places.known(one.node)), len(spinning), at) for one, at in idle]
    return Missing((), tuple(str(node) for node in nodes), by="use of the GPUs", facts=facts, since=since)


def _used(series: Series, since: float, end: float) -> list[float]:
    """Parts of full utilisation, from some time after `since` on: what was still done then says nothing of the wait."""
    full = FULL[series.name]
    pairs = zip(series.times, series.values, strict=True)
    return [value / full for at, value in pairs if since + LEAST_STILL / 4 < at <= end]


def _idle_since(series: Series, window: Window) -> float | None:
    """From when on a GPU that had worked did nothing until the end of the attempt; None where it did something."""
    full = FULL[series.name]
    if series.values and window.end is not None and series.times[-1] <= window.end and series.values[-1] > IDLES * full:
        return None  # nearly all of them
    inside = [
        (at, value / full)
        for at, value in zip(series.times, series.values, strict=True)
        if not window.before(at) and (window.end is None or at <= window.end)
    ]
    still = 0
    while still < len(inside) and inside[-1 - still][1] <= IDLES:
        still += 1
    worked = [value for _, value in inside[: len(inside) - still] if value > IDLES]
    if still < LEAST_SAMPLES or not worked or median(worked) < WORKED:
        return None
    return inside[-still][0]


def _fact(series: Series, node: str, spinning: int, at: float) -> Fact:
    """That one GPU idles, said of a sample that shows it."""
    gpu = f"{series.name} of {node} {series.device or '?'}"
    text = f"collective idle: {gpu} shows no work from here on, {spinning} others are at their top"
    return Fact(text, series.offset, series.line, Stamp("epoch", at, 0), node, "collective", {"stream": series.stream})
