"""Structured files of schedulers as lines, so that ordinary rules can match them.

Each fact is one line of text in a fixed form (engine/rules/README.md) that knows where its record stands in the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import msgspec

from engine.clock import Stamp, parse_time, zone_shift
from engine.model import Attempt

_RECORD = re.compile(r"^[ \t]*(?=(?:NodeName|JobId)=)", re.MULTILINE)
_KEY = re.compile(r"(?<!\S)(\w[\w/]{0,60})=")
MAX_BYTES = 64 * 2**20
_JOB_FIELDS = ("JobId", "JobState", "Reason", "ExitCode", "RunTime", "TimeLimit", "Restarts", "NodeList")


class Fact(msgspec.Struct, frozen=True):
    """One statement of a scheduler."""

    text: str
    offset: int
    line: int
    stamp: Stamp | None = None
    node: str | None = None
    kind: str = ""
    fields: dict[str, str] = {}


def is_structured(name: str) -> bool:
    """Does this file of the scheduler folder hold records rather than log lines?"""
    base = _base(name)
    return base.endswith(".json") or base.startswith(("sacct", "scontrol", "squeue"))


def _base(name: str) -> str:
    return re.sub(r"\.(?:gz|zst|xz|bz2)$", "", name.rsplit("/", 1)[-1].lower())


def read_facts(name: str, content: bytes, attempt: Attempt) -> list[Fact]:
    """Every fact of one file, each on one line. What cannot be read gives none; raises ValueError with the reason."""
    if len(content) > MAX_BYTES:
        raise ValueError(f"more than {MAX_BYTES} bytes for a file of records")
    return of_this_attempt([_on_one_line(fact) for fact in _facts(_base(name), content, attempt)], attempt)


def _facts(base: str, content: bytes, attempt: Attempt) -> Iterator[Fact]:
    if base.endswith(".json"):
        document = _document(content)
        if base.startswith("sacct") or (isinstance(document, dict) and "jobs" in document):
            return _sacct_json(document, attempt)
        return _kubernetes(document, content)
    text = content.decode("utf-8", "replace")
    return _sacct(text) if base.startswith(("sacct", "squeue")) else _scontrol(text)


def _on_one_line(fact: Fact) -> Fact:
    broken = "\n" in fact.text or "\r" in fact.text
    return msgspec.structs.replace(fact, text=" ".join(fact.text.split())) if broken else fact


def cluster_zone(facts: Iterable[Fact], attempt: Attempt) -> float | None:
    """Seconds east of UTC of the cluster's zone: sacct writes local time, the attempt's own times are UTC.

    Told by the row whose start (and end, where it has one) are the attempt's but for a zone; None when no row tells.
    """
    fitting = []
    for fact in facts:
        began, ended = _interval(fact)
        if began is None or attempt.started_at is None:
            continue
        shift = zone_shift(began - attempt.started_at, 90.0)
        if shift is None:
            continue
        also = None if ended is None or attempt.ended_at is None else ended - shift - attempt.ended_at
        fitting.append((also is None or abs(also) >= 300, abs(shift), shift))
    return min(fitting)[2] if fitting else None


def in_known_zone(facts: list[Fact], attempt: Attempt) -> list[Fact]:
    """Without times that name no zone, where nothing tells it: the attempt's own times are not known. Taken for UTC, a
    job's end may be hours before what ended it.
    """
    if attempt.started_at is not None or attempt.ended_at is not None:
        return facts
    local = {id(fact) for fact in facts if fact.stamp and fact.stamp.offset is None and fact.stamp.kind != "epoch"}
    return [msgspec.structs.replace(fact, stamp=None) if id(fact) in local else fact for fact in facts]


def of_this_attempt(facts: list[Fact], attempt: Attempt) -> list[Fact]:
    """Without rows of other jobs, where there are some of this one, and without rows of sacct about the job's other
    attempts (before a requeue), as their times tell.
    """
    if any(is_about(attempt.workload.id, fact) for fact in facts):
        facts = [fact for fact in facts if fact.kind not in ("sacct", "job") or is_about(attempt.workload.id, fact)]
    if attempt.started_at is None or attempt.ended_at is None:
        return facts
    zone = cluster_zone(facts, attempt) or 0.0
    own, other = set(), []
    for fact in facts:
        began, ended = _interval(fact)
        if began is None or ended is None:
            continue
        apart = max(attempt.started_at - (ended - zone), (began - zone) - attempt.ended_at)
        if apart < (-1.0 if ended > began else 60.0):
            own.add(_job(fact))
        else:
            other.append(fact)
    dropped = {id(fact) for fact in other if _job(fact) in own}
    return [fact for fact in facts if id(fact) not in dropped]


def is_about(job: str, fact: Fact) -> bool:
    """Does a row tell of this job, a step, task or part of it, or the array that it is a task of?"""
    names = [fact.fields.get(key, "") for key in ("JobID", "JobIDRaw", "JobId", "ArrayJobId", "HetJobId")]
    return fact.kind in ("sacct", "job") and any(_same_job(job, name.split(".")[0]) for name in names if name)


def _same_job(job: str, name: str) -> bool:
    return job == name or name.startswith((f"{job}_", f"{job}+"))


def _job(fact: Fact) -> str:
    return fact.fields.get("JobID", "").split(".")[0]


def _interval(fact: Fact) -> tuple[float | None, float | None]:
    """Start and end of a row of sacct as they are written, in local time."""
    if fact.kind != "sacct":
        return None, None
    began, ended = (parse_time(fact.fields.get(key)) for key in ("Start", "End"))
    return (
        began.naive if began is not None and began.offset is None else None,
        ended.naive if ended is not None and ended.offset is None else None,
    )


def _document(content: bytes) -> Any:
    """JSON, or one object a line as `kubectl get --watch` writes it."""
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError) as error:
        said = str(error)
    try:
        return msgspec.json.Decoder().decode_lines(content) if content.count(b"\n{") else _refuse(said)
    except (msgspec.DecodeError, RecursionError):
        return _refuse(said)


def _refuse(said: str) -> Any:
    raise ValueError(f"not valid JSON: {said}")


def attempt_fact(attempt: Attempt) -> Fact:
    parts = [f"State={attempt.state}"]
    if attempt.exit_code is not None:
        parts.append(f"ExitCode={attempt.exit_code}")
    if attempt.reason is not None:
        parts.append(f"Reason={attempt.reason}")
    stamp = Stamp("epoch", attempt.ended_at, 0) if attempt.ended_at is not None else None
    return Fact(f"attempt: {' '.join(parts)}", 0, 1, stamp, None, "attempt")


_COLUMNS = {
    "jobid": "JobID", "jobidraw": "JobIDRaw",
    "state": "State", "st": "State", "reason": "Reason", "nodelist": "NodeList",
    "nodelist(reason)": "Reason", "exitcode": "ExitCode", "start": "Start", "end": "End",
}  # fmt: skip
_SHORT_STATES = {
    "PD": "PENDING", "R": "RUNNING", "CG": "COMPLETING", "CD": "COMPLETED", "F": "FAILED", "TO": "TIMEOUT",
    "CA": "CANCELLED", "NF": "NODE_FAIL", "PR": "PREEMPTED", "OOM": "OUT_OF_MEMORY", "S": "SUSPENDED",
}  # fmt: skip


def _sacct(text: str) -> Iterator[Fact]:
    """Rows of sacct and squeue: parted by bars, or in columns."""
    offset = 0
    header: list[str] | None = None
    widths: list[int] = []
    for number, row in enumerate(text.splitlines(keepends=True), 1):
        cells = row.strip().split("|") if "|" in row else _columns(row.rstrip(), widths, header)
        if header is None and len(cells) > 2:
            header = [_COLUMNS.get(cell.strip().lower(), cell.strip()) for cell in cells]
        elif row.startswith("---"):
            widths = [len(dashes) for dashes in row.split()]
        elif header is not None and len(cells) >= 3:
            fields = dict(zip(header, cells, strict=False))
            if fields.get("State") in _SHORT_STATES:
                fields["State"] = _SHORT_STATES[fields["State"]]
            shown = _shown(
                fields, "JobID", "State", "ExitCode", "DerivedExitCode", "Reason", "NodeList", "Start", "End"
            )
            yield Fact(f"sacct: {shown}", offset, number, parse_time(fields.get("End")), None, "sacct", fields)
        offset += len(row.encode("utf-8", "replace"))


def _columns(row: str, widths: list[int], header: list[str] | None) -> list[str]:
    """Cells of a row without bars: by the widths of the line of dashes, else by blanks."""
    if not widths:
        return row.split(None, len(header) - 1 if header else -1)
    cells, position = [], 0
    for width in widths:
        cells.append(row[position : position + width].strip())
        position += width + 1
    return cells


def _sacct_json(document: Any, attempt: Attempt) -> Iterator[Fact]:
    for job in _dicts(document.get("jobs") if isinstance(document, dict) else None):
        state = job.get("state") or {}
        current = state.get("current") if isinstance(state, dict) else state
        current = current[0] if isinstance(current, list) and current else current
        reason = state.get("reason") if isinstance(state, dict) else ""
        # The exit code is left out on purpose: `sacct --json` of Slurm 22.05 reports 0 for failed jobs.
        text = f"sacct: JobID={job.get('job_id')} State={current} Reason={reason} NodeList={job.get('nodes')}"
        time = job.get("time") or {}
        stamp = parse_time(time.get("end") if isinstance(time, dict) else None)
        told = {"JobID": job.get("job_id"), "State": current, "NodeList": job.get("nodes"), "JobName": job.get("name")}
        yield Fact(text, 0, 1, stamp, None, "sacct", {key: str(value) for key, value in told.items() if value})


def _scontrol(text: str) -> Iterator[Fact]:
    """A record goes on until the next one begins: Slurm writes empty lines inside records too, before Reason."""
    starts = [found.end() for found in _RECORD.finditer(text)]
    offset, line, position = 0, 1, 0
    for start, end in pairwise([*starts, len(text)]):
        between, position = text[position:start], start
        offset, line = offset + len(between.encode("utf-8", "replace")), line + between.count("\n")
        fields = _fields(text[start:end])
        if "NodeName" in fields:
            shown = _shown(fields, "NodeName", "State", "Reason", "BootTime", "SlurmdStartTime", "LastBusyTime")
            since = re.search(r"@(\d{4}-\d\d-\d\dT[\d:]+)\]", fields.get("Reason", ""))
            stamp = parse_time(since[1]) if since else None
            yield Fact(f"node: {shown}", offset, line, stamp, fields["NodeName"], "node", fields)
        elif "JobId" in fields:
            shown = _shown(fields, *_JOB_FIELDS)
            yield Fact(f"job: {shown}", offset, line, parse_time(fields.get("EndTime")), None, "job", fields)


def _fields(block: str) -> dict[str, str]:
    """``Key=value Key=value with blanks`` as a mapping."""
    keys = list(_KEY.finditer(block))
    ends = [following.start() for following in keys[1:]] + [len(block)]
    return {key[1]: " ".join(block[key.end() : end].split()) for key, end in zip(keys, ends, strict=False)}


def _shown(fields: dict[str, str], *names: str) -> str:
    return " ".join(f"{key}={fields[key]}" for key in names if key in fields)


def _kubernetes(document: Any, content: bytes) -> Iterator[Fact]:
    items = document.get("items") if isinstance(document, dict) and "items" in document else document
    place = _Places(content)
    for item in items if isinstance(items, list) else [items]:
        if not isinstance(item, dict):
            continue
        offset, line = place.of(item)
        kind = item.get("kind") or ("Event" if "involvedObject" in item or "regarding" in item else "Pod")
        if kind == "Pod":
            yield from _pod(item, offset, line)
        elif kind == "Event":
            yield from _event(item, offset, line)
        else:
            yield from _conditions(item, kind, offset, line)


class _Places:
    """Where each object stands in the file: by its own name, which every Kubernetes object has."""

    def __init__(self, content: bytes) -> None:
        self._content, self._position = content, 0

    def of(self, item: dict[str, Any]) -> tuple[int, int]:
        name = (item.get("metadata") or {}).get("name") if isinstance(item.get("metadata"), dict) else None
        found = self._content.find(f'"{name}"'.encode(), self._position) if name else -1
        if found < 0:
            return 0, 1
        self._position = found + 1
        start = self._content.rfind(b"\n", 0, found) + 1
        return start, self._content.count(b"\n", 0, start) + 1


def _pod(item: dict[str, Any], offset: int, line: int) -> Iterator[Fact]:
    meta, spec, status = (_dict(item.get(key)) for key in ("metadata", "spec", "status"))
    pod, node = meta.get("name", "?"), _host(spec.get("nodeName"))
    base = f"Pod={pod}" + (f" Node={node}" if node else "")
    fields = {
        "pod": str(pod),
        "node": str(node or ""),
        "ip": str(status.get("podIP") or ""),
        "host_ip": str(status.get("hostIP") or ""),
        "uid": str(meta.get("uid") or ""),
    }
    text = f"pod: {base} Phase={status.get('phase')}{_reason(status)}"
    yield Fact(text, offset, line, parse_time(status.get("startTime")), node, "pod", fields)
    for condition in _dicts(status.get("conditions")):
        said = f"Type={condition.get('type')} Status={condition.get('status')}{_reason(condition)}"
        yield Fact(f"podcondition: {base} {said}", offset, line, parse_time(condition.get("lastTransitionTime")), node)
    for key in ("initContainerStatuses", "containerStatuses"):
        for container in _dicts(status.get(key)):
            yield from _container(container, base, node, offset, line)


def _container(container: dict[str, Any], base: str, node: str | None, offset: int, line: int) -> Iterator[Fact]:
    for key, last in (("lastState", " Last=true"), ("state", "")):
        for name, state in _dict(container.get(key)).items():
            if not isinstance(state, dict):
                continue
            parts = [f"container: {base} Container={container.get('name')} State={name}{last}"]
            parts += [f"Reason={state['reason']}"] if state.get("reason") else []
            parts += [f"ExitCode={state['exitCode']}"] if "exitCode" in state else []
            parts += [f"Signal={state['signal']}"] if state.get("signal") else []
            parts.append(f"Restarts={container.get('restartCount', 0)}")
            parts += [f"Message={_flat(state['message'])}"] if state.get("message") else []
            yield Fact(
                " ".join(parts), offset, line, parse_time(state.get("finishedAt") or state.get("startedAt")), node
            )


def _event(item: dict[str, Any], offset: int, line: int) -> Iterator[Fact]:
    """An event, at its first moment; one that was repeated also at its last."""
    about = _dict(item.get("involvedObject") or item.get("regarding"))
    source, series = _dict(item.get("source")), _dict(item.get("series"))
    node = _host(about.get("name") if about.get("kind") == "Node" else source.get("host"))
    when = item.get("eventTime") or item.get("lastTimestamp") or item.get("firstTimestamp")
    first = item.get("firstTimestamp") or when
    last = series.get("lastObservedTime") or item.get("lastTimestamp") or first
    parts = [
        f"event: Kind={about.get('kind')} Object={about.get('name')}" + (f" Node={node}" if node else ""),
        f"Type={item.get('type')} Reason={item.get('reason')} Count={series.get('count') or item.get('count') or 1}",
        f"Message={_flat(item.get('message') or item.get('note') or '')}",
    ]
    fields = {"kind": str(about.get("kind")), "object": str(about.get("name")), "reason": str(item.get("reason"))}
    for moment in (first, last) if last != first else (first,):
        yield Fact(" ".join(parts), offset, line, parse_time(moment), node, "event", fields)


def _conditions(item: dict[str, Any], kind: str, offset: int, line: int) -> Iterator[Fact]:
    name = _dict(item.get("metadata")).get("name", "?")
    for condition in _dicts(_dict(item.get("status")).get("conditions")):
        said = f"Type={condition.get('type')} Status={condition.get('status')}{_reason(condition)}"
        stamp = parse_time(condition.get("lastTransitionTime"))
        node = _host(name) if kind == "Node" else None
        yield Fact(f"condition: Kind={kind} Name={name} {said}", offset, line, stamp, node, "condition")


def _reason(holder: dict[str, Any]) -> str:
    parts = f" Reason={holder['reason']}" if holder.get("reason") else ""
    return parts + (f" Message={_flat(holder['message'])}" if holder.get("message") else "")


def _flat(text: Any) -> str:
    return " ".join(str(text).split())


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _host(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
