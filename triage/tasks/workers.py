"""Workers say that they live, for `/readyz`."""

from __future__ import annotations

import logging
from typing import Any

import redis
from celery.signals import heartbeat_sent

from triage.health import record_worker

logger = logging.getLogger(__name__)


@heartbeat_sent.connect
def say_alive(sender: Any = None, **details: Any) -> None:
    """With each heartbeat of the worker (every two seconds)."""
    hostname = getattr(getattr(sender, "eventer", None), "hostname", None) or "worker"
    try:
        record_worker(str(hostname))
    except redis.RedisError as error:
        logger.warning("worker's heartbeat not recorded: %s", error)
