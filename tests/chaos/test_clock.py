"""The clock that `make chaos` steps is the time of day of one process, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.chaos.clock import Clock, NoClock

SHOWN = """
import datetime, sys, time
for line in sys.stdin:
    began = time.monotonic()
    time.sleep(0.05)
    print(time.time(), datetime.datetime.now().timestamp(), time.monotonic() - began, flush=True)
"""


def test_a_step_moves_the_time_of_day_at_once_and_no_timer(tmp_path: Path) -> None:
    try:
        clock = Clock(tmp_path, "one")
    except NoClock as why:
        pytest.skip(str(why))
    argv = [sys.executable, "-c", SHOWN]
    with subprocess.Popen(
        argv, env={**os.environ, **clock.environment}, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as shown:
        assert shown.stdin is not None and shown.stdout is not None
        for step in (0, 3600, -3600, 0):
            clock.step(step)
            shown.stdin.write("\n")
            shown.stdin.flush()
            told, also, slept = map(float, shown.stdout.readline().split())
            assert abs(told - time.time() - step) < 5 and abs(also - told) < 1 and 0.05 <= slept < 5
        shown.stdin.close()
