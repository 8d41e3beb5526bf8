"""How many calls of programs a web process does at once, so that pages stay quick whatever comes.

A process has few threads, and a call that brings evidence, or waits for a diagnosis, holds one for long. Who finds no
place is told to come back in a moment, and nothing of theirs is kept meanwhile: neither in memory nor in a queue.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from django.conf import settings

from triage.api.problems import Problem

DRAINED = 1 << 20
"""Bytes of a body that are read before its call is refused: else the connection is cut before the answer is read."""
LATEST = 4
"""Seconds within which they are told to come back, each at another time."""


@contextmanager
def place(request: Any) -> Iterator[None]:
    """One of the places for calls that bring evidence. Raises Problem, 503 with Retry-After, when none is free."""
    places = _places("evidence", settings.FAULTLINE_INGEST_CALLS)
    if not places.acquire(blocking=False):
        if not request.headers.get("Expect"):
            request.read(DRAINED)
        again = str(random.randint(1, LATEST))
        raise Problem(503, "Too much arrives at once: come back in a moment.", headers={"Retry-After": again})
    try:
        yield
    finally:
        places.release()


@contextmanager
def waiting_place(seconds: float) -> Iterator[float]:
    """The seconds for which a call may wait for a diagnosis: none when enough others wait. It asks again then."""
    places = _places("waiting", max(1, settings.FAULTLINE_INGEST_CALLS // 2))
    if not seconds or not places.acquire(blocking=False):
        yield 0.0
        return
    try:
        yield seconds
    finally:
        places.release()


@cache
def _places(what: str, count: int) -> threading.BoundedSemaphore:
    return threading.BoundedSemaphore(count)
