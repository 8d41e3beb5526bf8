"""What records of Slurm among loose files say of the attempt, where nobody else says it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from engine.facts import Fact, is_about
from engine.hostlist import BadHostlist, expand_hostlist

_OUTPUT = re.compile(r"(?:^|[^\w-])slurm-(\d+(?:_\d+)?)(?![\w])")
_ID = re.compile(r"\d+(?:_\d+)?")
_ENDED = (
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT",
)  # fmt: skip
_NOTHING = ("", "None", "(null)", "N/A", "Unknown", "None assigned")


class Told(msgspec.Struct, frozen=True):
    """Of one job. No times: Slurm prints them in a zone that it does not name."""

    job: str = ""
    name: str = ""
    state: str = ""
    exit_code: str | None = None
    reason: str | None = None
    nodes: tuple[str, ...] = ()
    gpus_per_node: int | None = None


def job_of_names(names: Iterable[str]) -> str:
    """The one job that names like slurm-48213.out tell; empty when none or several do."""
    jobs = jobs_of_names(names)
    return jobs[0] if len(jobs) == 1 else ""


def jobs_of_names(names: Iterable[str]) -> list[str]:
    """Every job that a name like slurm-48213.out tells."""
    return sorted({found[1] for name in names if (found := _OUTPUT.search(name))})


def jobs_of(facts: Iterable[Fact]) -> list[str]:
    """The jobs that there are rows of, each once, without their steps."""
    ids = [fact.fields.get("JobID") or fact.fields.get("JobId", "") for fact in facts if fact.kind in ("sacct", "job")]
    return list(dict.fromkeys(found[0] for one in ids if (found := _ID.match(one))))


def told_of(job: str, facts: Sequence[Fact]) -> Told:
    """What the rows say of one job: those of sacct first, which tell the end; of several the last."""
    rows = [fact.fields for fact in facts if is_about(job, fact) and "." not in fact.fields.get("JobID", "")]
    rows.sort(key=lambda row: "JobID" in row)
    told: dict[str, str] = {}
    for row in rows:
        told |= {key: value.strip() for key, value in row.items() if value.strip() not in _NOTHING}
    state = next((state for state in (_ended(told.get(key, "")) for key in ("State", "JobState")) if state), "")
    nodes = _nodes(told.get("NodeList", ""))
    return Told(
        job=job,
        name=told.get("JobName", ""),
        state=state,
        exit_code=told.get("ExitCode") if state else None,
        reason=told.get("Reason") if state else None,
        nodes=nodes,
        gpus_per_node=gpus_per_node(told.get("AllocTRES") or told.get("TRES", ""), len(nodes)),
    )


def _ended(told: str) -> str:
    """A state in which a job is over, also where a narrow column cuts it: `OUT_OF_ME+`. One that was told while the job
    ran says nothing of how it ended.
    """
    word = told.split()[0] if told else ""
    whole = [state for state in _ENDED if state == word or (word.endswith("+") and state.startswith(word[:-1]))]
    if len(whole) != 1:
        return ""
    return told if whole[0] == word else whole[0]


def _nodes(told: str) -> tuple[str, ...]:
    try:
        return tuple(expand_hostlist(told)) if told and "+" not in told else ()
    except BadHostlist:
        return ()


def gpus_per_node(tres: str, nodes: int) -> int | None:
    """GPUs a node from ``cpu=8,gres/gpu=16,node=2``; None when the allocation has none."""
    total, typed = 0, 0
    for part in tres.split(","):
        key, _, value = part.partition("=")
        if key == "gres/gpu" and value.isdigit():
            total = int(value)
        elif key.startswith("gres/gpu:") and value.isdigit():
            typed += int(value)
    total = total or typed
    return -(-total // nodes) if total and nodes else None
