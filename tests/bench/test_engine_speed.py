"""How fast and how small a diagnosis is: `make bench`. Prints figures; fails only where the engine left its bounds.

Process CPU time is measured, since a busy machine doesn't change it much. SIZE_MB chooses the log's size.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from engine.bundle import open_bundle
from engine.diagnose import diagnose
from engine.ruleset import load_ruleset

pytestmark = pytest.mark.bench

SIZE_MB = int(os.environ.get("SIZE_MB", "200"))
LEAST_MB_PER_CPU_SECOND = 20
MOST_RSS_MB = 400
ATTEMPT = """\
schema: 1
workload: {id: "9001", name: big-pretrain, scheduler: slurm, cluster: c1, user: user1, queue: gpu}
attempt:
  number: 1
  state: FAILED
  exit_code: "1:0"
  started_at: 2026-11-03T02:00:00Z
  ended_at: 2026-11-03T06:00:00Z
  nodes: [node-01, node-02]
  gpus_per_node: 8
"""
XID = "kernel: NVRM: Xid (PCI:0000:61:00): 79, pid=4242, name=python3, GPU has fallen off the bus."
TIMEOUT = (
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4211, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
    "Timeout(ms)=600000) ran for 600021 milliseconds before timing out."
)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One large merged log of 16 training ranks, and a GPU that falls off the bus at its end."""
    folder = tmp_path_factory.mktemp("bench") / "big"
    (folder / "applog").mkdir(parents=True)
    (folder / "syslog").mkdir()
    (folder / "attempt.yaml").write_text(ATTEMPT)
    start, size, step = datetime(2026, 11, 3, 2, tzinfo=UTC), 0, 0
    steps = SIZE_MB * 1_000_000 // 2200
    with (folder / "applog" / "merged.log").open("w") as log:
        while size < SIZE_MB * 1_000_000:
            at = start + timedelta(seconds=3 * 3600 * min(1.0, step / steps))
            for rank in range(16):
                size += log.write(
                    f"{rank}: {at:%Y-%m-%d %H:%M:%S,%f}"[:-3]
                    + f" [INFO] iteration {step:8d}/500000 | loss {2.5:.4f} | "
                    f"grad norm {0.31:.3f} | tokens/s {51200 + rank} | mem {61.2:.1f} GiB\n"
                )
            step += 1
        end = start + timedelta(hours=3, minutes=12)
        for rank in range(16):
            log.write(
                f"{rank}: [rank{rank}]:[E1103 {end:%H:%M:%S.%f} ProcessGroupNCCL.cpp:629] [Rank {rank}] {TIMEOUT}\n"
            )
    for node in ("node-01", "node-02"):
        line = f"2026-11-03T05:00:07.000000+00:00 {node} {XID}\n" if node == "node-02" else ""
        (folder / "syslog" / f"{node}.log").write_text(line)
    return folder


def test_a_large_attempt_is_diagnosed_quickly(bundle: Path) -> None:
    began = time.process_time()
    ruleset = load_ruleset()
    loaded = time.process_time()
    with open_bundle(bundle) as opened:
        answer = diagnose(opened.attempt, opened.streams, ruleset)
    seconds = time.process_time() - loaded
    size = sum(path.stat().st_size for path in bundle.rglob("*.log")) / 1e6
    print(
        f"\nrules loaded in {loaded - began:.2f} CPU s; "
        f"{size:.0f} MB in {seconds:.2f} CPU s = {size / seconds:.0f} MB/s"
    )
    assert answer.root_cause is not None
    assert answer.root_cause.nodes == ("node-02",)
    assert size / seconds > LEAST_MB_PER_CPU_SECOND


def test_memory_does_not_grow_with_the_log(bundle: Path) -> None:
    program = [sys.executable, "-m", "engine", "diagnose", str(bundle), "--format", "json"]
    subprocess.run(program, check=True, stdout=subprocess.DEVNULL)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"\npeak memory of one diagnosis: {peak:.0f} MB")
    assert peak < MOST_RSS_MB
