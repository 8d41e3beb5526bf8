"""What beat asks for, at times that no step of a clock moves."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from celery.schedules import schedule

_STARTED = datetime.now(UTC) - timedelta(seconds=time.monotonic())


def steady_now() -> datetime:
    """The time of day as it was when this process started, and went on since: it is never stepped."""
    return _STARTED + timedelta(seconds=time.monotonic())


class Every(schedule):
    """Every so many seconds. Celery's own goes by the time of day: after a step back of an hour nothing would be due
    for an hour.
    """

    def __init__(self, run_every: float | timedelta, relative: bool = False, nowfun: object = None, app: object = None):
        super().__init__(run_every, relative, steady_now, app)

    def is_due(self, last_run_at: datetime) -> tuple[bool, float]:
        """Whether it is due, and in how many seconds to ask again. A last time that lies ahead was told by a clock that
        was wrong, before this process started or when it did: nobody knows how long ago that is, so it is due.
        """
        now = self.now()
        due: tuple[bool, float] = super().is_due(last_run_at if last_run_at <= now else now - self.run_every)
        return due
