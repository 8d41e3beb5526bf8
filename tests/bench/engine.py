"""The engine's speed as figures: ``python -m tests.bench.engine [MB]`` prints one JSON object.

CPU seconds of this process (or of the child), each measured in the same run, so that ratios hold on any machine.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.bundle import loose_stream, open_bundle
from engine.diagnose import diagnose, scanner_of
from engine.ruleset import Ruleset, load_ruleset
from tests.engine.evidence import attempt, case

STEP = (
    "{rank}: 2026-11-03 02:{minute:02d}:{second:02d},{ms:03d} [INFO] iteration {step:8d}/ 500000 | "
    "consumed samples: {samples:12d} | elapsed time per iteration (ms): {elapsed:.1f} | lm loss: {loss:.6E} | "
    "grad norm: {norm:.3f} | number of skipped iterations: 0 | number of nan iterations: 0 |\n"
)
NOISE = (
    "{rank}: node-{node:02d}:{pid}:{pid} [{gpu}] NCCL INFO Channel {step:02d}/0 : {rank}[{gpu}] -> {peer}[{gpu}] "
    "via P2P/CUMEM/read\n"
)


def training_log(path: Path, megabytes: int) -> None:
    """A log as training jobs write it: iterations, and what NCCL says at the start."""
    with path.open("w") as out:
        written = step = 0
        while written < megabytes * 1_000_000:
            for rank in range(16):
                values: dict[str, Any] = {
                    "rank": rank,
                    "gpu": rank % 8,
                    "node": rank // 8,
                    "peer": (rank + 1) % 16,
                    "pid": 4000 + rank,
                    "minute": step // 60 % 60,
                    "second": step % 60,
                    "ms": rank,
                    "step": step,
                    "samples": step * 1024,
                    "elapsed": 4000 + rank,
                    "loss": 2.5,
                    "norm": 0.31,
                }
                written += out.write((NOISE if step % 20 == 3 else STEP).format(**values))
            step += 1


def cpu(work: Callable[[], object]) -> float:
    """CPU seconds of this process."""
    began = time.process_time()
    work()
    return time.process_time() - began


def child_cpu(command: list[str], **options: Any) -> float:
    """CPU seconds of a child."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def scanning(folder: Path, rules: Ruleset, megabytes: int) -> dict[str, Any]:
    """One large log with all rules on one core, beside `wc -l` and ripgrep or grep with the same patterns."""
    log, patterns = folder / "train.log", folder / "patterns"
    training_log(log, megabytes)
    patterns.write_text("\n".join(p for matcher in rules.line_matchers for p in matcher.spec.patterns) + "\n")
    scanner = scanner_of(rules)
    seconds = cpu(lambda: scanner.scan(loose_stream(log)))
    size = log.stat().st_size / 1e6
    found: dict[str, Any] = {"megabytes": round(size), "cpu_s": round(seconds, 2), "mb_per_s": round(size / seconds)}
    found["wc_cpu_s"] = round(child_cpu(["wc", "-l", str(log)]), 3)
    if rg := shutil.which("rg"):
        ripgrep = child_cpu([rg, "-j1", "--no-config", "-c", "-f", str(patterns), str(log)])
        found |= {"ripgrep_cpu_s": round(ripgrep, 2), "times_ripgrep": round(ripgrep / seconds, 2)}
    return found


def cold(folder: Path) -> float:
    """Wall seconds of the command line on a small bundle, from a process that was not there before."""
    bundle = case("sw-port-in-use").write(folder / "small")
    command = [sys.executable, "-m", "engine", "diagnose", str(bundle)]
    took = []
    for _ in range(4):
        began = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=Path(__file__).parents[2])
        took.append(time.perf_counter() - began)
    return min(took)


def warm(folder: Path, rules: Ruleset) -> dict[str, Any]:
    """A bundle of about 5 MB in a process that has the rules loaded."""
    evidence = case("hw-xid79-gpu-off-bus")
    evidence.files["applog/more.log"] = b"".join(c for n, c in evidence.files.items() if n.startswith("applog/")) * 5
    with open_bundle(evidence.write(folder / "five")) as bundle:
        took = [cpu(lambda: diagnose(bundle.attempt, bundle.streams, rules)) for _ in range(5)]
    return {"megabytes": round(sum(map(len, evidence.files.values())) / 1e6, 1), "cpu_ms": round(min(took) * 1000)}


def many_ranks(rules: Ruleset, ranks: int = 10_000) -> float:
    """Every rank of a large job says that the same collective timed out."""
    said = (
        "2026-11-03 02:59:00,123 [rank{0}]:[E1103 02:59:00.123456789 ProcessGroupNCCL.cpp:629] [Rank {0}] Watchdog "
        "caught collective operation timeout: WorkNCCL(SeqNum=4211, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
        "Timeout(ms)=600000) ran for 600021 milliseconds before timing out.\n"
    )
    log = "".join(said.format(rank) for rank in range(ranks))
    evidence = attempt({"applog/train.log": log}, nodes=[f"node-{n:04d}" for n in range(ranks // 8)])
    with evidence.opened() as bundle:
        return cpu(lambda: diagnose(bundle.attempt, bundle.streams, rules))


def measure(megabytes: int = 200) -> dict[str, Any]:
    rules = load_ruleset()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        scanner_of(rules)
        return {
            "rules": len(rules.specs),
            "patterns": sum(len(matcher.spec.patterns) for matcher in rules.line_matchers),
            "cold_wall_s": round(cold(folder), 2),
            "warm": warm(folder, rules),
            "ten_thousand_ranks_cpu_s": round(many_ranks(rules), 2),
            "scan": scanning(folder, rules, megabytes),
            "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
            "cores": os.cpu_count(),
        }


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 200), indent=1))
