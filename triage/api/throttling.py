"""Calls a minute, counted in the broker so that every web process counts the same. Without it nobody is refused."""

from __future__ import annotations

import logging
import time
from functools import cache
from typing import Any

import redis
from django.conf import settings
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from triage.models import ApiToken

logger = logging.getLogger(__name__)
WINDOW = 60


class RateThrottle(BaseThrottle):
    """At most FAULTLINE_API_RATE calls in each minute of the clock. Leaves `rate` on the request for the headers."""

    def __init__(self) -> None:
        self._left = 0.0

    def allow_request(self, request: Request, view: Any) -> bool:
        limit = settings.FAULTLINE_API_RATE
        if not limit:
            return True
        now = time.time()
        window, self._left = int(now // WINDOW), WINDOW - now % WINDOW
        try:
            with _broker().pipeline(transaction=False) as pipe:
                key = f"faultline:rate:{_who(request)}:{window}"
                count = int(pipe.incr(key).expire(key, 2 * WINDOW).execute()[0])
        except (redis.RedisError, OSError) as error:
            logger.warning("calls are not counted, the broker was not reached: %s", error)
            return True
        request._request.rate = {  # type: ignore[attr-defined]
            "X-RateLimit-Limit": str(limit),
            "X-RateLimit-Remaining": str(max(0, limit - count)),
            "X-RateLimit-Reset": str(int(self._left) + 1),
        }
        return count <= limit

    def wait(self) -> float:
        return self._left


@cache
def _broker() -> redis.Redis:
    return redis.Redis.from_url(settings.REDIS_URL, socket_connect_timeout=0.5, socket_timeout=0.5)


def _who(request: Request) -> str:
    if isinstance(request.auth, ApiToken):
        return f"t{request.auth.pk}"
    if request.user and request.user.is_authenticated:
        return f"u{request.user.pk}"
    return f"a{request.META.get('REMOTE_ADDR', '')}"
