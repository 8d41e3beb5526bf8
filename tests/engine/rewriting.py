"""The same evidence as other tools would have written it: other envelopes, encodings and time stamps."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import zstandard

from engine.clock import StreamClock
from engine.lines import Line, clean
from tests.engine.evidence import Evidence

Rewrite = Callable[[Evidence], Evidence]


@dataclass(frozen=True)
class Told:
    """One line of a log with the time at which it was written."""

    raw: bytes
    line: Line
    at: datetime
    node: str
    """Of a system log: what its file is named after."""

    @property
    def host(self) -> str:
        return self.line.host or self.node

    @property
    def tag(self) -> str:
        return self.line.tag or "kernel"


def _lines(evidence: Evidence, content: bytes, node: str) -> Iterator[Told]:
    """Lines with their times. One without a time was written with the next one that has one."""
    raws = content.split(b"\n")
    cleaned = [clean(raw) for raw in raws]
    samples = [(line.stamp, line.text) for line in cleaned if line.stamp]
    clock = StreamClock(evidence.start.timestamp(), evidence.end.timestamp(), samples[:200])
    times = [clock.resolve(line.stamp).at for line in cleaned]
    latest = next((at for at in times if at is not None), evidence.start.timestamp())
    known: list[float | None] = []
    for at in times:
        latest = latest if at is None else max(latest, at)
        known.append(None if at is None else latest)
    following = next((at for at in reversed(known) if at is not None), evidence.start.timestamp())
    written: list[float] = []
    for at in reversed(known):
        following = following if at is None else at
        written.append(following)
    for raw, line, moment in zip(raws, cleaned, reversed(written), strict=True):
        yield Told(raw, line, datetime.fromtimestamp(moment, UTC), node)


def has_times(evidence: Evidence) -> bool:
    """Do nearly all lines of the job's logs tell their time? Else nobody knows when a collector would have had them."""
    lines = [line for n, c in evidence.files.items() if n.startswith("applog/") for line in c.splitlines() if line]
    return sum(clean(line).stamp is not None for line in lines) > 0.6 * len(lines)


def _each(evidence: Evidence, folder: str, write: Callable[[Told], bytes]) -> Evidence:
    changed = evidence.copy()
    for name in [name for name in evidence.files if name.startswith(folder)]:
        content = evidence.files[name]
        ended = content.endswith(b"\n")
        node = name.split("/")[-1].removesuffix(".log")
        lines = list(_lines(evidence, content[:-1] if ended else content, node))
        changed.files[name] = b"\n".join(write(told) for told in lines) + (b"\n" if ended else b"")
    return changed


def _nanoseconds(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.%f000Z")


def in_cri(evidence: Evidence) -> Evidence:
    """As the container runtime keeps it, long lines in parts."""

    def write(told: Told) -> bytes:
        head = f"{_nanoseconds(told.at)} stderr ".encode()
        pieces = [told.raw[start : start + 700] for start in range(0, max(len(told.raw), 1), 700)]
        return b"\n".join([*(head + b"P " + piece for piece in pieces[:-1]), head + b"F " + pieces[-1]])

    return _each(evidence, "applog/", write)


def in_docker_json(evidence: Evidence) -> Evidence:
    def write(told: Told) -> bytes:
        document = {
            "log": told.raw.decode("utf-8", "replace") + "\n",
            "stream": "stderr",
            "time": _nanoseconds(told.at),
        }
        return json.dumps(document, ensure_ascii=False).encode()

    return _each(evidence, "applog/", write)


def in_shipped_json(evidence: Evidence) -> Evidence:
    """As a log shipper stores it: escaped, with its own fields around."""

    def write(told: Told) -> bytes:
        document: dict[str, Any] = {
            "@timestamp": told.at.isoformat().replace("+00:00", "Z"),
            "message": told.raw.decode("utf-8", "replace"),
            "agent": {"type": "filebeat"},
            "level": "info",
        }
        return json.dumps(document).encode()

    return _each(evidence, "applog/", write)


def in_compose(evidence: Evidence) -> Evidence:
    return _each(evidence, "applog/", lambda told: b"trainer-1  | " + told.raw)


def in_colours(evidence: Evidence) -> Evidence:
    return _each(evidence, "applog/", lambda told: b"\x1b[32m" + told.raw + b"\x1b[0m")


def with_dos_line_ends(evidence: Evidence) -> Evidence:
    changed = evidence.copy()
    for name in [n for n in changed.files if n.startswith(("applog/", "syslog/")) and b"\r" not in changed.files[n]]:
        changed.files[name] = changed.files[name].replace(b"\n", b"\r\n")
    return changed


def in_utf16(evidence: Evidence) -> Evidence:
    changed = evidence.copy()
    for name in [name for name in changed.files if name.startswith("applog/")]:
        text = changed.files[name].decode("utf-8", "replace")
        changed.files[name] = b"\xff\xfe" + text.encode("utf-16-le", "surrogatepass")
    return changed


def compressed(evidence: Evidence) -> Evidence:
    changed = evidence.copy()
    for number, name in enumerate(sorted(evidence.files)):
        if name.startswith(("applog/", "syslog/", "scheduler/")):
            content = changed.files.pop(name)
            if number % 2:
                changed.files[f"{name}.gz"] = gzip.compress(content, mtime=0)
            else:
                changed.files[f"{name}.zst"] = zstandard.compress(content)
    return changed


def in_journal_json(evidence: Evidence) -> Evidence:
    def write(told: Told) -> bytes:
        document = {
            "MESSAGE": told.line.text,
            "_HOSTNAME": told.host,
            "SYSLOG_IDENTIFIER": told.tag,
            "__REALTIME_TIMESTAMP": str(round(told.at.timestamp() * 1e6)),
            "PRIORITY": "3",
        }
        return json.dumps(document).encode() if told.raw else b""

    return _each(evidence, "syslog/", write)


def in_journal_export(evidence: Evidence) -> Evidence:
    def write(told: Told) -> bytes:
        micros = round(told.at.timestamp() * 1e6)
        head = f"__CURSOR=x\n__REALTIME_TIMESTAMP={micros}\n_HOSTNAME={told.host}\n"
        return f"{head}SYSLOG_IDENTIFIER={told.tag}\nMESSAGE={told.line.text}\n".encode()

    return _each(evidence, "syslog/", write)


def in_rfc5424(evidence: Evidence) -> Evidence:
    def write(told: Told) -> bytes:
        head = f"<3>1 {told.at.isoformat(timespec='microseconds')} {told.host} {told.tag} - - - "
        return (head + told.line.text).encode() if told.raw else b""

    return _each(evidence, "syslog/", write)


def in_dmesg(evidence: Evidence) -> Evidence:
    """`dmesg -T`: no host, no zone, whole seconds."""

    def write(told: Told) -> bytes:
        return (
            f"[{told.at:%a %b} {told.at.day:2d} {told.at:%H:%M:%S %Y}] {told.line.text}".encode() if told.raw else b""
        )

    return _each(evidence, "syslog/", write)


_SRUN = re.compile(rb" *(\d+): ?(.*)", re.DOTALL)
_RANK_FILE = re.compile(r"rank-?0*(\d+)\.log$")


def ranks_merged(evidence: Evidence) -> Evidence | None:
    """One log of all ranks, as `srun -l` writes it, in the order of time; None where no file is one rank's."""
    changed, lines = evidence.copy(), []
    for name in sorted(evidence.files):
        rank = _RANK_FILE.search(name)
        if rank and name.startswith("applog/"):
            content = changed.files.pop(name)
            told = _lines(evidence, content.rstrip(b"\n"), "")
            lines += [(one.at, int(rank[1]), n, rank[1].encode() + b": " + one.raw) for n, one in enumerate(told)]
    changed.files["applog/slurm.out"] = b"\n".join(line for *_, line in sorted(lines)) + b"\n"
    return changed if lines else None


def ranks_parted(evidence: Evidence) -> Evidence | None:
    """A file for each rank of an `srun -l` log; None where there is none."""
    changed = evidence.copy()
    for name, content in evidence.files.items():
        marked = [_SRUN.match(line) for line in content.split(b"\n")] if name.startswith("applog/") else []
        if sum(found is not None for found in marked) < 0.8 * len(marked) or not marked:
            continue
        del changed.files[name]
        for line, found in zip(content.split(b"\n"), marked, strict=True):
            part = f"applog/rank-{int(found[1])}.log" if found else "applog/launcher.log"
            text = found[2] if found else line
            changed.files[part] = changed.files.get(part, b"") + text + b"\n"
    return changed if changed.files.keys() != evidence.files.keys() else None


def nodes_with_domain(evidence: Evidence) -> Evidence:
    """The scheduler names its nodes with their domain, the logs without."""
    return evidence.with_attempt(nodes=[f"{node}.gpu.example.com" for node in evidence.nodes])


_LOCAL = re.compile(
    rb"(?P<day>\d{4}-\d\d-\d\d)(?P<between>[T ])(?P<time>\d\d:\d\d:\d\d)(?![.\d]*(?:Z|[+-]\d\d))"
    rb"|(?<=[IWEF])(?P<glog>\d{3,4}) (?P<glog_time>\d\d:\d\d:\d\d)(?=\.\d{6})"
    rb"|(?<=INFO )(?P<short>\d\d-\d\d) (?P<short_time>\d\d:\d\d:\d\d)"
)


def in_zone(east: timedelta) -> Rewrite:
    """The job writes the local time of its zone, without naming it."""

    def rewrite(evidence: Evidence) -> Evidence:
        year = evidence.start.year

        def moved(found: re.Match[bytes]) -> bytes:
            part = {name: value.decode() for name, value in found.groupdict().items() if value is not None}
            if "day" in part:
                moment = datetime.fromisoformat(f"{part['day']}T{part['time']}") + east
                return f"{moment:%Y-%m-%d}{part['between']}{moment:%H:%M:%S}".encode()
            if "glog" in part:
                month, day = int(part["glog"][:-2]), part["glog"][-2:]
                moment = datetime.fromisoformat(f"{year}-{month:02d}-{day}T{part['glog_time']}") + east
                wide = f"{moment:%m}" if len(part["glog"]) == 4 else str(moment.month)
                return f"{wide}{moment:%d %H:%M:%S}".encode()
            moment = datetime.fromisoformat(f"{year}-{part['short']}T{part['short_time']}") + east
            return f"{moment:%m-%d %H:%M:%S}".encode()

        changed = evidence.copy()
        for name in [name for name in changed.files if name.startswith("applog/")]:
            changed.files[name] = _LOCAL.sub(moved, changed.files[name])
        return changed

    return rewrite


TIMED: dict[str, Rewrite] = {
    "logs in CRI parts": in_cri,
    "logs in docker's JSON": in_docker_json,
    "logs in a shipper's JSON": in_shipped_json,
}
APPLOG: dict[str, Rewrite] = {
    "logs of docker compose": in_compose,
    "logs in Japan's time": in_zone(timedelta(hours=9)),
    "logs in California's time": in_zone(timedelta(hours=-8)),
    "logs in India's time": in_zone(timedelta(hours=5, minutes=30)),
    "logs in colours": in_colours,
    "logs in UTF-16": in_utf16,
    "line ends of DOS": with_dos_line_ends,
    "everything compressed": compressed,
}
SYSLOG: dict[str, Rewrite] = {
    "system logs as journal JSON": in_journal_json,
    "system logs as journal export": in_journal_export,
    "system logs in RFC 5424": in_rfc5424,
    "system logs by dmesg -T": in_dmesg,
}
RANKS: dict[str, Callable[[Evidence], Evidence | None]] = {
    "all ranks in one log": ranks_merged,
    "a log for each rank": ranks_parted,
}
