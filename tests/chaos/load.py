"""Attempts that are sent: each as a client would, who sends again until it was taken."""

from __future__ import annotations

import io
import os
import random
import tarfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import zstandard

from triage.client import ApiError, Client

START, END = "2026-11-03T02:00:00Z", "2026-11-03T04:22:31Z"
NODES = ("gx-01", "gx-02")
PATIENCE = 240.0
"""Seconds for which a client tries on; in a round everything is mended long before."""
KINDS = {
    "gpu": ("hardware", "xid.79"),
    "code": ("software", "python.exception"),
    "out of memory": ("software", "cuda.out-of-memory"),
}
"""What an attempt died of; domain and rule are held against the ones that the same evidence gives without trouble."""


@dataclass
class Sent:
    """What clients were told, by workload."""

    taken: dict[str, str] = field(default_factory=dict)
    """Workload -> kind, of each that was acknowledged, or lies whole in the watched folder."""
    asked_again: int = 0
    """Calls that failed and were sent again."""
    gave_up: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


def streams(kind: str, workload: str, lines: int) -> dict[str, bytes]:
    """The logs of one attempt. Every one is different, so that each has blobs of its own."""
    rows = [
        f"2026-11-03 0{2 + n * 2 // lines}:{n * 113 // lines % 60:02}:{n % 60:02},433 {workload} iteration {n} | "
        f"lm loss {8 / (1 + n / lines):.4f} | grad norm {n % 7}.25 | tokens/s 123456"
        for n in range(lines)
    ]
    found = {}
    if kind == "gpu":
        found["syslog/gx-02.log"] = (
            b"Nov  3 04:11:16 gx-02 kernel: NVRM: Xid (PCI:0000:61:00): 79, pid=1234, name=python3, GPU has fallen off "
            b"the bus.\nNov  3 04:22:29 gx-02 systemd[1]: Starting system activity accounting tool...\n"
        )
    elif kind == "code":
        rows += [
            "[rank3]: Traceback (most recent call last):",
            '[rank3]:   File "/home/ada/train.py", line 12, in <module>',
            "[rank3]:     main()",
            f"[rank3]: KeyError: 'input_{workload}'",
        ]
    else:
        rows += [
            "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total "
            "capacity "
            "of 79.10 GiB of which 512.00 MiB is free."
        ]
    return {"applog/train.log": ("\n".join(rows) + "\n").encode(), **found}


def send_by_api(url: str, token: str, sent: Sent, workload: str, kind: str, lines: int) -> None:
    """Makes the attempt known, sends its streams in parts, asks for a diagnosis: each until it is taken."""
    client = Client(url, token, timeout=10, tries=1, patience=0)
    facts = {
        "name": "llama-7b", "user": "ada", "state": "FAILED", "exit_code": "1:0", "started_at": START, "ended_at": END,
        "nodes": list(NODES), "gpus_per_node": 8,
    }  # fmt: skip
    try:
        attempt = _until_taken(
            sent,
            lambda: client.attempt(workload, cluster="api", scheduler="slurm", **facts),  # type: ignore[arg-type]
        )
        for name, content in streams(kind, workload, lines).items():
            _until_taken(sent, lambda name=name, content=content: client.send(attempt, name, content))  # type: ignore[misc]
        _until_taken(sent, lambda: client.call("POST", f"attempts/{attempt}/diagnosis"))
    except TimeoutError as error:
        with sent.lock:
            sent.gave_up.append(f"{workload}: {error}")
        return
    with sent.lock:
        sent.taken[workload] = kind


def _until_taken(sent: Sent, call):  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return call()
        except ApiError as error:
            if error.status not in (0, 429, 502, 503, 504, 507):
                raise TimeoutError(f"refused with {error.status}: {error}") from None
            if time.monotonic() > deadline:
                raise TimeoutError(f"not taken within {PATIENCE:.0f} s: {error}") from None
        with sent.lock:
            sent.asked_again += 1
        time.sleep(random.uniform(0.2, 0.8))


def send_by_file(watched: Path, sent: Sent, workload: str, kind: str, lines: int) -> None:
    """A bundle appears in the watched folder, whole: written beside it and renamed."""
    manifest = (
        f'schema: 1\nworkload: {{id: "{workload}", name: llama-7b, scheduler: slurm, cluster: files, user: ada}}\n'
        f'attempt: {{number: 1, state: FAILED, exit_code: "1:0", started_at: {START}, ended_at: {END}, '
        f"nodes: [{', '.join(NODES)}], gpus_per_node: 8}}\n"
    )
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for name, content in {"attempt.yaml": manifest.encode(), **streams(kind, workload, lines)}.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    draft = watched.parent / f".{workload}.tar.zst"
    draft.write_bytes(zstandard.ZstdCompressor().compress(raw.getvalue()))
    os.replace(draft, watched / f"{workload}.tar.zst")
    with sent.lock:
        sent.taken[workload] = kind
