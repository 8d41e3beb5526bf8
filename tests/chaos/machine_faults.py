"""What is done to the machine of a process: its disk is slow, its clock is stepped."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import time
from contextlib import suppress

from tests.chaos.clock import Clock, NoClock
from tests.chaos.installation import WORKERS, CannotBeDone, Installation

SLOW = ("fsync", "fdatasync", "sync_file_range", "rename", "renameat2", "unlink")
"""What waits for a disk; and a write does where the kernel has no room left for what it holds back."""


def slow_disk(installation: Installation, chance: random.Random) -> str:
    """Of web server, workers and PostgreSQL: every call that waits for the disk waits longer."""
    strace = shutil.which("strace")
    if strace is None:
        raise CannotBeDone("needs strace, which delays the calls of running processes")
    names, delay = ("web", *WORKERS, "postgres"), chance.uniform(0.05, 0.4)
    calls = ",".join(SLOW)
    words = [strace, "--follow-forks", "--quiet=all", "--output=/dev/null", f"--trace={calls}"]
    words += [f"--inject={calls}:delay_enter={int(delay * 1e6)}"]
    words += [f"--attach={pid}" for name in names for pid in installation.pids(name)]
    seconds = chance.uniform(4, 8)
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as tracer:
        try:
            tracer.wait(seconds)
        except subprocess.TimeoutExpired:
            tracer.send_signal(signal.SIGTERM)
        else:
            said = tracer.stderr.read().strip() if tracer.stderr else ""
            raise CannotBeDone(f"strace may not attach here: {said[:200]}")
    return f"{', '.join(names)}: {', '.join(SLOW)} take {delay * 1000:.0f} ms more, for {seconds:.0f} s"


def step_clock(installation: Installation, chance: random.Random) -> str:
    """Forward and back, while it works; it stays wrong until the next round begins."""
    name, (first, second) = chance.choice(("web", *WORKERS, "beat")), chance.choice(((1, -1), (-1, 1)))
    seconds = chance.choice((40, 600, 3600, 40_000))
    try:
        installation.clocks[name] = Clock(installation.root, name)
    except NoClock as why:
        raise CannotBeDone(str(why)) from None
    installation.kill(name)
    installation.run(name)
    time.sleep(chance.uniform(1, 3))
    for way in (first, second):
        installation.clocks[name].step(way * seconds)
        time.sleep(chance.uniform(1, 4))
    return f"clock of {name} stepped {first * seconds:+} s, then to {second * seconds:+} s, where it stays"


def right_clocks(installation: Installation) -> None:
    """One more step, back to what is right; who starts anew has no stepped clock any more."""
    for clock in installation.clocks.values():
        with suppress(OSError):
            clock.step(0)
    installation.clocks.clear()
