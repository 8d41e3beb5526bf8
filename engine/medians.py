"""The median of all numbers but one, for everybody who is compared with the others."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


def median_of_others(in_order: Sequence[float], own: float) -> float:
    """The median of at least two sorted numbers without one of them; they are sorted once for all that ask."""
    at, others = bisect_left(in_order, own), len(in_order) - 1
    low, high = (others - 1) // 2, others // 2
    return (in_order[low + (low >= at)] + in_order[high + (high >= at)]) / 2
