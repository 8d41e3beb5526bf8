"""What a file on its own is: which source, which node, which rank. From its name first, then from its first bytes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

import msgspec

from engine.model import Source
from engine.names import NodeNames

HEAD = 64 << 10
"""Bytes from the beginning that tell it."""


class FileKind(msgspec.Struct, frozen=True, kw_only=True):
    """How a file is read."""

    source: Source
    node: str | None = None
    rank: int | None = None
    base: str = ""
    """The name to give it in a bundle: of records it says which program wrote them."""


_SYSLOG_NAME = re.compile(r"(?i)(?:^|[._/-])(?:syslog|messages|kern(?:el)?|dmesg|journal(?:ctl)?)(?:[._-]|$)")
_SCHEDULER_NAME = re.compile(
    r"(?i)(?:^|/)(?:(?:sacct|scontrol|squeue|sinfo|slurmctld|slurmd)[\w.-]*"
    r"|(?:pods?|events?|workload|jobset|pytorchjob|kueue)(?:[\w-][\w.-]*\.json|\.(?:json|ya?ml|txt))?)$"
)
_RECORDS_NAME = re.compile(r"(?i)^(?:sacct|scontrol|squeue)")
_RECORDER_NAME = re.compile(r"(?i)(?:flight|fr_|nccl_trace|trace_rank|comm_lib_trace)\w*?(?P<rank>\d+)(?:\.\w+)?$")
_RANK_NAME = re.compile(r"(?i)(?:^|[._/-])rank[_-]?(?P<rank>\d{1,6})(?=[._-]|$)")
_KERNEL_LINE = re.compile(
    rb"(?m)^(?:<\d{1,3}>)?(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT[\d:.,]+(?:Z|[+-]\d\d:?\d\d)?) "
    rb"(?P<host>[A-Za-z0-9][\w.-]*) (?P<tag>kernel|systemd|sshd|[\w./-]+\[\d+\])(?:\[\d+\])?:"
)
_DMESG_LINE = re.compile(rb"(?m)^\[(?: *\d+\.\d{6}|[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4})\] ")
_METRIC_HEAD = re.compile(rb'"resultType"\s*:\s*"(?:matrix|vector)"')
_DAEMON_LINE = re.compile(
    rb"(?m)^\[\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:?\d\d)?\] "
    rb"(?:slurm(?:ctld|d) version |sched(?:/\w+)?: |_slurm_rpc_|_job_complete: JobId=|cleanup_completing: JobId=)"
)
_KUBE_HEAD = re.compile(rb'"kind"\s*:\s*"(?:PodList|Pod|List|EventList|Event|Workload|Job|JobSet|PyTorchJob)"')
_SACCT_JSON = re.compile(rb'"jobs"\s*:\s*\[')
_FIELD = re.compile(rb"\s*[A-Za-z][\w/:.-]*=")
_HEADERS = (
    ("sacct", re.compile(rb"(?=.*\bJobID(?:Raw)?\b)(?=.*\bState\b)[\w|%() ]+\|[\w|%() ]*")),
    ("sacct", re.compile(rb"(?=.*\bJobID(?:Raw)?\b)(?=.*\bState\b) *[A-Z]\w+(?: +[A-Z]\w+)+ *")),
    ("squeue", re.compile(rb" *JOBID +(?:[A-Z]+ +)*ST(?:ATE)? +[A-Z_() ]+")),
)
_LONGEST_HEADER = 4096
_FIRST_LINES = 5
"""A host's greeting, or the command itself, may stand before a table."""


def describe(name: str, head: bytes, nodes: Sequence[str] = ()) -> FileKind:
    """What the file `name` with the first bytes `head` is. `nodes`: the attempt's nodes, to be found in names and
    lines.
    """
    base = PurePosixPath(name.replace("\\", "/")).name
    rank_in_name = _RANK_NAME.search(base)
    rank = int(rank_in_name["rank"]) if rank_in_name else None
    node = _node_in(base, nodes)
    recorder = _RECORDER_NAME.search(base)
    if recorder and (head[:1] == b"\x80" or b'"pg_config"' in head or b'"entries"' in head):
        return FileKind(source=Source.FLIGHT_RECORDER, node=node, rank=int(recorder["rank"]), base=base)
    if _METRIC_HEAD.search(head):
        return FileKind(source=Source.METRIC, node=node, base=base)
    if (program := _records(head)) is not None:
        told = base if _RECORDS_NAME.match(base) else f"{program}-{base}"
        return FileKind(source=Source.SCHEDULER, base=told)
    if head.lstrip()[:1] == b"{" and (_KUBE_HEAD.search(head) or _SACCT_JSON.search(head)):
        told = base if re.search(r"(?i)\.json(?:\.\w+)?$", base) else f"{base}.json"
        return FileKind(source=Source.SCHEDULER, base=told)
    if _SCHEDULER_NAME.search(base) or _DAEMON_LINE.search(head):
        return FileKind(source=Source.SCHEDULER, base=base)
    hosts = {match["host"].decode() for match in _KERNEL_LINE.finditer(head)}
    if _SYSLOG_NAME.search(base) or hosts or _DMESG_LINE.search(head):
        if node is None and len(hosts) == 1:
            node = _as_node(hosts.pop(), nodes)
        return FileKind(source=Source.SYSLOG, node=node, base=base)
    return FileKind(source=Source.APPLOG, node=node, rank=rank, base=base)


def _records(head: bytes) -> str | None:
    """Which program of Slurm wrote all of this: sacct, squeue or scontrol. A job's log that begins with what one of
    them said goes on with other lines, and stays a log.
    """
    lines = [line.rstrip(b"\r") for line in head.split(b"\n") if line.strip()]
    if len(head) >= HEAD:
        lines = lines[:-1]  # cut
    if lines and lines[0].startswith((b"NodeName=", b"JobId=")):
        return "scontrol" if _mostly(_FIELD.match(line) is not None for line in lines) else None
    for number, line in enumerate(lines[:_FIRST_LINES]):
        if len(line) > _LONGEST_HEADER:
            continue
        for program, header in _HEADERS:
            if header.fullmatch(line):
                return program if _mostly(_is_row(row, line) for row in lines[number + 1 :]) else None
    return None


def _is_row(row: bytes, header: bytes) -> bool:
    """A row of a table: as many bars as its header, or at least three columns that begin with a job's id."""
    if b"|" in header:
        return row.count(b"|") == header.count(b"|")
    return row.startswith(b"-") or re.match(rb" *\d[\w.+\[\]%,-]*(?: +\S+){2}", row) is not None


def _mostly(found: Iterable[bool]) -> bool:
    """Names hold line ends and bars now and then."""
    kept = list(found)
    return sum(kept) >= 0.8 * len(kept)


def _node_in(base: str, nodes: Sequence[str]) -> str | None:
    """The longest node whose name stands in the file's name as a whole word."""
    for node in sorted(nodes, key=len, reverse=True):
        if re.search(rf"(?<![A-Za-z0-9]){re.escape(node)}(?![A-Za-z0-9])", base):
            return node
    return None


def _as_node(host: str, nodes: Sequence[str]) -> str:
    """A host name as the scheduler writes it, with or without its domain."""
    return NodeNames(nodes).known(host) or host
