"""What a loose file is: which source, which node, which rank. From its name first, then from its first bytes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

import msgspec

from engine.model import Source
from engine.names import NodeNames


class FileKind(msgspec.Struct, frozen=True, kw_only=True):
    """How a loose file is read."""

    source: Source
    node: str | None = None
    rank: int | None = None


_SYSLOG_NAME = re.compile(r"(?i)(?:^|[._/-])(?:syslog|messages|kern(?:el)?|dmesg|journal(?:ctl)?)(?:[._-]|$)")
_SCHEDULER_NAME = re.compile(
    r"(?i)(?:^|/)(?:sacct|scontrol|squeue|sinfo|slurmctld|slurmd|pods?|events?|workload|jobset|pytorchjob|kueue)[\w.-]*$"
)
_RECORDER_NAME = re.compile(r"(?i)(?:flight|fr_|nccl_trace|trace_rank|comm_lib_trace)\w*?(?P<rank>\d+)(?:\.\w+)?$")
_RANK_NAME = re.compile(r"(?i)(?:^|[._/-])rank[_-]?(?P<rank>\d{1,6})(?=[._-]|$)")
_KERNEL_LINE = re.compile(
    rb"(?m)^(?:<\d{1,3}>)?(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT[\d:.,]+(?:Z|[+-]\d\d:?\d\d)?) "
    rb"(?P<host>[A-Za-z0-9][\w.-]*) (?P<tag>kernel|systemd|sshd|[\w./-]+\[\d+\])(?:\[\d+\])?:"
)
_DMESG_LINE = re.compile(rb"(?m)^\[(?: *\d+\.\d{6}|[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4})\] ")
_METRIC_HEAD = re.compile(rb'"resultType"\s*:\s*"(?:matrix|vector)"')
_SACCT_HEAD = re.compile(rb"(?m)^JobID\|")
_SCONTROL_HEAD = re.compile(rb"(?m)^(?:NodeName|JobId)=")
_KUBE_HEAD = re.compile(rb'"kind"\s*:\s*"(?:PodList|Pod|List|EventList|Event|Workload|Job|JobSet|PyTorchJob)"')


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
        return FileKind(source=Source.FLIGHT_RECORDER, node=node, rank=int(recorder["rank"]))
    if _METRIC_HEAD.search(head):
        return FileKind(source=Source.METRIC, node=node)
    if _SCHEDULER_NAME.search(base) or any(form.search(head) for form in (_SACCT_HEAD, _SCONTROL_HEAD)):
        return FileKind(source=Source.SCHEDULER)
    if head.lstrip()[:1] == b"{" and _KUBE_HEAD.search(head):
        return FileKind(source=Source.SCHEDULER)
    hosts = {match["host"].decode() for match in _KERNEL_LINE.finditer(head)}
    if _SYSLOG_NAME.search(base) or hosts or _DMESG_LINE.search(head):
        if node is None and len(hosts) == 1:
            node = _as_node(hosts.pop(), nodes)
        return FileKind(source=Source.SYSLOG, node=node)
    return FileKind(source=Source.APPLOG, node=node, rank=rank)


def _node_in(base: str, nodes: Sequence[str]) -> str | None:
    """The longest node whose name stands in the file's name as a whole word."""
    for node in sorted(nodes, key=len, reverse=True):
        if re.search(rf"(?<![A-Za-z0-9]){re.escape(node)}(?![A-Za-z0-9])", base):
            return node
    return None


def _as_node(host: str, nodes: Sequence[str]) -> str:
    """A host name as the scheduler writes it, with or without its domain."""
    return NodeNames(nodes).known(host) or host
