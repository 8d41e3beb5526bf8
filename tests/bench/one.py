"""Diagnoses a bundle and tells what that cost this process: ``python -m tests.bench.one BUNDLE [THREADS [TIMES]]``."""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

from engine.bundle import open_bundle
from engine.diagnose import diagnose, scanner_of
from engine.ruleset import load_ruleset


def measured(path: Path, threads: int, times: int) -> dict[str, Any]:
    """The least CPU and wall seconds of several diagnoses with the rules loaded; the peak memory of all of it.

    `longest_cpu_s`: of this process and, on average, of one of those that scanned for it, which is what they would take
    on a machine with nothing else to do.
    """
    rules = load_ruleset()
    scanner_of(rules)
    cpu, wall, longest = [], [], []
    with open_bundle(path) as bundle:
        for _ in range(times):
            began, at, before = time.process_time(), time.perf_counter(), _of_children()
            found = diagnose(bundle.attempt, bundle.streams, rules, threads=threads)
            cpu.append(time.process_time() - began)
            wall.append(time.perf_counter() - at)
            longest.append(cpu[-1] + (_of_children() - before) / threads)
    root = found.root_cause
    return {
        "cpu_s": round(min(cpu), 3),
        "wall_s": round(min(wall), 3),
        "longest_cpu_s": round(min(longest), 3),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "verdict": [found.domain, found.sub_domain, list(root.nodes) if root else []],
    }


def _of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    numbers = [int(argument) for argument in sys.argv[2:]]
    print(json.dumps(measured(Path(sys.argv[1]), *[*numbers, *[1, 1][len(numbers) :]])))
