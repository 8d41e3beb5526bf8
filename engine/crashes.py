"""Processes of the job that the kernel saw crash, and in whose code: a launcher names only a signal and a pid.

The kernel's line names the file that the instruction belongs to. A Python extension or a library that no driver and no
collective needs is code of the program; in the driver's, NCCL's or the C library a crash may be another's fault.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from engine.facts import Fact
from engine.findings import Placed
from engine.model import Source

CRASH = "kernel.process-crash"
SEEN_WITHIN = 45.0
"""Seconds after a crash within which a launcher tells of it: it asks every few seconds and ends the others first."""
SEEN_BEFORE = 5.0

_SIGNALS = {"-4", "-7", "-8", "-11", "4", "7", "8", "11", "132", "135", "136", "139"}
_WORDS = {"SIGSEGV", "SIGILL", "SIGBUS", "SIGFPE", "Segmentation fault", "Illegal instruction", "Bus error"}
_NAMED = _SIGNALS | _WORDS
_FILE = re.compile(r" in (?P<file>[\w.+-]+)\[(?P<base>[0-9a-f]{1,16})\+[0-9a-f]+\]")
_INSTRUCTION = re.compile(r" ip[ :](?P<ip>[0-9a-f]{1,16})\b")
_EXTENSION = re.compile(r"\.(?:cpython-\d+\w*(?:-[\w-]+)?|pypy\d+\S*|abi3)\.so\Z")
_SHARED = re.compile(
    r"lib(?:cuda|nv|nccl|cudnn|cublas|cusparse|cufft|curand|cusolver|nvrtc|caffe2|torch|c10|tensorflow|jax|xla|mpi|open-|ucp|ucs|uct"
    r"|ucc|ibverbs|mlx|rdma|fabric|efa|c|m|dl|rt|pthread|stdc|gcc|gomp|python)[\w.+-]*|ld-.+|ld\.so.*|\[.+"
)


def own_crashes(placed: Sequence[Placed]) -> list[Fact]:
    """Crashes of the job's processes in code of the program, as lines for rules/python.yaml."""
    crashes = [p for p in placed if p.rule.id == CRASH and p.aside is None]
    ends = [p for p in placed if p.hit.source is Source.APPLOG and _by_signal(p)] if crashes else []
    facts = []
    for crash in crashes:
        code = _code(crash)
        if code is None or not any(_same(end, crash) for end in ends):
            continue
        text = f"crash: pid={crash.hit.captures['pid']} of the job, {crash.hit.captures['kind']} in {code}"
        where = {"stream": crash.hit.stream}
        facts.append(Fact(text, crash.hit.offset, crash.hit.line, crash.hit.stamp, crash.node, "crash", where))
    return facts


def _code(crash: Placed) -> str | None:
    """Whose code it was, its file and the place in it: only where that is the program's."""
    found = _FILE.search(crash.hit.text)
    if found is None:
        return None
    file, ip = found["file"], _INSTRUCTION.search(crash.hit.text)
    offset = int(ip["ip"], 16) - int(found["base"], 16) if ip else -1
    where = f"{file} at {offset:#x}" if offset >= 0 else file
    if _EXTENSION.search(file):
        return f"extension {where}"
    return f"library {where}" if ".so" in file and not _SHARED.match(file) else None


def _by_signal(placed: Placed) -> bool:
    captures = placed.hit.captures
    return captures.get("exit_code") in _SIGNALS or captures.get("signal") in _NAMED


def _same(end: Placed, crash: Placed) -> bool:
    """The same process by its pid; in a container, which counts its own pids, by node and time."""
    if end.node != crash.node and end.node is not None:
        return False
    if end.hit.captures.get("pid") == crash.hit.captures["pid"]:
        return True
    if end.node is None or end.at is None or crash.at is None or end.hit.inherited is not None:
        return False
    return -SEEN_BEFORE <= end.at - crash.at <= SEEN_WITHIN
