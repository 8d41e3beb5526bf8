"""What every collection from an HTTP server begins with: a time limit, a place for what comes, a client."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from connectors.base import CollectRequest
from connectors.endpoint import Endpoint
from connectors.http import Deadline, HttpClient
from connectors.spool import Spool


class Asked(Protocol):
    """What of a connector's configuration is needed for it."""

    @property
    def name(self) -> str: ...
    @property
    def endpoint(self) -> Endpoint: ...
    @property
    def time_limit(self) -> float: ...
    @property
    def spool_dir(self) -> Path | None: ...


@contextmanager
def asking(
    config: Asked, request: CollectRequest, stop: threading.Event | None
) -> Iterator[tuple[HttpClient, Deadline, Spool]]:
    """Open for one collection. Raises ConnectorError when the spool can't be written."""
    deadline = Deadline(min(config.time_limit, request.limits.seconds), stop)
    with Spool.usable(config.spool_dir, f"{config.name}: ") as spool, HttpClient(config.endpoint) as http:
        yield http, deadline, spool
