"""What Slurm's clients print, as values: accounting rows, job ids, states, exit codes, times, node lists.

Rows come from `sacct --parsable2` with a delimiter that no name holds; exit codes are taken from there alone, because
`sacct --json` of Slurm 22.05 reports 0 for failed jobs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

import msgspec

from engine import hostlist

DELIMITER = "\x1f"
FIELDS = (
    "JobID", "JobIDRaw", "State", "ExitCode", "DerivedExitCode", "Reason", "NodeList", "NNodes", "NTasks", "AllocTRES",
    "Submit", "Start", "End", "Elapsed", "Timelimit", "User", "UID", "Account", "Partition", "QOS", "MaxRSS", "ReqMem",
    "Restarts", "JobName", "WorkDir", "SubmitLine", "StdOut", "StdErr", "Cluster",
)  # fmt: skip
"""What is asked for, as far as this sacct knows it. The last one never holds a line break, so a record's end is
certain."""

FAILED_STATES = ("FAILED", "OUT_OF_MEMORY", "NODE_FAIL", "BOOT_FAIL", "TIMEOUT", "DEADLINE", "CANCELLED", "PREEMPTED",
                 "REVOKED", "REQUEUED")  # fmt: skip
ENDED_STATES = ("COMPLETED", *FAILED_STATES)
STATES = ("RUNNING", "SUSPENDED", "PENDING", "RESIZING", *ENDED_STATES)
_SEVERITY = {state: rank for rank, state in enumerate(
    ("COMPLETED", "REVOKED", "REQUEUED", "CANCELLED", "PREEMPTED", "TIMEOUT", "DEADLINE", "FAILED", "BOOT_FAIL",
     "OUT_OF_MEMORY", "NODE_FAIL")
)}  # fmt: skip
"""Of the components of a heterogeneous job, the one with the highest tells how the job ended."""

_JOB_ID = re.compile(r"(?P<job>\d+)(?:_(?P<task>\d+|\[[\d,%:-]+\.*\]))?(?:\+(?P<offset>\d+))?(?:\.(?P<step>\S+))?")
_NOTHING = {"", "None", "Unknown", "N/A", "(null)", "NONE", "UNLIMITED"}
MAX_NODES = 100_000


class JobId(msgspec.Struct, frozen=True):
    """A job id as sacct shows it: 123, 123_4, 123_[5-9] (tasks that never ran), 123+0, each with a step or without."""

    job: int
    task: str | None = None
    offset: int | None = None
    step: str | None = None

    @classmethod
    def parse(cls, text: str) -> JobId:
        """Raises ValueError."""
        found = _JOB_ID.fullmatch(text.strip())
        if not found:
            raise ValueError(f"{text[:60]!r} is no job id")
        offset = found["offset"]
        return cls(int(found["job"]), found["task"], None if offset is None else int(offset), found["step"])

    @property
    def workload(self) -> str:
        """What people call the job: an array task is a job of its own, a component of a heterogeneous job is not."""
        return f"{self.job}" if self.task is None else f"{self.job}_{self.task}"

    @property
    def asked(self) -> str:
        """What a client is asked for to get this job, and maybe others of the same array."""
        return self.workload if self.task is None or self.task.isdigit() else str(self.job)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One line of sacct: an allocation, or a step of it."""

    id: JobId
    raw_id: int
    """The number that slurmd and the job itself see; differs from `id` for array tasks."""
    state: str
    """As told, e.g. ``CANCELLED by 1000``."""
    exit_code: str | None
    reason: str | None
    nodes: tuple[str, ...]
    submit: float | None
    start: float | None
    end: float | None
    name: str = ""
    user: str = ""
    uid: int | None = None
    account: str = ""
    partition: str = ""
    cluster: str = ""
    tres: str = ""
    work_dir: str = ""
    submit_line: str = ""
    stdout: str = ""
    stderr: str = ""
    cells: dict[str, str] = {}
    """Every column as it was printed."""

    @property
    def word(self) -> str:
        """The state without what follows it, e.g. CANCELLED."""
        return state_word(self.state)

    @property
    def ended(self) -> bool:
        return self.end is not None and self.word in ENDED_STATES


class NotSacct(ValueError):
    """What was printed is not sacct's table; holds its first line."""


def parse_rows(lines: Iterable[bytes], delimiter: str = DELIMITER) -> Iterator[Row | str]:
    """Rows of `sacct --parsable2 --delimiter=...`, with its header line; a record that can't be read is its text.

    What stands before the header (a greeting of the host) is passed over. Names may hold line breaks. Raises NotSacct.
    """
    header: list[str] = []
    first, record = "", ""
    for raw in lines:
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        if not header:
            at = line.find(f"JobID{delimiter}")
            if at < 0:
                first = first or line
                continue
            header = line[at:].split(delimiter)
            continue
        record = f"{record}\n{line}" if record else line
        cells = record.split(delimiter)
        if len(cells) < len(header):
            continue
        try:
            if len(cells) > len(header):
                raise ValueError("more cells than columns")
            yield _row(dict(zip(header, cells, strict=True)))
        except ValueError as error:
            yield f"{' '.join(record.replace(delimiter, '|').split())[:200]}: {error}"
        record = ""
    if record:
        yield f"{' '.join(record.replace(delimiter, '|').split())[:200]}: cut off"
    if not header:
        raise NotSacct(first[:200])


def _row(cells: dict[str, str]) -> Row:
    job = JobId.parse(cells["JobID"])
    raw = cells.get("JobIDRaw", "").split(".")[0].split("+")[0]
    uid = cells.get("UID", "")
    return Row(
        id=job,
        raw_id=int(raw) if raw.isdigit() else job.job,
        state=cells.get("State", "").strip(),
        exit_code=cells.get("ExitCode") or None,
        reason=known(cells.get("Reason", "")),
        nodes=expand_nodes(cells.get("NodeList", "")),
        submit=parse_time(cells.get("Submit", "")),
        start=parse_time(cells.get("Start", "")),
        end=parse_time(cells.get("End", "")),
        name=cells.get("JobName", ""),
        user=cells.get("User", ""),
        uid=int(uid) if uid.isdigit() else None,
        account=cells.get("Account", ""),
        partition=cells.get("Partition", ""),
        cluster=cells.get("Cluster", ""),
        tres=cells.get("AllocTRES", ""),
        work_dir=cells.get("WorkDir", ""),
        submit_line=cells.get("SubmitLine", ""),
        stdout=cells.get("StdOut", ""),
        stderr=cells.get("StdErr", ""),
        cells=cells,
    )


def known(text: str) -> str | None:
    """A value, or None for the many words with which Slurm says that there is none."""
    text = text.strip()
    return None if text in _NOTHING else text


def state_word(state: str) -> str:
    """CANCELLED of ``CANCELLED by 1000``; sacct's short form ends in +."""
    words = state.split()
    return words[0].rstrip("+").upper() if words else ""


def severity(state: str) -> int:
    return _SEVERITY.get(state_word(state), len(_SEVERITY))


def parse_time(text: str) -> float | None:
    """Epoch seconds of a time that was printed as seconds since the epoch, or in UTC. None for Unknown and the like."""
    text = text.strip()
    if text.isdigit():
        return float(text) if int(text) > 0 else None
    if text in _NOTHING:
        return None
    try:
        at = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def print_time(at: float | None) -> str:
    """For people and for the engine: UTC, with its zone."""
    if at is None:
        return "Unknown"
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def expand_nodes(text: str) -> tuple[str, ...]:
    """The nodes of a compressed list, in its order; none for ``None assigned``. What is no list is taken as it is."""
    text = text.strip()
    if known(text) is None or text == "None assigned":
        return ()
    try:
        found = hostlist.expand_hostlist(text)
    except (hostlist.BadHostlist, ValueError):
        found = [node for node in re.split(r"[,\s]+", text) if node]
    return tuple(dict.fromkeys(found[:MAX_NODES]))


def compress_nodes(nodes: Sequence[str]) -> str:
    """A list of nodes as Slurm takes it."""
    try:
        return str(hostlist.collect_hostlist(list(nodes)))
    except (hostlist.BadHostlist, ValueError):
        return ",".join(nodes)


_RECORD = re.compile(r"(?m)^(?=JobId=|NodeName=)")
_FIELD = re.compile(r"(?:^|\s)([A-Z][\w/:]*)=(.*?)(?=\s+[A-Z][\w/:]*=|\s*$)", re.DOTALL)
_LINE_FIELD = re.compile(r"(?m)^\s*(Command|WorkDir|StdErr|StdIn|StdOut|Comment)=(.*?)\s*$")


def scontrol_records(text: str) -> list[tuple[str, dict[str, str]]]:
    """The records of `scontrol show`, each as its text and its fields."""
    found = []
    for record in _RECORD.split(text):
        if not record.startswith(("JobId=", "NodeName=")):
            continue
        fields = {key: value.strip() for key, value in _FIELD.findall(record)}
        fields.update(dict(_LINE_FIELD.findall(record)))  # paths may hold " X="
        found.append((record.rstrip() + "\n", fields))
    return found


def row_of_scontrol(fields: dict[str, str]) -> Row | None:
    """An allocation as slurmctld tells of it; None for what is no job."""
    raw = fields.get("JobId", "")
    if not raw.isdigit():
        return None
    array, task, het = fields.get("ArrayJobId", ""), fields.get("ArrayTaskId"), fields.get("HetJobId", "")
    job = JobId(int(raw))
    if array.isdigit() and task:
        job = JobId(int(array), task)
    elif het.isdigit():
        job = JobId(int(het), None, int(fields.get("HetJobOffset", "0")))
    user, _, uid = fields.get("UserId", "").rstrip(")").partition("(")
    return Row(
        id=job,
        raw_id=int(raw),
        state=fields.get("JobState", ""),
        exit_code=fields.get("ExitCode"),
        reason=known(fields.get("Reason", "")),
        nodes=expand_nodes(fields.get("NodeList", "")),
        submit=parse_time(fields.get("SubmitTime", "")),
        start=parse_time(fields.get("StartTime", "")),
        end=parse_time(fields.get("EndTime", "")),
        name=fields.get("JobName", ""),
        user=user,
        uid=int(uid) if uid.isdigit() else None,
        partition=fields.get("Partition", ""),
        work_dir=fields.get("WorkDir", ""),
    )
