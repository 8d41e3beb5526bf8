"""The vocabulary of Faultline as typed, frozen structs, and the diagnosis contract `faultline.diagnosis/1`.

Everything that leaves the engine is one of these structs. `Diagnosis` is the contract that the command line prints,
the database keeps and the API returns. Times inside the engine are seconds since the epoch (float, UTC); in the
contract they are RFC 3339 strings in UTC with microseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, BinaryIO

import msgspec

SCHEMA = "faultline.diagnosis/1"


class Outcome(StrEnum):
    """How an attempt ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    HUNG = "hung"
    DEGRADED = "degraded"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    PREEMPTED = "preempted"
    UNKNOWN = "unknown"


SUB_DOMAINS: dict[str, tuple[str, ...]] = {
    "hardware": (
        "gpu_memory",
        "gpu",
        "nvlink",
        "nvswitch",
        "pcie",
        "cpu",
        "host_memory",
        "thermal",
        "power",
        "nic",
    ),
    "network": ("infiniband", "roce", "ethernet", "dns", "remote_service"),
    "storage": ("local_disk", "shared_filesystem", "object_store", "capacity"),
    "platform": (
        "driver",
        "cuda_compat",
        "container_runtime",
        "kernel",
        "kubernetes",
        "fabric_manager",
        "node_config",
    ),
    "scheduler": ("preemption", "time_limit", "cancelled", "node_failure", "eviction", "quota", "launch"),
    "software": (
        "user_code",
        "framework",
        "gpu_oom",
        "host_oom",
        "numerical",
        "data",
        "checkpoint",
        "configuration",
        "collective_mismatch",
        "dependency",
    ),
    "unattributed": ("none",),
}
"""Every domain with its sub-domains. `ambiguous` is allowed beside them in a diagnosis, never in a rule."""

AMBIGUOUS = "ambiguous"
UNATTRIBUTED = "unattributed"
NO_SUB_DOMAIN = "none"


class Role(StrEnum):
    """What a match may be in the causal story of an attempt."""

    CAUSE = "cause"
    """May be a root."""
    EITHER = "either"
    """A root only when nothing explains it."""
    SYMPTOM = "symptom"
    """Reports the failure, never its cause."""
    TEARDOWN = "teardown"
    """Clean-up after the end was decided."""
    CONFIRMATION = "confirmation"
    """Strengthens a cause at the same place; nothing alone."""
    PROGRESS = "progress"
    """Proof that the job still worked."""
    CONTEXT = "context"
    """Worth showing, explains nothing."""


class Source(StrEnum):
    """Where a stream comes from."""

    APPLOG = "applog"
    SYSLOG = "syslog"
    SCHEDULER = "scheduler"
    METRIC = "metric"
    FLIGHT_RECORDER = "flight_recorder"


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """A job as its owner knows it."""

    id: str
    name: str = ""
    scheduler: str = "static"
    cluster: str = ""
    user: str = ""
    queue: str = ""


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One execution of a workload, as the scheduler tells it. Times are epoch seconds."""

    workload: Workload
    number: int = 1
    state: str = ""
    exit_code: str | None = None
    reason: str | None = None
    started_at: float | None = None
    ended_at: float | None = None
    nodes: tuple[str, ...] = ()
    gpus_per_node: int | None = None


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """One source of lines or samples. `open` gives the decompressed bytes from the start, as often as it is called."""

    name: str
    """Path inside the bundle, with forward slashes, e.g. ``syslog/node-02.log``. Unique within an attempt."""
    source: Source
    open: Callable[[], BinaryIO]
    size: int
    """Decompressed size in bytes; -1 when it is not known beforehand."""
    node: str | None = None
    rank: int | None = None


class SourceReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one source gave to a diagnosis, and what it could not give."""

    source: str
    status: str
    """ok | empty | missing | partial | error"""
    streams: int = 0
    lines: int = 0
    bytes: int = 0
    first_at: str | None = None
    last_at: str | None = None
    note: str = ""


class Signal(msgspec.Struct, frozen=True, kw_only=True):
    """One place where a rule matched."""

    rule: str
    title: str
    stream: str
    source: Source
    offset: int
    """Byte offset of the line in the decompressed stream."""
    line: int
    """Line number, from 1."""
    text: str
    """The line without its envelope, cut and made printable."""
    at: float | None = None
    """Epoch seconds; None when neither the line nor its neighbours tell."""
    clock: str = "unknown"
    """How the time was found: own | inherited | stream | unknown, with what was assumed after a colon."""
    node: str | None = None
    rank: int | None = None
    device: str | None = None
    captures: dict[str, str] = {}


class RootCause(msgspec.Struct, frozen=True, kw_only=True):
    rule: str
    title: str
    nodes: tuple[str, ...]
    devices: tuple[str, ...]
    """``node/device`` pairs, e.g. ``node-02/0000:61:00``."""
    ranks: tuple[int, ...]
    at: str | None
    evidence: tuple[str, ...]
    why: str


class Candidate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A rival cause: why it is not the root, or what would have decided for it."""

    rule: str
    title: str
    nodes: tuple[str, ...]
    domain: str
    sub_domain: str
    evidence: tuple[str, ...]
    not_root_because: str | None = None
    undecided_because: str | None = None


class AffectedNode(msgspec.Struct, frozen=True, kw_only=True):
    node: str
    role: str
    """cause | affected | suspect"""
    first_at: str | None


class Symptom(msgspec.Struct, frozen=True, kw_only=True):
    rule: str
    title: str
    nodes: tuple[str, ...]
    ranks: tuple[int, ...]
    count: int
    first_at: str | None
    last_at: str | None
    explained_by: str | None
    """``root``, the evidence id of what explains it, or None."""
    evidence: tuple[str, ...]


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """A signal kept with the diagnosis: enough to show the line in its context years later."""

    id: str
    rule: str
    source: str
    stream: str
    line: int
    offset: int
    at: str | None
    clock: str
    node: str | None
    rank: int | None
    device: str | None
    text: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    sha256: str
    """Of the line's raw bytes, without its line end."""


class TimelineEntry(msgspec.Struct, frozen=True, kw_only=True):
    at: str | None
    kind: str
    """start | progress | cause | symptom | teardown | context | end"""
    node: str | None
    title: str
    evidence: tuple[str, ...]


class Recommendation(msgspec.Struct, frozen=True, kw_only=True):
    action: str
    """restart | restart_excluding | stop | investigate | none"""
    exclude_nodes: tuple[str, ...] = ()
    text: str = ""
    references: tuple[str, ...] = ()


class Fingerprint(msgspec.Struct, frozen=True, kw_only=True):
    """Groups attempts that failed in the same way. Never holds a job id, a host or a rank."""

    key: str
    parts: dict[str, str]
    version: str


class EngineInfo(msgspec.Struct, frozen=True, kw_only=True):
    version: str
    ruleset: str
    """``sha256:...`` of the ruleset's canonical form."""


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """The answer for one attempt under one ruleset."""

    schema: str = SCHEMA
    bundle: str
    attempt: dict[str, Any]
    outcome: str
    domain: str
    sub_domain: str
    title: str
    root_cause: RootCause | None
    candidates: tuple[Candidate, ...]
    affected_nodes: tuple[AffectedNode, ...]
    symptoms: tuple[Symptom, ...]
    evidence: tuple[Evidence, ...]
    timeline: tuple[TimelineEntry, ...]
    reasoning: tuple[str, ...]
    """Sentences; each names its evidence as ``[e1]`` or ``[e1, e2]``."""
    recommendation: Recommendation
    coverage: tuple[SourceReport, ...]
    fingerprint: Fingerprint
    engine: EngineInfo

    def to_dict(self) -> dict[str, Any]:
        """The contract as plain Python containers, ready for JSON."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


def rfc3339(at: float | None) -> str | None:
    """Epoch seconds as RFC 3339 in UTC with microseconds; None stays None."""
    if at is None:
        return None
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=round(at * 1_000_000))
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def json_schema() -> dict[str, Any]:
    """JSON Schema of the contract."""
    return msgspec.json.schema(Diagnosis)
