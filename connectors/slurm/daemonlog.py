"""The logs of slurmctld and slurmd, cut to an attempt: its window of time, and its lines among those of all jobs."""

from __future__ import annotations

import gzip
import io
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO, cast

import hostlist

_STAMP = re.compile(
    rb"\[?(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(Z|[+-]\d\d:?\d\d)?\]?[ \]]"
)  # LogTimeFormat iso8601(_ms), the default, and rfc5424(_ms), rfc3339
_JOB = re.compile(
    rb"(?:\b(?:JobId=|StepId=|JobID=|[Jj]ob |JOB |STEP )|(?:(?<=\s)|^)\[)"
    rb"(\d+)(?:_(\d+|\*))?(?:\+(\d+))?(?:\((\d+)\))?(?=[.\s\],:;)]|$)"
)
_LISTED = re.compile(rb"[A-Za-z][\w.-]*\[[\d,-]+\][\w.-]*")
_MAX_LINE = 1 << 20


class NoTimes(ValueError):
    """The log's lines begin with no time that is understood."""


class Mine:
    """Which lines of a daemon's log belong to an attempt."""

    def __init__(self, job: int, task: str | None, raw_ids: Iterable[int], nodes: Iterable[str]) -> None:
        self._job, self._task = str(job).encode(), (task or "").encode()
        self._raw = {str(raw).encode() for raw in raw_ids}
        self._nodes = set(nodes)
        names = "|".join(re.escape(node) for node in sorted(self._nodes, key=len, reverse=True))
        self._named = re.compile(rb"(?<![\w.-])(?:" + names.encode() + rb")(?![\w-])") if names else None

    def about_job(self, line: bytes) -> bool | None:
        """Whether a line names this job; None when it names none."""
        named = _JOB.findall(line)
        if not named:
            return None
        return any(self._is_mine(job, task, raw) for job, task, _, raw in named)

    def _is_mine(self, job: bytes, task: bytes, raw: bytes) -> bool:
        if raw:
            return raw in self._raw
        if task:
            return job == self._job and task in (self._task, b"*")
        return job in self._raw or (job == self._job and not self._task)

    def about_nodes(self, line: bytes) -> bool:
        if self._named is not None and self._named.search(line):
            return True
        return any(not self._nodes.isdisjoint(_expanded(found)) for found in _LISTED.findall(line))

    def in_controller(self, line: bytes) -> bool:
        """Of slurmctld's lines those that name the job, and those about its nodes that name no job."""
        about = self.about_job(line)
        return about if about is not None else self.about_nodes(line)

    def on_node(self, line: bytes) -> bool:
        """Of a node's slurmd all but the lines about other jobs."""
        return self.about_job(line) is not False


def _expanded(text: bytes) -> list[str]:
    try:
        return list(hostlist.expand_hostlist(text.decode("ascii")))
    except (hostlist.BadHostlist, ValueError):
        return []


def rotations(path: Path, since: float) -> list[Path]:
    """The log and those of its older parts (.1, .2.gz, -20261130) that were still written at `since`, oldest first."""
    name = re.compile(re.escape(path.name) + r"(?:[.-]\d[\d.-]*)?(?:\.gz)?")
    found = []
    for entry in path.parent.iterdir():
        if name.fullmatch(entry.name) and entry.is_file():
            changed = entry.stat().st_mtime
            if changed >= since or entry.name == path.name:
                found.append((changed, entry))
    return [entry for _, entry in sorted(found)]


def cut(
    open_file: Callable[[], BinaryIO], name: str, start: float, end: float, offset: float, keep: Callable[[bytes], bool]
) -> Iterator[bytes]:
    """Lines from `start` to `end` (epoch seconds) that `keep` wants; `offset`: seconds east of UTC where no line tells.

    Lines without a time belong to the line before. A plain file is not read from its beginning. Raises NoTimes.
    """
    with open_file() as raw:
        content = cast(BinaryIO, gzip.GzipFile(fileobj=raw)) if name.endswith(".gz") else raw
        if content is raw:
            _skip_to(content, start, offset)
        inside, wanted, timed, seen = False, False, False, 0
        while line := content.readline(_MAX_LINE):
            at = line_time(line, offset)
            if at is not None:
                timed = True
                if at > end:
                    return
                inside, wanted = at >= start, keep(line)
            elif not timed:
                seen += 1
                if seen > 1000:
                    break
            if inside and wanted:
                yield line if line.endswith(b"\n") else line + b"\n"
        if seen and not timed:
            raise NoTimes(name)


def line_time(line: bytes, offset: float) -> float | None:
    """Epoch seconds of a line's own time."""
    found = _STAMP.match(line)
    if not found:
        return None
    try:
        at = datetime.strptime(found[1].decode("ascii"), "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC)
    except ValueError:
        return None
    zone = (found[2] or b"").decode("ascii")
    if zone == "Z":
        return at.timestamp()
    if zone:
        digits = zone[1:].replace(":", "")
        east = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
        return (at + east if zone[0] == "-" else at - east).timestamp()
    return at.timestamp() - offset


def _skip_to(content: BinaryIO, start: float, offset: float) -> None:
    """Goes to a line shortly before `start`, by halves; lines are in order of time."""
    low, high = 0, content.seek(0, io.SEEK_END)
    while high - low > 1 << 16:
        middle = (low + high) // 2
        content.seek(middle)
        content.readline(_MAX_LINE)
        at = None
        for _ in range(100):
            line = content.readline(_MAX_LINE)
            at = line_time(line, offset)
            if at is not None or not line:
                break
        if at is not None and at < start:
            low = middle
        else:
            high = middle
    content.seek(low)
    if low:
        content.readline(_MAX_LINE)
