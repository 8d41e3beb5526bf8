"""Health for load balancers and people: the process lives; it can do its work."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import redis
from django.conf import settings
from django.db import connection
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

import engine
from triage.access.rights import open_to_all

logger = logging.getLogger(__name__)

WORKER_KEY = "faultline:worker:"
BEAT_KEY = "faultline:beat"
WORKER_TTL_SECONDS = 15
"""A worker says every two seconds that it lives; after so long it doesn't count any more."""


@open_to_all
@never_cache
@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    """The process lives."""
    return JsonResponse({"status": "ok"})


@open_to_all
@never_cache
@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """Database, broker and a worker answer; 503 when one of them doesn't. Says which, never why: that is in the log."""
    checks = {"database": _works(_ask_database), "broker": _works(_ask_broker), "worker": _works(_ask_worker)}
    ready = all(checks.values())
    answer = {
        "status": "ok" if ready else "unavailable",
        "checks": {name: "ok" if ok else "down" for name, ok in checks.items()},
    }
    return JsonResponse(answer, status=200 if ready else 503)


def broker_client() -> redis.Redis:
    """A connection to the broker that gives up quickly. Close it (or use it as a context manager)."""
    return redis.Redis.from_url(settings.REDIS_URL, socket_connect_timeout=1, socket_timeout=1)


def record_worker(hostname: str) -> None:
    """Says for a worker that it lives; called with each of its heartbeats."""
    with broker_client() as client:
        client.set(f"{WORKER_KEY}{hostname}", engine.__version__, ex=WORKER_TTL_SECONDS)


def workers() -> dict[str, str]:
    """The workers that live, and the engine's version that each runs. Raises redis.RedisError."""
    with broker_client() as client:
        keys = sorted(client.scan_iter(f"{WORKER_KEY}*", count=1000))
        versions = client.mget(keys) if keys else []
    return {
        key.decode().removeprefix(WORKER_KEY): version.decode()
        for key, version in zip(keys, versions, strict=True)
        if version is not None
    }


def record_beat() -> None:
    """Says that what beat asks for is done; called with each sweep."""
    with broker_client() as client:
        client.set(BEAT_KEY, repr(time.time()))


def last_beat() -> float | None:
    """When that was last said, in epoch seconds. Raises redis.RedisError."""
    with broker_client() as client:
        said = client.get(BEAT_KEY)
    return None if said is None else float(said)


def _works(ask: Callable[[], bool]) -> bool:
    try:
        return ask()
    except Exception as error:
        logger.warning("readyz: %s: %s", ask.__name__.removeprefix("_ask_"), error)
        return False


def _ask_database() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM django_migrations LIMIT 1")
        return cursor.fetchone() is not None


def _ask_broker() -> bool:
    with broker_client() as client:
        return bool(client.ping())


def _ask_worker() -> bool:
    with broker_client() as client:
        return next(client.scan_iter(f"{WORKER_KEY}*", count=1000), None) is not None
