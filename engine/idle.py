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
from engine.findings import Window
from engine.origin import Places
from engine.series import Series

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
    """The one node whose GPUs, or some of them, stopped working while most others of the job spin."""
    nobody = Missing()
    if stopped is None or window.end is None or window.end - stopped < LEAST_STILL:
        return nobody
    spinning, idle = 0, list[tuple[str, Series, float]]()
    for one in series:
        full = FULL.get(one.name)
        node = places.known(one.node)
        if full is None or node is None:
            continue
        pairs = [(at, value / full) for at, value in zip(one.times, one.values, strict=True) if at <= window.end]
        before = [value for at, value in pairs if at <= stopped and not window.before(at)]
        # What the GPU still did when the last line of progress was written says nothing of the wait.
        still = [(at, value) for at, value in pairs if at > stopped + LEAST_STILL / 4]
        if len(still) < LEAST_SAMPLES or not before:
            continue
        used = [value for _, value in still]
        if median(used) >= SPINS:
            spinning += 1
        elif max(used) <= IDLES and median(before) >= WORKED:
            idle.append((node, one, still[0][0]))
        else:
            return nobody  # some GPUs do something else: who waits for whom is not told
    nodes = {node for node, *_ in idle}
    if len(nodes) != 1 or len(idle) >= spinning:
        return nobody
    facts = [_fact(one, node, spinning, at) for node, one, at in idle]
    return Missing((), tuple(nodes), by="use of the GPUs", facts=facts)


def _fact(series: Series, node: str, spinning: int, at: float) -> Fact:
    """That one GPU idles, said of a sample that shows it."""
    gpu = f"{series.name} of {node} {series.device or '?'}"
    text = f"collective idle: {gpu} shows no work from here on, {spinning} others are at their top"
    return Fact(text, series.offset, series.line, Stamp("epoch", at, 0), node, "collective", {"stream": series.stream})
