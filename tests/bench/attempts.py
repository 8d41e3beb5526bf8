"""Failed attempts of three sizes for the bench of the whole path, each with bytes of its own."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import yaml
import zstandard

START = datetime(2026, 11, 3, 2, tzinfo=UTC)
LASTED = timedelta(hours=3)
TRAINED = timedelta(minutes=168)
"""Until it fails a minute later; what is left of the attempt is waiting."""
KINDS = {"gpu": "hardware", "code": "software", "memory": "software"}
"""What an attempt died of -> the domain that it must be diagnosed with."""


@dataclass(frozen=True)
class Size:
    """One log a node and one of its system; `megabytes` in all."""

    megabytes: float
    nodes: int

    @property
    def names(self) -> list[str]:
        return [f"gx-{number:03d}" for number in range(1, self.nodes + 1)]


SIZES = {"small": Size(0.1, 1), "typical": Size(5, 4), "large": Size(200, 32)}


class Template:
    """Everything of an attempt but the first line of each log, made once; also packed, as a client would send it."""

    def __init__(self, size: Size, kind: str) -> None:
        self.size, self.kind = size, kind
        self.logs = dict(_logs(size, kind))
        self.packed = {name: gzip.compress(content, 5) for name, content in self.logs.items()}

    def streams(self, workload: str) -> dict[str, bytes]:
        """The logs of one attempt."""
        return {name: _first(name, workload) + content for name, content in self.logs.items()}

    def sent(self, workload: str) -> dict[str, tuple[bytes, bytes]]:
        """The same, each as the two gzip members that are sent: the line of its own, and what all have."""
        return {name: (gzip.compress(_first(name, workload)), packed) for name, packed in self.packed.items()}

    def facts(self) -> dict[str, object]:
        """What the scheduler says."""
        return {
            "name": "llama-7b", "user": "ada", "state": "FAILED", "exit_code": "1:0", "nodes": self.size.names,
            "started_at": f"{START:%Y-%m-%dT%H:%M:%SZ}", "ended_at": f"{START + LASTED:%Y-%m-%dT%H:%M:%SZ}",
            "gpus_per_node": 8,
        }  # fmt: skip

    def bundle(self, workload: str, cluster: str) -> bytes:
        """A capture bundle, .tar.zst."""
        facts = self.facts()
        identity = {"id": workload, "scheduler": "slurm", "cluster": cluster}
        manifest = {
            "schema": 1,
            "workload": {**identity, **{key: facts.pop(key) for key in ("name", "user")}},
            "attempt": {"number": 1, **facts},
        }
        raw = io.BytesIO()
        with tarfile.open(fileobj=raw, mode="w") as tar:
            for name, content in {"attempt.yaml": yaml.safe_dump(manifest).encode(), **self.streams(workload)}.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
        return zstandard.ZstdCompressor(level=1).compress(raw.getvalue())


def _first(name: str, workload: str) -> bytes:
    """The line that no other attempt has, in the style of the log that it begins."""
    if name.startswith("syslog/"):
        node = name.removeprefix("syslog/").removesuffix(".log")
        return f"{START:%b %e %H:%M:%S} {node} slurmd[911]: task/affinity: job {workload} CPU input mask\n".encode()
    return f"{START:%Y-%m-%d %H:%M:%S},000 [INFO] launcher: job {workload} starts\n".encode()


def _logs(size: Size, kind: str) -> Iterator[tuple[str, bytes]]:
    for index, node in enumerate(size.names):
        last = index == size.nodes - 1
        yield f"applog/{node}.log", "".join(_applog(size, index, kind if last else "")).encode()
        yield f"syslog/{node}.log", "".join(_syslog(node, broken=last and kind == "gpu")).encode()


def _applog(size: Size, index: int, kind: str) -> Iterator[str]:
    """Eight ranks that start, train, and see one of them fail or hear nothing from it any more."""
    node, ranks = size.names[index], range(index * 8, index * 8 + 8)
    for rank in ranks:
        head = f"[rank{rank}]: {node}:{4000 + rank}:{4100 + rank} [{rank % 8}] NCCL INFO"
        yield f"{head} Bootstrap: Using eth0:10.0.0.{index}<0>\n"
        yield f"{head} ncclCommInitRank comm 0x55{rank:06x} rank {rank} nranks {size.nodes * 8} - Init COMPLETE\n"
        for channel in range(8):
            yield f"{head} Channel {channel:02d}/0 : {rank}[{rank % 8}] -> {rank + 1}[{(rank + 1) % 8}] via P2P/CUMEM\n"
    lines = max(int(size.megabytes * 1e6 / size.nodes / 130) - 80, 80)
    for number in range(lines):
        at, rank = START + TRAINED * number / lines, ranks[number % 8]
        yield (
            f"[rank{rank}]: {at:%Y-%m-%d %H:%M:%S},{number * 7 % 1000:03d} [INFO] trainer.loop: step {number // 8} "
            f"loss {2 + 8 / (number + 4):.4f} grad_norm 0.{number * 37 % 1000:03d} tokens/s {51200 + number % 977} "
            f"mem 61.{number % 10} GiB\n"
        )
    end = START + LASTED
    failed = f"{START + TRAINED + timedelta(minutes=1):%Y-%m-%d %H:%M:%S},017 [ERROR] trainer.loop:"
    if kind == "code":
        yield f"[rank{ranks[3]}]: {failed} stopped\n"
        yield f"[rank{ranks[3]}]: Traceback (most recent call last):\n"
        yield f'[rank{ranks[3]}]:   File "/home/ada/train.py", line 12, in <module>\n'
        yield f"[rank{ranks[3]}]: KeyError: 'input_ids'\n"
    elif kind == "memory":
        yield (
            f"[rank{ranks[1]}]: {failed} torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. "
            "GPU 1 has a total capacity of 79.10 GiB of which 512.00 MiB is free.\n"
        )
    elif not kind:
        for rank in ranks:
            head = f"[rank{rank}]:[E1103 {end:%H:%M:%S}.{rank:09d} ProcessGroupNCCL.cpp:629] [Rank {rank}]"
            yield (
                f"{head} Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4211, OpType=ALLREDUCE, "
                "NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600021 milliseconds before timing out.\n"
            )


def _syslog(node: str, *, broken: bool) -> Iterator[str]:
    for minute in range(178):
        at = START + timedelta(minutes=minute)
        yield f"{at:%b %e %H:%M:%S} {node} systemd[1]: Started Session {minute} of User root.\n"
        if broken and minute == 169:
            said = "NVRM: Xid (PCI:0000:61:00): 79, pid=4242, name=python3, GPU has fallen off the bus."
            yield f"{at:%b %e %H:%M:%S} {node} kernel: {said}\n"
