"""The logs of slurmctld and slurmd, cut to an attempt: its window of time, and its lines among those of all jobs."""

from __future__ import annotations

import gzip
import io
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, cast
from zoneinfo import ZoneInfo

from engine import hostlist

_STAMP = re.compile(
    rb"\[?(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:?\d\d)?\]?[ \]]"
)  # LogTimeFormat iso8601(_ms), the default, and rfc5424(_ms), rfc3339
_JOB = re.compile(
    rb"(?:\b(?:JobId=|StepId=|JobID=|[Jj]ob |JOB |STEP )|(?:(?<=\s)|^)\[)"
    rb"(\d+)(?:_(\d+|\*))?(?:\+(\d+))?(?:\((\d+)\))?(?=[.\s\],:;)]|$)"
)
_LISTED = re.compile(rb"[A-Za-z][\w.-]*\[[\d,-]+\][\w.-]*")
_MAX_LINE = 1 << 20


class NoTimes(ValueError):
    """The log's lines begin with no time that is understood."""


class Clock:
    """The clock that a daemon's log is written by: a zone, seconds east of UTC, or not known and taken for UTC."""

    def __init__(self, zone: ZoneInfo | float | None) -> None:
        self._zone = zone

    def east(self, naive: datetime) -> float:
        """Seconds east of UTC at a time of this clock."""
        if isinstance(self._zone, ZoneInfo):
            offset = naive.replace(tzinfo=self._zone).utcoffset()
            return offset.total_seconds() if offset else 0.0
        return self._zone or 0.0

    def time_of(self, line: bytes) -> float | None:
        """Epoch seconds of a line's own time, to the second."""
        found = _STAMP.match(line)
        if not found:
            return None
        try:
            naive = datetime.fromisoformat(found[1].decode("ascii"))
        except ValueError:
            return None
        at = naive.replace(tzinfo=UTC).timestamp()
        return at - (_east(found[3].decode("ascii")) if found[3] else self.east(naive))

    def with_zone(self, line: bytes) -> bytes:
        """The line as LogTimeFormat=rfc5424_ms prints it: its time with the zone."""
        found = _STAMP.match(line)
        if not found or found[3] or self._zone is None or self.time_of(line) is None:
            return line
        minutes = round(self.east(datetime.fromisoformat(found[1].decode("ascii"))) / 60)
        zone = f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}".encode()
        at = found.end(2) if found[2] else found.end(1)
        return line[:at] + zone + line[at:]


def _east(zone: str) -> float:
    if zone == "Z":
        return 0.0
    digits = zone[1:].replace(":", "")
    seconds = int(digits[:2]) * 3600.0 + int(digits[2:]) * 60.0
    return -seconds if zone[0] == "-" else seconds


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
    open_file: Callable[[], BinaryIO], name: str, start: float, end: float, clock: Clock, keep: Callable[[bytes], bool]
) -> Iterator[bytes]:
    """Lines from `start` to `end` (epoch seconds) that `keep` wants, each with the zone of its time, where it is known.

    Lines without a time belong to the line before. A plain file is not read from its beginning. Raises NoTimes.
    """
    with open_file() as raw:
        content = cast(BinaryIO, gzip.GzipFile(fileobj=raw)) if name.endswith(".gz") else raw
        if content is raw:
            _skip_to(content, start, clock)
        inside, wanted, timed, seen = False, False, False, 0
        while line := content.readline(_MAX_LINE):
            at = clock.time_of(line)
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
                yield clock.with_zone(line if line.endswith(b"\n") else line + b"\n")
        if seen and not timed:
            raise NoTimes(name)


def _skip_to(content: BinaryIO, start: float, clock: Clock) -> None:
    """Goes to a line shortly before `start`, by halves; lines are in order of time."""
    low, high = 0, content.seek(0, io.SEEK_END)
    while high - low > 1 << 16:
        middle = (low + high) // 2
        content.seek(middle)
        content.readline(_MAX_LINE)
        at = None
        for _ in range(100):
            line = content.readline(_MAX_LINE)
            at = clock.time_of(line)
            if at is not None or not line:
                break
        if at is not None and at < start:
            low = middle
        else:
            high = middle
    content.seek(low)
    if low:
        content.readline(_MAX_LINE)
