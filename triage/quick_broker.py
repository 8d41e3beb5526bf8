"""The broker as a small store, for answers that must not wait for it."""

from __future__ import annotations

from functools import cache

import redis
from django.conf import settings


@cache
def quick_broker() -> redis.Redis:
    """One for the whole process; gives up after half a second."""
    return redis.Redis.from_url(settings.REDIS_URL, socket_connect_timeout=0.5, socket_timeout=0.5)
