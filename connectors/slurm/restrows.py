"""slurmrestd's accounting records as the rows that sacct prints; of 22.05 (v0.0.38) and of newer versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connectors.slurm.parser import JobId, Row, expand_nodes, known


def number(value: Any) -> int | None:
    """A number, plain or as {"set": true, "number": 5} in newer versions."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set", True) and not value.get("infinite") else None
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def rows_of(job: Mapping[str, Any]) -> list[Row]:
    """The allocation, then its steps. Raises ValueError, TypeError, KeyError or AttributeError for what is no job."""
    raw = number(job["job_id"])
    if raw is None:
        raise ValueError("no job_id")
    allocation = _row(job, _id(job, raw), raw, job["time"], job.get("state"), str(job.get("nodes") or ""))
    found = [allocation]
    for step in job.get("steps") or []:
        name = step.get("step") or {}
        own = name.get("id")
        own = own.rpartition(".")[2] if isinstance(own, str) else own
        own_id = JobId(allocation.id.job, allocation.id.task, allocation.id.offset, str(own))
        nodes = (step.get("nodes") or {}).get("range") or ""
        found.append(
            _row({**step, "name": name.get("name")}, own_id, raw, step.get("time") or {}, step.get("state"), nodes)
        )
    return found


def _id(job: Mapping[str, Any], raw: int) -> JobId:
    array, het = job.get("array") or {}, job.get("het") or {}
    task, pending = number(array.get("task_id")), array.get("task")
    if number(array.get("job_id")) and (task is not None or pending):
        return JobId(number(array["job_id"]) or raw, str(task) if task is not None else f"[{pending}]")
    if number(het.get("job_id")):
        return JobId(number(het["job_id"]) or raw, None, number(het.get("job_offset")) or 0)
    return JobId(raw)


def _row(record: Mapping[str, Any], job: JobId, raw: int, times: Mapping[str, Any], state: Any, nodes: str) -> Row:
    current, reason = (state.get("current"), state.get("reason")) if isinstance(state, dict) else (state, None)
    words = [str(word) for word in current] if isinstance(current, list) else [str(current or "")]
    word = words[0]
    killer = record.get("kill_request_user")
    if word == "CANCELLED" and killer:
        word = f"CANCELLED by {killer}"
    association = record.get("association") or {}
    tres = ",".join(
        f"{one['type']}{'/' + one['name'] if one.get('name') else ''}={one['count']}"
        for one in (record.get("tres") or {}).get("allocated") or []
        if isinstance(one, dict) and isinstance(one.get("count"), int)
    )
    shown = f"{job.workload}{f'+{job.offset}' if job.offset is not None else ''}{f'.{job.step}' if job.step else ''}"
    code = _exit_code(record.get("exit_code"), word)
    user = str(record.get("user") or association.get("user") or "")
    cells = {
        "JobID": shown, "JobIDRaw": f"{raw}{f'.{job.step}' if job.step else ''}", "State": word, "ExitCode": code or "",
        "Reason": str(reason or ""), "NodeList": nodes, "AllocTRES": tres, "Submit": "", "Start": "", "End": "",
        "User": user, "Account": str(record.get("account") or ""), "Partition": str(record.get("partition") or ""),
        "JobName": str(record.get("name") or ""), "WorkDir": str(record.get("working_directory") or ""),
        "SubmitLine": str(record.get("submit_line") or ""), "Cluster": str(record.get("cluster") or ""),
    }  # fmt: skip
    return Row(
        id=job,
        raw_id=raw,
        state=word,
        exit_code=code,
        reason=known(str(reason or "")),
        nodes=expand_nodes(nodes),
        submit=_at(times.get("submission") or times.get("start")),
        start=_at(times.get("start")),
        end=_at(times.get("end")),
        name=cells["JobName"],
        user=user,
        account=cells["Account"],
        partition=cells["Partition"],
        cluster=cells["Cluster"],
        tres=tres,
        work_dir=cells["WorkDir"],
        submit_line=cells["SubmitLine"],
        stdout=str(record.get("stdout_expanded") or record.get("stdout") or ""),
        stderr=str(record.get("stderr_expanded") or record.get("stderr") or ""),
        cells=cells,
    )


def _at(value: Any) -> float | None:
    seconds = number(value)
    return float(seconds) if seconds else None


def _exit_code(value: Any, state: str) -> str | None:
    """As sacct prints it; None for a 0 that the state contradicts, which is what 22.05 reports of failed jobs."""
    if not isinstance(value, dict):
        return None
    code, signal = number(value.get("return_code")) or 0, value.get("signal") or {}
    number_of_signal = number(signal.get("signal_id", signal.get("id"))) or 0 if isinstance(signal, dict) else 0
    if not code and not number_of_signal and state in ("FAILED", "OUT_OF_MEMORY"):
        return None
    return f"{code}:{number_of_signal}"
