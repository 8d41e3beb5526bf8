"""What beat asks for: of all that waited while no worker was there, one is done.

Beat asks again and again, and nobody may be there to hear. Messages that end by themselves would end at once where the
clocks of beat and worker differ, so they wait, and here all but the first of a turn are dropped. The broker's clock
says how long a turn is.
"""

from __future__ import annotations

import logging
from typing import Any

import redis
from celery import Task
from django.conf import settings

from triage.health import broker_client

logger = logging.getLogger(__name__)
TURN_KEY = "faultline:turn:"


class Periodic(Task):
    """A task that beat asks for. Called by anybody else it is simply done."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.request.get("celery_beat_task") and not _is_first_of_turn(self.name):
            return None
        return super().__call__(*args, **kwargs)


def _is_first_of_turn(name: str) -> bool:
    half = settings.FAULTLINE_BEAT_SECONDS[name.removeprefix("triage.")] * 500
    try:
        with broker_client() as broker:
            return bool(broker.set(f"{TURN_KEY}{name}", 1, nx=True, px=max(half, 1)))
    except redis.RedisError as error:
        logger.warning("whether %s was just done is not known: %s", name, error)
        return True
