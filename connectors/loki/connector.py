"""Log lines out of Loki. It finds no attempts; it collects the lines of those that a scheduler's connector found."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from connectors.asking import asking
from connectors.base import CollectionReport, CollectRequest, CollectsOnly, check_report
from connectors.http import Deadline, HttpClient
from connectors.loki.client import LokiClient
from connectors.loki.collection import LokiCollection
from connectors.loki.config import LokiConfig
from connectors.reach import ANYWHERE, Reach

CHECK_SECONDS = 10.0


class LokiConnector(CollectsOnly):
    """See docs/connectors/loki.md for the configuration."""

    def __init__(self, config: LokiConfig) -> None:
        self.name = config.name
        self._config = config

    @classmethod
    def from_config(cls, config: Mapping[str, Any], reach: Reach = ANYWHERE) -> LokiConnector:
        """From plain values. Raises ConfigError."""
        return cls(LokiConfig.parse(config, reach))

    @contextmanager
    def collect(self, request: CollectRequest, stop: threading.Event | None = None) -> Iterator[LokiCollection]:
        """The attempt's lines. While streams are taken a ConnectorError is raised when Loki gave nothing at all and
        may do so later; all else is in the reports.
        """
        with asking(self._config, request, stop) as (http, deadline, spool):
            yield LokiCollection(self._config, LokiClient(http, deadline), spool, request)

    def check(self, seconds: float = CHECK_SECONDS) -> CollectionReport:
        """One cheap request: does Loki answer, is the login accepted, are there labels? Within `seconds`."""

        def ask() -> tuple[str, str]:
            now = time.time_ns()
            with HttpClient(self._config.endpoint) as http:
                if LokiClient(http, Deadline(seconds)).labels(now - 3600 * 10**9, now):
                    return "ok", ""
            return "empty", "Loki answers, but has no line of the last hour: check tenant and the shippers"

        return check_report(self.name, [f"{self._config.endpoint.url}/loki/api/v1/labels"], ask)
