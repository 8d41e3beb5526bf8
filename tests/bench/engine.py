"""The engine's speed as figures: ``python -m tests.bench.engine [MB]`` measures, prints and keeps them as JSON.

Each is a ratio within one run, or CPU seconds of the process that did the work: a busy machine changes these least.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from engine.bundle import loose_stream, open_bundle
from engine.diagnose import diagnose, scanner_of
from engine.ruleset import Ruleset, load_ruleset
from tests.bench import corpus
from tests.engine.evidence import attempt, case

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "docs" / "performance.json"
NO_RIPGREP = "skipped: no ripgrep"
Figure = dict[str, Any]


def cpu(work: Callable[[], object], times: int = 1) -> float:
    """The least CPU seconds of this process."""
    took = []
    for _ in range(times):
        began = time.process_time()
        work()
        took.append(time.process_time() - began)
    return min(took)


def child_cpu(command: list[str], *, codes: tuple[int, ...] = (0,)) -> float:
    """CPU seconds of a child."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run = subprocess.run(command, check=False, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if run.returncode not in codes:
        raise RuntimeError(f"{command[0]}: {run.stderr.decode()[-500:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def figure(name: str, value: float | str, unit: str, *, least: float = 0, most: float = 0, **more: Any) -> Figure:
    """One figure with its bound, and whether it holds (None when it was not measured)."""
    holds = None if isinstance(value, str) else value >= least if least else value <= most if most else None
    bound = {"at_least": least} if least else {"at_most": most} if most else {}
    return {"name": name, "value": value, "unit": unit, **bound, "holds": holds, **more}


def scanning(folder: Path, rules: Ruleset, megabytes: int) -> list[Figure]:
    """A training log with all rules on one core, beside ripgrep with the same patterns."""
    patterns = folder / "patterns"
    command = [sys.executable, "-m", "engine", "rules", "patterns"]
    patterns.write_bytes(subprocess.run(command, check=True, cwd=ROOT, capture_output=True).stdout)
    scanner, found = scanner_of(rules), []
    logs = (
        ("many trainers", corpus.long_runs, 2.5, megabytes),
        # What has no goal is measured in less time.
        ("many trainers that start again and again", corpus.many_trainers, 0.0, megabytes // 5),
        ("one trainer", corpus.one_trainer, 0.0, megabytes // 2),
    )
    for name, write, least, size_mb in logs:
        log = folder / "train.log"
        write(log, size_mb)
        size = log.stat().st_size / 1e6
        seconds = cpu(lambda: scanner.scan(loose_stream(log)), 2)  # noqa: B023
        more = {"megabytes": round(size), "cpu_s": round(seconds, 2), "mb_per_cpu_s": round(size / seconds)}
        ratio: float | str = NO_RIPGREP
        if rg := shutil.which("rg"):
            options = ["-j1", "--no-config", "--no-unicode", "--dfa-size-limit", "1G", "--count"]
            ripgrep = child_cpu([rg, *options, "-f", str(patterns), str(log)], codes=(0, 1))
            more["ripgrep_cpu_s"] = round(ripgrep, 2)
            ratio = round(ripgrep / seconds, 2)
        found.append(figure(f"scan, log of {name}", ratio, "x ripgrep", least=least, **more))
        log.unlink()
    return found


def large(folder: Path, megabytes: int) -> list[Figure]:
    """Whole diagnoses of 256 ranks in processes of their own: CPU, peak memory, and what a second thread gains."""
    bundle = corpus.large_bundle(folder / "large", megabytes)
    alone, paired = list[dict[str, Any]](), list[dict[str, Any]]()
    for _ in range(3):  # in turn, so that a busy moment meets both
        alone.append(_one(bundle, 1))
        paired.append(_one(bundle, 2))
    shutil.rmtree(bundle)
    gain = min(run["wall_s"] for run in alone) / min(run["wall_s"] for run in paired)
    possible = min(run["cpu_s"] for run in alone) / min(run["longest_cpu_s"] for run in paired)
    more = {"megabytes": megabytes, "ranks": corpus.RANKS, "verdict": alone[0]["verdict"]}
    scale = megabytes / 1000
    found = [
        figure("diagnosis, a log a node", min(r["cpu_s"] for r in alone), "CPU s", most=round(2.5 * scale, 2), **more),
        figure("its peak memory", max(r["peak_mb"] for r in alone), "MB", most=400),
        figure("2 processors", round(gain, 2), "x one, by wall time", least=1.7, load=os.getloadavg()[0]),
        figure("2 processors", round(possible, 2), "x one, by CPU time of the longest way", least=1.7),
    ]
    bundle = corpus.large_bundle(folder / "larger", megabytes * 10, merged=True)
    run = _one(bundle, 1)
    packed = round((bundle / "applog" / "merged.log.zst").stat().st_size / 1e6)
    shutil.rmtree(bundle)
    more = {"megabytes": megabytes * 10, "packed_mb": packed, "cpu_s": run["cpu_s"], "verdict": run["verdict"]}
    return [*found, figure("peak memory, one compressed log ten times as long", run["peak_mb"], "MB", most=400, **more)]


def _one(bundle: Path, threads: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.bench.one", str(bundle), str(threads)]
    said = subprocess.run(command, check=True, cwd=ROOT, capture_output=True).stdout
    result: dict[str, Any] = json.loads(said)
    return result


def cold(folder: Path) -> Figure:
    """The command line on a small bundle, from a process that was not there before."""
    bundle = case("sw-port-in-use").write(folder / "small")
    command = [sys.executable, "-m", "engine", "diagnose", str(bundle)]
    took, wall = [], []
    for _ in range(8):
        began = time.perf_counter()
        took.append(child_cpu(command))
        wall.append(time.perf_counter() - began)
    return figure(
        "small bundle from a cold process", round(min(took), 3), "CPU s", most=0.5, wall_s=round(min(wall), 3)
    )


def warm(folder: Path, rules: Ruleset) -> Figure:
    """A bundle of about 5 MB in a process that has the rules loaded."""
    evidence = case("hw-xid79-gpu-off-bus")
    evidence.files["applog/more.log"] = b"".join(c for n, c in evidence.files.items() if n.startswith("applog/")) * 5
    with open_bundle(evidence.write(folder / "five")) as bundle:
        seconds = cpu(lambda: diagnose(bundle.attempt, bundle.streams, rules), 15)
    size = round(sum(map(len, evidence.files.values())) / 1e6, 1)
    return figure("bundle of 5 MB, warm", round(seconds * 1000), "CPU ms", most=60, megabytes=size)


def many_ranks(rules: Ruleset, ranks: int = 10_000) -> Figure:
    """Every rank of a large job says that the same collective timed out."""
    said = (
        "2026-11-03 02:59:00,123 [rank{0}]:[E1103 02:59:00.123456789 ProcessGroupNCCL.cpp:629] [Rank {0}] Watchdog "
        "caught collective operation timeout: WorkNCCL(SeqNum=4211, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
        "Timeout(ms)=600000) ran for 600021 milliseconds before timing out.\n"
    )
    log = "".join(said.format(rank) for rank in range(ranks))
    evidence = attempt({"applog/train.log": log}, nodes=[f"node-{n:04d}" for n in range(ranks // 8)])
    with evidence.opened() as bundle:
        seconds = cpu(lambda: diagnose(bundle.attempt, bundle.streams, rules), 2)
    return figure("10,000 ranks with the same time-out", round(seconds, 2), "CPU s", most=3.0)


def machine(rules: Ruleset) -> dict[str, Any]:
    """What the figures depend on. `spin_s`: CPU seconds of a loop that takes about 0.2 s on an idle core."""
    cpus = [line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    return {
        "cpu": cpus[0] if cpus else platform.processor(),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "hyperscan": metadata.version("hyperscan"),
        "ripgrep": _lines_of("rg", "--version")[:1],
        "rules": len(rules.specs),
        "patterns": sum(len(matcher.spec.patterns) for matcher in rules.line_matchers),
        "load": os.getloadavg()[0],
        "spin_s": round(cpu(lambda: sum(n & 7 for n in range(4_000_000)), 3), 3),
    }


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []


def _lines_of(*command: str) -> list[str]:
    if shutil.which(command[0]) is None:
        return []
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def measure(megabytes: int = 1000) -> dict[str, Any]:
    rules = load_ruleset()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        scanner_of(rules)
        figures = [cold(folder), warm(folder, rules), many_ranks(rules)]
        figures += [*large(folder, megabytes), *scanning(folder, rules, megabytes)]
        return {"machine": machine(rules), "figures": figures}


def text(result: dict[str, Any]) -> str:
    """A line for each figure."""
    words = {True: "holds", False: "DOES NOT HOLD", None: ""}
    rows = []
    for one in result["figures"]:
        bound = f">= {one['at_least']}" if "at_least" in one else f"<= {one['at_most']}" if "at_most" in one else ""
        rows.append(
            f"{one['name']:<50} {one['value']!s:>10} {one['unit']:<13} {bound:<8} {words[one['holds']]}".rstrip()
        )
    return "\n".join(rows)


if __name__ == "__main__":
    result = measure(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
    KEPT.write_text(json.dumps(result, indent=1) + "\n")
    print(text(result))
