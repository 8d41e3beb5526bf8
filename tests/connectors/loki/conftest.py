"""What the tests of the Loki connector share."""

from __future__ import annotations

from typing import Any

from connectors.base import CollectionReport, CollectRequest, Limits
from connectors.loki.connector import LokiConnector
from engine.model import Attempt, Stream, Workload

START = 1_780_000_000
"""When the attempt began, in epoch seconds."""
NS = 10**9
APPLOG = {"source": "applog", "query": '{job_id="{job_id}"}'}
SYSLOG = {"source": "syslog", "query": '{job="journal", host=~"{nodes_regex}"}'}


def attempt(*nodes: str, seconds: float = 600.0, workload: str = "4242", **more: Any) -> Attempt:
    return Attempt(
        workload=Workload(id=workload, scheduler="slurm", **more),
        state="FAILED",
        started_at=float(START),
        ended_at=START + seconds,
        nodes=nodes or ("gx-01", "gx-02"),
    )


class Collected:
    """Everything of one collection, with the lines as they were read while it was open."""

    def __init__(self) -> None:
        self.streams: list[Stream] = []
        self.content: dict[str, bytes] = {}
        self.reports: dict[str, CollectionReport] = {}

    def texts(self, name: str) -> list[str]:
        """The lines without their CRI prefix."""
        return [line.split(" ", 3)[3] for line in self.content[name].decode().splitlines()]


def collect(
    url: str, *queries: dict[str, Any], of: Attempt | None = None, limits: Limits | None = None, **config: Any
) -> Collected:
    connector = LokiConnector.from_config({"url": url, "queries": list(queries) or [APPLOG], **config})
    request = CollectRequest(attempt=of or attempt(), ref="4242", limits=limits or Limits())
    found = Collected()
    with connector.collect(request) as collected:
        for stream in collected.streams():
            with stream.open() as content:
                found.content[stream.name] = content.read()
            found.streams.append(stream)
        found.reports = {report.source: report for report in collected.reports()}
    return found
