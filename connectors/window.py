"""Which stretch of time a source is asked for."""

from __future__ import annotations

import time

from engine.model import Attempt, rfc3339

UNKNOWN_START_SECONDS = 24 * 3600.0
"""How far back is looked when only the end of an attempt is known."""


def window_of(attempt: Attempt, before: float, after: float) -> tuple[float, float] | None:
    """(start, end) in epoch seconds, never beyond now; None when the attempt has neither start nor end."""
    now = time.time()
    if attempt.started_at is None and attempt.ended_at is None:
        return None
    end = now if attempt.ended_at is None else attempt.ended_at + after
    start = (attempt.ended_at or now) - UNKNOWN_START_SECONDS if attempt.started_at is None else attempt.started_at
    start -= before
    return (start, min(end, now)) if start < min(end, now) else None


def minutes(at: float) -> str:
    """A time for people."""
    return (rfc3339(at) or "")[:19] + "Z"


NO_WINDOW = "the scheduler tells neither start nor end of the attempt, so there is no time to ask for"
