"""Log lines out of Loki. It finds no attempts; it collects the lines of those that a scheduler's connector found."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from connectors.base import CollectionReport, CollectRequest, ConnectorError, Found
from connectors.http import Deadline, HttpClient
from connectors.loki.client import LokiClient
from connectors.loki.collection import LokiCollection
from connectors.loki.config import LokiConfig
from connectors.spool import Spool

CHECK_SECONDS = 10.0


class LokiConnector:
    """See docs/connectors/loki.md for the configuration."""

    def __init__(self, config: LokiConfig) -> None:
        self.name = config.name
        self._config = config

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> LokiConnector:
        """From plain values. Raises ConfigError."""
        return cls(LokiConfig.parse(config))

    def find(self, cursor: dict[str, Any]) -> Iterator[Found]:
        """Nothing: Loki knows lines, not attempts."""
        return iter(())

    @contextmanager
    def collect(self, request: CollectRequest, stop: threading.Event | None = None) -> Iterator[LokiCollection]:
        """The attempt's lines. While streams are taken a ConnectorError is raised when Loki gave nothing at all and
        may do so later; all else is in the reports.
        """
        deadline = Deadline(min(self._config.time_limit, request.limits.seconds), stop)
        try:
            spool = Spool(self._config.spool_dir)
        except OSError as error:
            where = self._config.spool_dir or "the folder for temporary files"
            raise ConnectorError(f"{self.name}: {where} can not be written ({error.strerror}): set spool_dir") from None
        with spool, HttpClient(self._config.endpoint) as http:
            yield LokiCollection(self._config, LokiClient(http, deadline), spool, request)

    def check(self, seconds: float = CHECK_SECONDS) -> CollectionReport:
        """One cheap request: does Loki answer, is the login accepted, are there labels? Within `seconds`."""
        began = time.monotonic()
        now = time.time_ns()
        status, note = "ok", ""
        try:
            with HttpClient(self._config.endpoint) as http:
                names = LokiClient(http, Deadline(seconds)).labels(now - 3600 * 10**9, now)
            if not names:
                status, note = "empty", "Loki answers, but has no line of the last hour: check tenant and the shippers"
        except ConnectorError as error:
            status, note = "error", str(error)
        return CollectionReport(
            source=self.name,
            status=status,
            note=note,
            connector=self.name,
            duration_s=round(time.monotonic() - began, 3),
            query=f"{self._config.endpoint.url}/loki/api/v1/labels",
        )
