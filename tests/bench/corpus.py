"""Logs of any size for the bench: as training jobs write them, made the same way every time."""

from __future__ import annotations

import io
import random
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import IO

import yaml
import zstandard

from engine.cleaning import Slice
from engine.diagnose import scanner_of
from engine.model import Role
from tests.engine.evidence import case, labels, ruleset

NODES, RANKS = 32, 256
FAILED_NODE = "node-18"
START = datetime(2026, 11, 3, 2, tzinfo=UTC)
WENT_WELL = timedelta(hours=5)
_DIGITS = b"0123456789"
_TIME = re.compile(
    rb"20\d\d[-/.]\d\d[-/.]\d\d|\b\d\d[-/]\d\d(?= \d\d:)|(?<=[IWEF])\d{4} |[A-Z][a-z]{2} [ \d]\d (?=\d\d:)"
    rb"|\d\d:\d\d:\d\d|\b1\d{9}\b"
)
_FAILURES = (Role.CAUSE, Role.EITHER, Role.SYMPTOM, Role.TEARDOWN)


@cache
def _ordinary_parts() -> tuple[bytes, ...]:
    """What the jobs of the judged cases wrote before anything failed, in parts of 300 lines."""
    scanner, parts = scanner_of(ruleset()), list[bytes]()
    for name in sorted(labels()):
        for file, content in sorted(case(name).files.items()):
            if not file.startswith("applog/"):
                continue
            lines = content.split(b"\n")[:-1]
            cut = next((n for n, line in enumerate(lines) if _tells_of_failure(scanner.database.found_in(line))), None)
            well = lines[: cut if cut is not None else len(lines)]
            if len(well) > 50:
                parts += [b"\n".join(well[n : n + 300]) + b"\n" for n in range(0, len(well), 300)]
    return tuple(parts)


def _tells_of_failure(found: set[int]) -> bool:
    scanner = scanner_of(ruleset())
    told = [scanner.numbering.matcher_of(number) for number in found]
    return any(n is None or scanner.matchers[n].spec.role in (None, *_FAILURES) for n in told)


def many_trainers(path: Path, megabytes: int) -> None:
    """One log of many trainers' ordinary lines, each of which is started again every ten megabytes."""
    _write(path, megabytes, (), _ordinary_parts())


def long_runs(path: Path, megabytes: int) -> None:
    """One log of many trainers' ordinary lines, each of which is started once and trains from then on."""
    starts = [part for part in _ordinary_parts() if _is_start(part)]
    _write(path, megabytes, starts, [part for part in _ordinary_parts() if part not in starts])


def _write(path: Path, megabytes: int, once: Sequence[bytes], again: Sequence[bytes]) -> None:
    """Parts that stand in the log once, then others in any order, all digits but those of dates and times changed."""
    chance, written = random.Random(1), 0
    parts = [(part, [found.span() for found in _TIME.finditer(part)]) for part in (*once, *again)]
    with path.open("wb") as out:
        while written < megabytes * 1_000_000:
            for part, times in parts:
                others = bytes(chance.sample(_DIGITS, len(_DIGITS)))
                changed = bytearray(part.translate(bytes.maketrans(_DIGITS, others)))
                for begin, end in times:
                    changed[begin:end] = part[begin:end]
                written += out.write(changed)
            parts = parts[-len(again) :]
            chance.shuffle(parts)


def _is_start(part: bytes) -> bool:
    """Does it say where ranks are, as they do when they start, or hardly tell any progress?"""
    scanner, lines = scanner_of(ruleset()), Slice(part, 0, len(part), None)
    places = {n for n, matcher in enumerate(scanner.matchers) if matcher.spec.id.startswith("origin.")}
    progress = {begin for begin, _, _ in lines.matches(scanner.marks.database)} if scanner.marks else ()
    told = {scanner.numbering.matcher_of(number) for _, number, _ in lines.matches(scanner.database)}
    return len(progress) < 15 or not told.isdisjoint(places)


def one_trainer(path: Path, megabytes: int) -> None:
    """One trainer's log of twenty shapes of lines: what a search that learns the shapes is fastest at."""
    written = step = 0
    with path.open("w") as out:
        while written < megabytes * 1_000_000:
            for rank in range(16):
                written += out.write(_noise(rank, step) if step % 20 == 3 else _iteration(rank, step))
            step += 1


def _iteration(rank: int, step: int) -> str:
    return (
        f"{rank}: 2026-11-03 02:{step // 60 % 60:02d}:{step % 60:02d},{rank:03d} [INFO] iteration {step:8d}/ 500000 | "
        f"consumed samples: {step * 1024:12d} | elapsed time per iteration (ms): {4000 + rank:.1f} | "
        f"lm loss: {2 + 1 / (step + 1):.6E} | grad norm: 0.310 | number of skipped iterations: 0 | "
        "number of nan iterations: 0 |\n"
    )


def _noise(rank: int, step: int) -> str:
    node, gpu, pid = rank // 8, rank % 8, 4000 + rank
    return (
        f"{rank}: node-{node:02d}:{pid}:{pid} [{gpu}] NCCL INFO Channel {step % 100:02d}/0 : {rank}[{gpu}] -> "
        f"{(rank + 1) % 16}[{gpu}] via P2P/CUMEM/read\n"
    )


def large_bundle(folder: Path, megabytes: int, *, merged: bool = False) -> Path:
    """A job of 256 ranks that trains for hours until a GPU of one node falls off the bus: a log a node, or a single one
    that is compressed.
    """
    (folder / "applog").mkdir(parents=True)
    (folder / "syslog").mkdir()
    end = START + WENT_WELL + timedelta(minutes=12)
    (folder / "attempt.yaml").write_text(yaml.safe_dump(_document(end)))
    nodes = [f"node-{number:02d}" for number in range(1, NODES + 1)]
    if merged:
        with (
            (folder / "applog" / "merged.log.zst").open("wb") as raw,
            zstandard.ZstdCompressor(level=1).stream_writer(raw) as packed,
        ):
            _job_log(io.BufferedWriter(packed, 1 << 20), nodes, megabytes, end)  # type: ignore[arg-type]
    else:
        for node in nodes:
            with (folder / "applog" / f"{node}.log").open("wb") as out:
                _job_log(out, [node], megabytes / NODES, end)
    for node in nodes:
        (folder / "syslog" / f"{node}.log").write_text("".join(_syslog(node)))
    return folder


def _document(end: datetime) -> dict[str, object]:
    workload = {"id": "9001", "name": "big-pretrain", "scheduler": "slurm", "cluster": "c1", "user": "user1"}
    attempt = {
        "number": 1,
        "state": "FAILED",
        "exit_code": "1:0",
        "started_at": f"{START:%Y-%m-%dT%H:%M:%SZ}",
        "ended_at": f"{end:%Y-%m-%dT%H:%M:%SZ}",
        "nodes": [f"node-{number:02d}" for number in range(1, NODES + 1)],
        "gpus_per_node": RANKS // NODES,
    }
    return {"schema": 1, "workload": workload, "attempt": attempt}


def _job_log(out: IO[bytes], nodes: list[str], megabytes: float, end: datetime) -> None:
    ranks = [(node, (int(node[5:]) - 1) * 8 + gpu, gpu) for node in nodes for gpu in range(8)]
    for node, rank, gpu in ranks:
        for text in _started(node, rank, gpu):
            out.write(f"[rank{rank}]: {node}:{4000 + rank}:{4100 + rank} [{gpu}] NCCL INFO {text}\n".encode())
    # What changes from step to step is put in afterwards: making each line of 10 GB anew takes most of an hour.
    shapes = ["".join([_step(rank, wait) for _, rank, _ in ranks]) for wait in range(7)]
    size = len(_filled(shapes[0], START, 0))
    steps = max(int(megabytes * 1_000_000 / size), 1)
    for step in range(steps):
        at = START + WENT_WELL * (step + 1) / steps
        out.write(_filled(shapes[step % 7], at, step).encode())
    for node, rank, _ in ranks:
        if node != FAILED_NODE:
            head = f"[E1103 {end:%H:%M:%S}.{rank:06d} ProcessGroupNCCL.cpp:629]"
            out.write(f"[rank{rank}]: {head} [Rank {rank}] {_TIMEOUT}".encode())
    out.flush()


def _started(node: str, rank: int, gpu: int) -> Iterator[str]:
    yield f"Bootstrap: Using eth0:10.0.0.{node[5:]}<0>"
    place = f"rank {rank} nranks {RANKS} cudaDev {gpu} nvmlDev {gpu} busId {gpu + 1}1000"
    yield f"ncclCommInitRank comm 0x5581{rank:04x} {place} - Init COMPLETE"
    for channel in range(16):
        yield f"Channel {channel:02d}/0 : {rank}[{gpu}] -> {(rank + 1) % RANKS}[{(gpu + 1) % 8}] via P2P/CUMEM/read"


def _step(rank: int, wait: int) -> str:
    return (
        f"[rank{rank}]: @at@ [INFO] trainer.loop: step @step@ loss @loss@ grad_norm {0.3 + rank / 999:.3f} "
        f"lr 1.500e-04 tokens/s {51200 + rank} mem 61.{rank % 10} GiB data_wait {wait}.{rank % 10} ms\n"
    )


def _filled(shape: str, at: datetime, step: int) -> str:
    moment = f"{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03d}"
    text = shape.replace("@at@", moment).replace("@step@", str(step))
    return text.replace("@loss@", f"{2 + 8 / (step + 4):.4f}")


_TIMEOUT = (
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4211, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
    "Timeout(ms)=600000) ran for 600021 milliseconds before timing out.\n"
)


def _syslog(node: str) -> Iterator[str]:
    for minute in range(320):
        at = START + timedelta(minutes=minute)
        yield f"{at:%Y-%m-%dT%H:%M:%S}.000000+00:00 {node} systemd[1]: Started Session {minute} of User root.\n"
    if node == FAILED_NODE:
        said = "NVRM: Xid (PCI:0000:61:00): 79, pid=4242, name=python3, GPU has fallen off the bus."
        yield f"{START + WENT_WELL + timedelta(minutes=2):%Y-%m-%dT%H:%M:%S}.000000+00:00 {node} kernel: {said}\n"
