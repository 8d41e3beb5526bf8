"""Ends the supervisor's children when the supervisor itself was killed. Run by path, with the standard library alone.

Reads from standard input, a pipe that only the supervisor holds: `+ GROUP SIGNAL` adds a process group and the signal
that stops it, `- GROUP` forgets it. When the pipe closes, every group still known gets its signal, and SIGKILL five
seconds later. The kernel's parent-death signal does the same for the children themselves; this also reaches their
children, and works on macOS.
"""

from __future__ import annotations

import os
import signal
import sys
import time

GRACE = 5.0  # seconds


def send(group: int, sig: int) -> bool:
    """Signal a group; whether anybody was there."""
    try:
        os.killpg(group, sig)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def main() -> None:
    for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sig, signal.SIG_IGN)
    groups: dict[int, int] = {}
    for line in sys.stdin:
        words = line.split()
        if words[0] == "+":
            groups[int(words[1])] = int(words[2])
        else:
            groups.pop(int(words[1]), None)
    for group, stop in groups.items():
        send(group, stop)
    deadline = time.monotonic() + GRACE
    while groups and time.monotonic() < deadline:
        groups = {group: stop for group, stop in groups.items() if send(group, 0)}
        time.sleep(0.05)
    for group in groups:
        send(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
