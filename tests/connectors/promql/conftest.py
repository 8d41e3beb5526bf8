"""Real servers with the metrics of 64 nodes over a week."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.peers import leave_out
from tests.peers.metrics import SERVERS, Given, Server, why_not

NODES = tuple(f"gx-{number:02d}" for number in range(1, 65))
END = int(time.time()) // 3600 * 3600 - 3600
WEEK = 7 * 24 * 3600
START = END - WEEK
EVERY = 240
"""Seconds between two samples: below the look-back of 5 minutes, so that each step has a value."""
HOT = "gx-07"
"""The node whose GPU was slowed by heat half an hour before the end."""


def week() -> Iterator[Given]:
    """A week of metrics: what they were does not matter, but for gx-07."""
    times = range(START - 3600, END + 3600, EVERY)
    for node in NODES:
        temperature = [60 + (at // EVERY) % 9 for at in times]
        yield Given({"__name__": "DCGM_FI_DEV_GPU_TEMP", "Hostname": node, "gpu": "0"}, times, temperature)
    late = range(END - 7200, END + 600, 15)
    for node in NODES[:8]:
        reasons = [64.0 if node == HOT and END - 1800 <= at <= END - 900 else 0.0 for at in late]
        for gpu in "01":
            labels = {"__name__": "DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "Hostname": node, "gpu": gpu}
            yield Given(labels, late, reasons if gpu == "0" else [0.0] * len(late))
        port = {"instance": f"{node}:9100", "device": "mlx5_0", "port": "1"}
        yield Given({"__name__": "node_infiniband_state_id", **port}, late, [4.0] * len(late))
        boot = [float(START - 86400)] * len(late)
        yield Given({"__name__": "node_boot_time_seconds", "instance": f"{node}:9100"}, late, boot)
        yield Given({"__name__": "up", "instance": f"{node}:9100", "job": "node"}, late, [1.0] * len(late))
    for node in ("other-01", "gx-070"):  # not the attempt's; the second begins like one that is
        labels = {"__name__": "DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "Hostname": node, "gpu": "0"}
        yield Given(labels, late, [64.0] * len(late))


@pytest.fixture(scope="session", params=sorted(SERVERS))
def server(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Each of the real servers, with the week."""
    leave_out(why_not(request.param))
    with SERVERS[request.param](tmp_path_factory.mktemp(request.param), week()) as running:
        yield running
