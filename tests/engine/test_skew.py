"""Nodes whose clocks are wrong by minutes: their words count when they were said, not when they were stamped."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from tests.engine.evidence import Evidence
from tests.engine.situations import expand, moment

NODES = ["om1", "om2", "om3", "om4"]
DOCUMENT = {
    "schema": 1,
    "workload": {"id": "4711", "name": "pretrain", "scheduler": "slurm", "cluster": "c1", "user": "user1"},
    "attempt": {
        "number": 1,
        "state": "FAILED",
        "exit_code": "1:0",
        "started_at": moment("02:00:00").isoformat(),
        "ended_at": moment("03:00:00").isoformat(),
        "nodes": NODES,
        "gpus_per_node": 8,
    },
}
STEPS = "~ {first} {last} 30 | {{py}} INFO trainer step {{n}} loss 2.01"
TICKS = "~ {first} {last} 30 | {{py}} INFO trainer still at it"
XID = "{sys} om3 kernel: NVRM: Xid (PCI:0000:5d:00): 94, pid=38486, name=python, Contained: CE User Channel (0x9)"
ECC = "{py} ERROR torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered"
PEERS = "~ {died} {died} 1 | {{py}} ncclRemoteError: A call failed possibly due to a network error"


def attempt(ahead: float, lines: str, nodes: int = 4) -> Evidence:
    """A GPU of om3 fails at 02:58:30 of the true time; the clock of om3 is `ahead` by so many seconds."""

    def by(clock: str, off: float) -> str:
        return f"{moment(clock) + timedelta(seconds=off):%H:%M:%S}"

    files = {}
    named = NODES[4 - nodes : 4] if nodes < 4 else NODES
    for node in named:
        off = ahead if node == "om3" else 0.0
        body = lines.format(first=by("02:00:20", off), last=by("02:58:20", off))
        died = by("02:58:30", off) if node == "om3" else "02:58:50"
        said = f"~ {died} {died} 1 | {ECC}" if node == "om3" else PEERS.format(died=died)
        files[f"applog/{node}.log"] = expand(f"{body}\n{said}", named, 8).encode()
    at = by("02:58:30", ahead)
    files["syslog/om3.log"] = expand(f"~ {at} {at} 1 | {XID}", named, 8).encode()
    document = DOCUMENT | {"attempt": DOCUMENT["attempt"] | {"nodes": named}}  # type: ignore[operator]
    return Evidence(document, files)


@pytest.mark.parametrize("lines", [STEPS, TICKS], ids=["steps", "no steps"])
@pytest.mark.parametrize("nodes", [2, 4])
@pytest.mark.parametrize("ahead", [0.0, 372.0, -372.0])
def test_a_wrong_clock_hides_no_fault(ahead: float, nodes: int, lines: str) -> None:
    found = attempt(ahead, lines, nodes).diagnosed()
    assert (found.domain, found.sub_domain) == ("hardware", "gpu_memory")
    assert found.root_cause is not None
    assert found.root_cause.nodes == ("om3",)
    off = datetime.fromisoformat(found.root_cause.at or "") - moment("02:58:30")
    assert abs(off.total_seconds()) < 35


def test_a_node_that_starts_late_and_goes_at_a_pace_of_its_own_has_no_wrong_clock() -> None:
    evidence = attempt(0.0, STEPS)
    late = expand("~ 02:06:20 02:58:20 35 | {py} INFO trainer step {n} loss 2.01\n", NODES, 8)
    files = dict(evidence.files) | {"applog/om3.log": late.encode()}
    found = Evidence(evidence.document, files).diagnosed()
    assert all("corrected" not in evidence.clock for evidence in found.evidence)
