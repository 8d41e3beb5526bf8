"""Intervals for counts: what else fits, when so few were seen. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import exp, lgamma, log, sqrt

Z = 1.959963984540054
"""Of the normal distribution, for 95 % in the middle."""
Z_STRICT = 3.290526731491925
"""The same for 99.9 %: for when many are looked at and one in forty would stand out by chance."""


@dataclass(frozen=True)
class Share:
    """`hits` of `trials`, with the 95 % Wilson interval of the share. Everything from 0 to 1."""

    hits: int
    trials: int
    share: float
    low: float
    high: float


def wilson(hits: int, trials: int, z: float = Z) -> Share:
    """The share of hits and its interval; 0 to 1 when nothing was tried."""
    if trials <= 0:
        return Share(0, 0, 0.0, 0.0, 1.0)
    share = hits / trials
    middle = share + z * z / (2 * trials)
    spread = z * sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    low = 0.0 if hits == 0 else max(0.0, (middle - spread) / scale)
    high = 1.0 if hits == trials else min(1.0, (middle + spread) / scale)
    return Share(hits, trials, share, low, high)


@dataclass(frozen=True)
class Between:
    """Hours between events, with the 95 % interval; `high` is None when there may be no end to it."""

    hours: float | None
    low: float
    high: float | None


def time_between(events: int, hours: float) -> Between:
    """Mean hours between events that were seen in so many hours (exact Poisson interval, Garwood 1936)."""
    low, high = poisson_interval(events)
    return Between(hours / events if events else None, hours / high, hours / low if low > 0 else None)


@lru_cache(maxsize=1024)
def poisson_interval(events: int) -> tuple[float, float]:
    """The 95 % interval of a Poisson mean of which `events` were seen. Beyond 60 by Byar's approximation."""
    if events > 60:
        return _byar(events, -Z), _byar(events + 1, Z)
    low = 0.0 if events == 0 else _solve(lambda mean: 1 - _poisson_below(events - 1, mean), 0.025, 0.0, float(events))
    high = _solve(
        lambda mean: -_poisson_below(events, mean), -0.025, float(events), events + 12 * sqrt(events + 1) + 12
    )
    return low, high


def _byar(events: float, z: float) -> float:
    return events * (1 - 1 / (9 * events) + z / (3 * sqrt(events))) ** 3


def _poisson_below(events: int, mean: float) -> float:
    """Probability of `events` or fewer."""
    if mean <= 0:
        return 1.0
    return min(1.0, sum(exp(k * log(mean) - mean - lgamma(k + 1)) for k in range(events + 1)))


def _solve(rising: object, target: float, low: float, high: float) -> float:
    """Where a rising function meets the target, by halving."""
    assert callable(rising)
    for _ in range(60):
        middle = (low + high) / 2
        if rising(middle) < target:
            low = middle
        else:
            high = middle
    return (low + high) / 2
