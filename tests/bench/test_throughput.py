"""The whole path with `make bench`: printed, kept in docs/throughput.json and docs/performance.md.

SCALE=0.2 sends fewer attempts and keeps nothing. How fast is the machine's as well, so nothing fails for being slow;
the command itself fails when an attempt is lost or diagnosed wrongly.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench import report
from tests.bench.whole_path import BURST, KEPT

pytestmark = pytest.mark.bench
SCALE = float(os.environ.get("SCALE", "1"))


def test_the_whole_path(tmp_path: Path) -> None:
    kept = KEPT if SCALE == 1 else tmp_path / "throughput.json"
    _run("tests.bench.throughput", "--scale", str(SCALE), "--json", str(kept))


def test_a_burst_of_one_cluster(tmp_path: Path) -> None:
    kept = BURST if SCALE == 1 else tmp_path / "overload.json"
    size = ["--attempts", str(round(5000 * SCALE)), "--seconds", str(60 * SCALE)]
    _run("tests.bench.overload", *size, "--json", str(kept))


def _run(module: str, *words: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "REDIS_URL")}
    subprocess.run([sys.executable, "-m", module, *words], cwd=Path(__file__).parents[2], env=environment, check=True)
    if SCALE == 1:
        (report.DOCS / "performance.md").write_text(report.written())
