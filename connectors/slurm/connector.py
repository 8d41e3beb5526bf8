"""Slurm: finds attempts in accounting, collects what accounting, controller, jobs and daemons left of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from connectors.base import CollectionReport, CollectRequest, Found, check_report
from connectors.http import Deadline
from connectors.reach import ANYWHERE, Reach
from connectors.slurm.client import CommandClient, SlurmClient
from connectors.slurm.collection import SlurmCollection
from connectors.slurm.config import SlurmConfig
from connectors.slurm.rest import RestClient
from connectors.slurm.search import Search, cursor_since
from connectors.spool import Spool

FIND_SECONDS = float("inf")
"""A search may have much to tell; each of its questions has a limit of its own."""
CHECK_SECONDS = 10.0


class SlurmConnector:
    """See docs/connectors/slurm.md for the configuration."""

    def __init__(self, config: SlurmConfig) -> None:
        self.name = config.name
        self.patience = 10 * config.runner.seconds
        self._config = config

    @classmethod
    def from_config(cls, config: Mapping[str, Any], reach: Reach = ANYWHERE) -> SlurmConnector:
        """From plain values. Raises ConfigError."""
        return cls(SlurmConfig.parse(config, reach))

    def find(self, cursor: dict[str, Any], stop: threading.Event | None = None) -> Iterator[Found]:
        """Attempts that ended since `cursor`, in order of their end; see search.py. Raises ConnectorError."""
        yield from Search(self._config, self._client(Deadline(FIND_SECONDS, stop)), cursor).run()

    @staticmethod
    def cursor_since(at: float) -> dict[str, Any]:
        """A cursor for attempts that ended at `at` (epoch seconds) or later."""
        return cursor_since(at)

    @contextmanager
    def collect(self, request: CollectRequest, stop: threading.Event | None = None) -> Iterator[SlurmCollection]:
        """The attempt's streams. While they are taken, a ConnectorError is raised when nothing at all could be had and
        may be had later; all else is in the reports.
        """
        with Spool.usable(self._config.spool_dir, f"{self.name}: ") as spool:
            client = self._client(Deadline(request.limits.seconds, stop))
            yield SlurmCollection(self._config, client, spool, request)

    def check(self, seconds: float = CHECK_SECONDS) -> CollectionReport:
        """Do accounting and controller answer? Within `seconds`."""
        client = self._client(Deadline(seconds))

        def ask() -> tuple[str, str]:
            if client.ping():
                return "ok", ""
            return "empty", (
                "Slurm answers, but shows no job of the last hour: none ran, or PrivateData hides them from us"
            )

        report = check_report(self.name, client.asked, ask)
        missing = [str(here) for _, here in self._config.roots if not here.is_dir()]
        if not missing:
            return report
        status = "partial" if report.status in ("ok", "empty") else report.status
        note = f"roots: {missing[0]} is no folder here: mount it, or correct roots"
        return msgspec.structs.replace(report, status=status, note="; ".join(filter(None, [report.note, note])))

    def _client(self, deadline: Deadline) -> SlurmClient:
        if self._config.rest is not None:
            return RestClient(self._config, deadline)
        return CommandClient(self._config, deadline)
