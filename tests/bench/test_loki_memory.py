"""How much memory, and how long, the collecting of 2 GB from Loki takes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

import pytest

from tests.fakes.loki import Entry, FakeLoki

START = 1_780_000_000
LINES = 2_100_000
TEXT = "x" * 1000
MOST = 200 * 1024**2
COLLECT = """
import json, sys, time
from connectors.base import CollectRequest
from connectors.loki.connector import LokiConnector
from engine.model import Attempt, Workload
connector = LokiConnector.from_config(
    {"url": sys.argv[1], "queries": [{"source": "applog", "query": '{job="x"}'}], "time_limit": 1800}
)
began, size = time.time(), 0
start = float(sys.argv[2])
attempt = Attempt(workload=Workload(id="1"), started_at=start, ended_at=start + 3600, nodes=("gx-01", "gx-02"))
with connector.collect(CollectRequest(attempt=attempt, ref="")) as collected:
    for stream in collected.streams():
        with stream.open() as content:
            while block := content.read(1 << 16):
                size += len(block)
    (report,) = collected.reports()
peak = next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps([peak, size, report.lines, report.status, time.process_time(), time.time() - began]))
"""


class Lines(Sequence[Entry]):
    """Lines that are made when they are asked for."""

    def __init__(self, node: str) -> None:
        self._node = node

    def __len__(self) -> int:
        return LINES // 2

    def __getitem__(self, index: int) -> Entry:  # type: ignore[override]
        return Entry(START * 10**9 + index * 1_000_000, f"{self._node} {index} {TEXT}")


@pytest.mark.bench
def test_2_gb_are_collected_in_200_mb() -> None:
    with FakeLoki() as loki:
        for node in ("gx-01", "gx-02"):
            loki.hold({"job": "x", "node": node}, Lines(node))
        command = [sys.executable, "-c", COLLECT, loki.url, str(START)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    peak, size, lines, status, cpu, seconds = json.loads(done.stdout)
    print(f"\nloki: {size / 2**30:.2f} GiB, {lines} lines: {peak / 2**20:.0f} MB, {cpu:.0f} s CPU, {seconds:.0f} s")
    assert status == "ok" and lines == LINES and size > 2 * 2**30
    assert peak < MOST
