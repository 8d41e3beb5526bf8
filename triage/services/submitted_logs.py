"""Log files that clients of an attribution service name: read below one root, cut into runs, diagnosed as attempts."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction

from triage.models import Attempt, Observation, SubmittedCycle, SubmittedLog, Workload
from triage.services import observations, spool
from triage.services.observations import ObservationRefused
from triage.services.submissions import submit_attempt

MAX_CYCLES = 200
MAX_PATH = 2000
PREVIEW_BYTES = 4096
_HEAD_BYTES = 4 << 20
"""LOGS_DIR is told at the beginning of a job's output."""
_BLOCK = 1 << 20
CYCLE = re.compile(rb"\bCycle: (\d{1,9})\b")
START = b"<< START PATHS >>"
LOGS_DIR = re.compile(rb"(?m)\bLOGS_DIR\b[\"']?\s*[=:]\s*[\"']?(/[^\s\"']+)")
CYCLE_FILE = re.compile(r"_cycle(\d+)\.log$", re.IGNORECASE)
_DATED_FILE = re.compile(r"_date_(\d\d)-(\d\d)-(\d\d)_time_(\d\d)-(\d\d)-(\d\d)\.log$", re.IGNORECASE)
_JOB_IDS = (r"_(\d+)_date_", r"/job_(\d+)/", r"slurm-(\d+)\.(?:out|err|log)$", r"[/_](\d{6,})\.(?:out|err|log)$")


class LogRefused(Exception):
    """The log can't be had; `code` is one of the attribution service's error codes."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Run:
    """One run of the workload: its bytes in a file, and what its launcher calls it."""

    file: Path
    index: int
    start: int
    end: int
    cycle: int | None
    """N of its `Cycle: N` or `_cycleN.log`; None when nothing says."""


@dataclass(frozen=True)
class Reading:
    """What a submitted log holds now."""

    mode: str
    """single | splitlog"""
    files: tuple[Path, ...]
    """Those that are diagnosed: the log itself, or the files of its LOGS_DIR, oldest first."""
    logs_dir: str | None
    sched_restarts: int


def checked_path(path: str, *, must_exist: bool) -> Path:
    """The real path of a file below the allowed root. Raises LogRefused."""
    if not path.startswith("/") or "\x00" in path or len(path.encode("utf-8", "surrogatepass")) > MAX_PATH:
        raise LogRefused("invalid_path", "path must be absolute")
    root = settings.FAULTLINE_NVRX_ROOT
    if not root:
        raise LogRefused("outside_root", "no root is configured here: FAULTLINE_NVRX_ROOT")
    try:
        real, allowed = os.path.realpath(path), os.path.realpath(root)
        if os.path.commonpath([real, allowed]) != allowed:
            raise LogRefused("outside_root", "access outside allowed root is not permitted")
        found = os.stat(real)
    except FileNotFoundError:
        if must_exist or not os.path.isdir(os.path.dirname(real)):
            raise LogRefused("not_found", "path not found") from None
        return Path(real)
    except NotADirectoryError:
        raise LogRefused("not_found", "path not found") from None
    except PermissionError:
        raise LogRefused("not_readable", "permission denied") from None
    except (OSError, ValueError):
        raise LogRefused("invalid_path", "invalid path") from None
    if not stat.S_ISREG(found.st_mode):
        raise LogRefused("not_regular", "path must be a regular file")
    if not os.access(real, os.R_OK):
        raise LogRefused("not_readable", "path is not readable")
    return Path(real)


def preview(path: Path) -> str:
    """The first 4 KiB. Raises LogRefused."""
    with _opened(path) as content:
        return content.read(PREVIEW_BYTES).decode("utf-8", "ignore")


@transaction.atomic
def submit_log(path: Path, *, user: str, job_id: str | None, cycle_id: int | None, terminal: bool) -> SubmittedLog:
    """Notes a log, or what is new about one. Raises LogRefused."""
    known = SubmittedLog.objects.select_for_update().filter(path=str(path)).first()
    if known is None:
        if SubmittedLog.objects.count() >= settings.FAULTLINE_NVRX_MAX_JOBS:
            raise LogRefused("job_limit_reached", f"at most {settings.FAULTLINE_NVRX_MAX_JOBS} jobs are tracked")
        known, _ = SubmittedLog.objects.get_or_create(path=str(path))
    if job_id and known.job_id and known.job_id != job_id:
        raise LogRefused("invalid_parameter", f"the path was submitted for job {known.job_id}")
    known.user = user[:253] or known.user
    known.job_id = (job_id or known.job_id or _job_id(str(path)))[:253]
    known.cycle_id = cycle_id if cycle_id is not None else known.cycle_id
    known.terminal = known.terminal or terminal
    known.save()
    return known


def read_log(log: SubmittedLog) -> Reading:
    """How the log is to be read: by itself, or by the files of the LOGS_DIR that it names. Raises LogRefused."""
    path = Path(log.path)
    if not path.exists():
        return Reading("single", (), None, 0)
    with _opened(path) as content:
        head = content.read(_HEAD_BYTES)
    match = LOGS_DIR.search(head) if log.job_id else None
    if match is None:
        return Reading("single", (path,), None, 0)
    folder = os.path.realpath(match[1].decode("utf-8", "surrogateescape"))
    allowed = os.path.realpath(settings.FAULTLINE_NVRX_ROOT)
    if os.path.commonpath([folder, allowed]) != allowed:
        raise LogRefused("outside_root", "LOGS_DIR lies outside the allowed root")
    restarts = _count(path, START)
    try:
        names = sorted(entry for entry in os.listdir(folder) if entry.endswith(".log") and not entry.startswith("."))
    except FileNotFoundError:
        return Reading("splitlog", (), folder, restarts)
    except OSError:
        raise LogRefused("logs_dir_not_readable", "LOGS_DIR is not readable") from None
    mine = [name for name in names if re.search(rf"(?<!\d){re.escape(log.job_id)}(?!\d)", name)] or names
    files = [Path(folder, name) for name in sorted(mine, key=_file_order)]
    inside = [file for file in files if os.path.commonpath([os.path.realpath(file), allowed]) == allowed]
    return Reading("splitlog", tuple(file for file in inside if file.is_file()), folder, restarts)


def runs_of(file: Path) -> list[Run]:
    """The runs in a file, in order; one when no `Cycle: N` parts them. What stands before the first belongs to it.

    Raises LogRefused.
    """
    named = CYCLE_FILE.search(file.name)
    own = int(named[1]) if named else None
    starts: list[tuple[int, int]] = []
    with _opened(file) as content:
        size = os.fstat(content.fileno()).st_size
        for offset, line in _lines(content):
            match = CYCLE.search(line)
            if match and (not starts or starts[-1][1] != int(match[1])):
                starts.append((offset, int(match[1])))
    if not starts:
        return [Run(file, 0, 0, size, own)]
    starts[0] = (0, starts[0][1])
    ends = [offset for offset, _ in starts[1:]] + [size]
    runs = [Run(file, i, start, end, cycle) for i, ((start, cycle), end) in enumerate(zip(starts, ends, strict=True))]
    return runs[-MAX_CYCLES:]


def take_in(log: SubmittedLog, run: Run, *, actor: AbstractBaseUser | None = None) -> Attempt:
    """Makes a run an attempt, or adds to it what its file has more by now. Raises LogRefused."""
    attempt = _attempt(log, run, actor)
    name = observations.stream_name(f"applog/{_safe(run.file.name)}", b"", attempt.nodes)
    known = Observation.objects.filter(attempt=attempt, name=name).first()
    have = known.size if known else 0
    length = run.end - run.start
    if known is not None and length < have:
        observations.rewrite(attempt.pk, name)
        have = 0
    elif known is not None and (known.pruned_at is not None or length == have):
        return attempt
    with spool.draft(".part") as draft:
        with _opened(run.file) as content, draft.open("wb") as out:
            content.seek(run.start + have)
            left = length - have
            while left > 0 and (block := content.read(min(_BLOCK, left))):
                out.write(block)
                left -= len(block)
        try:
            observations.append_part(attempt.pk, name, draft, offset=have, actor=actor)
        except ObservationRefused as error:
            if error.code == "too_large":
                raise LogRefused("invalid_parameter", f"the log is too large: {error}") from None
            # another call took the same bytes in at the same moment
    return attempt


# --- parts ------------------------------------------------------------------------------------------------------------


def _attempt(log: SubmittedLog, run: Run, actor: AbstractBaseUser | None) -> Attempt:
    known = (
        SubmittedCycle.objects.select_related("attempt__workload", "attempt__cluster")
        .filter(log=log, file=str(run.file), index=run.index)
        .first()
    )
    if known is not None:
        return known.attempt
    job = log.job_id or f"log-{hashlib.sha256(log.path.encode('utf-8', 'surrogateescape')).hexdigest()[:12]}"
    identity = _identity(job)
    cycle = run.cycle if run.cycle is not None else log.cycle_id
    number = cycle + 1 if cycle is not None else identity.pop("latest") or 1
    identity.pop("latest", None)
    facts: dict[str, Any] = {"user": log.user} if log.user and log.user != "unknown" else {}
    attempt, _ = submit_attempt(**identity, number=min(number, 10**6), facts=facts, actor=actor)
    SubmittedCycle.objects.get_or_create(log=log, file=str(run.file), index=run.index, defaults={"attempt": attempt})
    return attempt


def _identity(job: str) -> dict[str, Any]:
    """Cluster and scheduler of a job that is known already, so that all evidence of it meets in one attempt."""
    found = Workload.objects.filter(workload_id=job).select_related("cluster")
    if settings.FAULTLINE_NVRX_CLUSTER:
        found = found.filter(cluster__name=settings.FAULTLINE_NVRX_CLUSTER)
    known = list(found.order_by("pk")[:2])
    if len(known) == 1:
        latest = Attempt.objects.filter(workload=known[0]).order_by("-number").values_list("number", flat=True).first()
        return {
            "cluster": known[0].cluster.name, "scheduler": known[0].scheduler, "workload_id": job, "latest": latest,
        }  # fmt: skip
    return {"cluster": settings.FAULTLINE_NVRX_CLUSTER, "scheduler": "slurm", "workload_id": job, "latest": None}


def _opened(path: Path) -> Any:
    try:
        return path.open("rb")
    except FileNotFoundError:
        raise LogRefused("not_found", "path not found") from None
    except PermissionError:
        raise LogRefused("not_readable", "permission denied") from None
    except OSError as error:
        raise LogRefused("internal_error", f"file read error: {error.strerror}") from None


def _lines(content: Any) -> Iterator[tuple[int, bytes]]:
    """Offset and the first 64 KiB of each line."""
    offset = 0
    fresh = True
    while piece := content.readline(64 << 10):
        if fresh:
            yield offset, piece
        fresh = piece.endswith(b"\n")
        offset += len(piece)


def _count(path: Path, mark: bytes) -> int:
    with _opened(path) as content:
        return sum(mark in line for _, line in _lines(content))


def _file_order(name: str) -> tuple[Sequence[int], int, str]:
    dated, cycle = _DATED_FILE.search(name), CYCLE_FILE.search(name)
    return tuple(int(part) for part in dated.groups()) if dated else (), int(cycle[1]) if cycle else -1, name


def _safe(name: str) -> str:
    return re.sub(r"[^\w.+@=-]", "_", name, flags=re.ASCII).lstrip(".")[-200:] or "log"


def _job_id(path: str) -> str:
    return next((match[1] for pattern in _JOB_IDS if (match := re.search(pattern, path))), "")
