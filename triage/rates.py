"""How often something was done in this minute of the clock, counted in the broker so that every process counts the
same. Without the broker nothing is counted and nobody is refused.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

import redis

from triage.quick_broker import quick_broker

logger = logging.getLogger(__name__)
WINDOW = 60


@dataclass(frozen=True)
class Counted:
    """`times` in this minute, this one included; `left` seconds until the next begins."""

    times: int
    left: float


def counted(who: str) -> Counted | None:
    """Counts one more for `who`; None when the broker was not reached."""
    now = time.time()
    key = f"faultline:rate:{who}:{int(now // WINDOW)}"
    try:
        with quick_broker().pipeline(transaction=False) as pipe:
            times = int(pipe.incr(key).expire(key, 2 * WINDOW).execute()[0])
    except (redis.RedisError, OSError) as error:
        logger.warning("calls are not counted, the broker was not reached: %s", error)
        return None
    return Counted(times, WINDOW - now % WINDOW)
