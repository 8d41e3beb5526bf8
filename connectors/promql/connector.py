"""Metrics out of Prometheus, Mimir, Thanos or VictoriaMetrics. It finds no attempts; it collects their metrics."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from connectors.asking import asking
from connectors.base import CollectionReport, CollectRequest, CollectsOnly, check_report
from connectors.http import Deadline, HttpClient
from connectors.promql.client import PromClient, TooMuch
from connectors.promql.collection import PromCollection
from connectors.promql.config import PromConfig
from connectors.reach import ANYWHERE, Reach

CHECK_SECONDS = 10.0


class PromConnector(CollectsOnly):
    """See docs/connectors/promql.md for the configuration."""

    def __init__(self, config: PromConfig) -> None:
        self.name = config.name
        self._config = config

    @classmethod
    def from_config(cls, config: Mapping[str, Any], reach: Reach = ANYWHERE) -> PromConnector:
        """From plain values. Raises ConfigError."""
        return cls(PromConfig.parse(config, reach))

    @contextmanager
    def collect(self, request: CollectRequest, stop: threading.Event | None = None) -> Iterator[PromCollection]:
        """The metrics of the attempt's nodes. While streams are taken a ConnectorError is raised when the server gave
        nothing at all and may do so later; all else is in the report.
        """
        with asking(self._config, request, stop) as (http, deadline, spool):
            yield PromCollection(self._config, PromClient(http, deadline), spool, request)

    def check(self, seconds: float = CHECK_SECONDS) -> CollectionReport:
        """One cheap request: does it answer, is the login accepted, is anything scraped? Within `seconds`."""

        def ask() -> tuple[str, str]:
            try:
                with HttpClient(self._config.endpoint) as http:
                    targets = PromClient(http, Deadline(seconds)).count("up", time.time() - 60)
            except TooMuch as refused:
                return "error", str(refused)
            if targets:
                return "ok", ""
            return "empty", "it answers, but has no target (up): check tenant, and that it scrapes"

        return check_report(self.name, ["count(up)"], ask)
