"""Metrics out of Prometheus, Mimir, Thanos or VictoriaMetrics. It finds no attempts; it collects their metrics."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from connectors.base import CollectionReport, CollectRequest, ConnectorError, Found
from connectors.http import Deadline, HttpClient
from connectors.promql.client import PromClient, TooMuch
from connectors.promql.collection import PromCollection
from connectors.promql.config import PromConfig
from connectors.spool import Spool

CHECK_SECONDS = 10.0


class PromConnector:
    """See docs/connectors/promql.md for the configuration."""

    def __init__(self, config: PromConfig) -> None:
        self.name = config.name
        self._config = config

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> PromConnector:
        """From plain values. Raises ConfigError."""
        return cls(PromConfig.parse(config))

    def find(self, cursor: dict[str, Any]) -> Iterator[Found]:
        """Nothing: Prometheus knows nodes, not attempts."""
        return iter(())

    @contextmanager
    def collect(self, request: CollectRequest, stop: threading.Event | None = None) -> Iterator[PromCollection]:
        """The metrics of the attempt's nodes. While streams are taken a ConnectorError is raised when the server gave
        nothing at all and may do so later; all else is in the report.
        """
        deadline = Deadline(min(self._config.time_limit, request.limits.seconds), stop)
        try:
            spool = Spool(self._config.spool_dir)
        except OSError as error:
            where = self._config.spool_dir or "the folder for temporary files"
            raise ConnectorError(f"{self.name}: {where} can not be written ({error.strerror}): set spool_dir") from None
        with spool, HttpClient(self._config.endpoint) as http:
            yield PromCollection(self._config, PromClient(http, deadline), spool, request)

    def check(self, seconds: float = CHECK_SECONDS) -> CollectionReport:
        """One cheap request: does it answer, is the login accepted, is anything scraped? Within `seconds`."""
        began = time.monotonic()
        status, note = "ok", ""
        try:
            with HttpClient(self._config.endpoint) as http:
                targets = PromClient(http, Deadline(seconds)).count("up", time.time() - 60)
            if not targets:
                status, note = "empty", "it answers, but has no target (up): check tenant, and that it scrapes"
        except (ConnectorError, TooMuch) as error:
            status, note = "error", str(error)
        return CollectionReport(
            source=self.name,
            status=status,
            note=note,
            connector=self.name,
            duration_s=round(time.monotonic() - began, 3),
            query="count(up)",
        )
