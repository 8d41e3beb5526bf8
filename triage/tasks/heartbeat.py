"""Keeps a lease alive beside long work."""

from __future__ import annotations

import contextvars
import logging
import threading
from collections.abc import Callable
from types import TracebackType

from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection

logger = logging.getLogger(__name__)


class LeaseLost(Exception):
    """Another worker, or a newer request, has taken over; what this one has done is dropped."""


class Heartbeat:
    """Calls `renew` every few seconds in a thread of its own until the block ends.

    `renew` returns False when the lease is lost; then `lost` is set and `check` raises.
    """

    def __init__(self, renew: Callable[[], bool], *, every: float | None = None) -> None:
        self._renew = renew
        self._every = every if every is not None else max(0.5, min(5.0, settings.FAULTLINE_LEASE_SECONDS / 4))
        self._done = threading.Event()
        self._thread = threading.Thread(
            target=contextvars.copy_context().run, args=[self._beat], name="heartbeat", daemon=True
        )
        self.lost = threading.Event()

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def check(self) -> None:
        """Raises LeaseLost when the lease is lost."""
        if self.lost.is_set():
            raise LeaseLost

    def _beat(self) -> None:
        try:
            while not self._done.wait(self._every):
                try:
                    if not self._renew():
                        self.lost.set()
                        return
                except (DatabaseError, InterfaceError) as error:
                    logger.warning("heartbeat not written: %s", error)
                    connection.close()
        finally:
            connection.close()
