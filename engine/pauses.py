"""Pauses between iterations that became much longer, while these kept their pace: saving, loading, evaluating."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from statistics import median

from engine.progress import Slowdown, Step, longest_lane

LEAST, TIMES = 30.0, 5
"""Seconds, and usual distances between lines of progress, from which on it is a pause."""
BEFORE, AFTER = 2, 3
"""So many pauses must have been as usual, and so many long ones must follow."""
LONGER, APART = 3.0, 1.5
"""How many times longer they are: usually, and at least of any of them."""
LOST, PART = 900.0, 0.1
"""Seconds, and part of the time since then, that the long ones must take."""


def lengthened(steps: Sequence[Step]) -> Slowdown | None:
    """From which pause on they took much longer, until the end; None where they did not."""
    timed = longest_lane(step for step in steps if step.at is not None and step.mark.exact)
    lane = sorted(timed, key=lambda step: step.mark.offset)
    gaps = [
        (before.at, step.at - before.at, step)
        for before, step in pairwise(lane)
        if before.at is not None and step.at is not None and not step.mark.skipped
    ]
    if len(gaps) < BEFORE + AFTER:
        return None
    usual = median(length for _, length, _ in gaps)
    pauses = [(at, length, step) for at, length, step in gaps if length > max(LEAST, TIMES * usual)]
    lengths = [length for _, length, _ in pauses]
    longest = list(accumulate(lengths, max))
    shortest = list(accumulate(reversed(lengths), min))[::-1]
    for cut in range(BEFORE, len(pauses) - AFTER + 1):
        # First what costs nothing: few cuts have all longer ones behind them, so that medians are sought of few.
        if shortest[cut] < APART * longest[cut - 1]:
            continue
        was, became = lengths[:cut], lengths[cut:]
        if median(became) < LONGER * median(was):
            continue
        began, _, step = pauses[cut]
        rest = (lane[-1].at or began) - began
        if sum(became) >= max(LOST, PART * rest):
            return Slowdown(began, began, None, median(was), median(became), step, pauses=True)
    return None
