"""What Slurm is asked through slurmrestd, in place of its command line clients.

Answers are turned into the rows and records that the clients print, so that everything behind is the same. What
slurmrestd does not tell stays unknown: 22.05 reports exit code 0 for failed jobs, so that such a code is left out.
"""

from __future__ import annotations

import http.client
import re
import socket
import time
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from connectors.base import ConnectorError
from connectors.http import Deadline, HttpClient
from connectors.refusals import HttpError, Kind
from connectors.slurm.client import TooMuch
from connectors.slurm.config import RestConfig, SlurmConfig
from connectors.slurm.parser import Row, print_time
from connectors.slurm.restrows import number, rows_of
from connectors.slurm.runner import CommandError, Trouble

MAX_BYTES = 64 * 1024**2
_NOTHING = ("Nothing found", "Invalid job id", "Unknown job")
_PATHS = re.compile(r"/slurmdb/v0\.0\.(\d+)/jobs")


class RestClient:
    """By slurmrestd. One for each search or collection; not shared between threads."""

    _versions: ClassVar[dict[str, str]] = {}
    """Address -> the newest version of the API there."""

    def __init__(self, config: SlurmConfig, deadline: Deadline) -> None:
        assert config.rest is not None
        self._config, self._rest = config, config.rest
        self.deadline = deadline
        self.asked: list[str] = []

    def ended(self, start: float, end: float) -> Iterator[Row | str]:
        # Nothing else is asked for: 22.05 knows no users, and ends when a list of states holds a comma.
        params = {"start_time": f"uts{int(start)}", "end_time": f"uts{int(end)}", "skip_steps": "true"}
        path = f"/slurmdb/{self._version()}/jobs"
        try:
            jobs = self._jobs(path, params)
            if "CANCELLED" in self._config.states:  # those that never could begin are told of by this alone
                jobs += self._jobs(path, {**params, "state": "CANCELLED"})
        except HttpError as error:
            if error.kind in (Kind.TOO_LARGE, Kind.SLOW):
                raise TooMuch(str(error)) from error
            raise
        for row in self._rows(jobs, steps=False):
            if isinstance(row, str) or self._is_wanted(row, start, end):
                yield row

    def _is_wanted(self, row: Row, start: float, end: float) -> bool:
        """slurmrestd tells of all jobs that ran in the window, whatever became of them."""
        config = self._config
        if row.word not in config.states or (row.end is not None and not start <= row.end <= end):
            return False
        chosen = ((config.users, row.user), (config.accounts, row.account), (config.partitions, row.partition))
        return all(not words or value in words for words, value in chosen)

    def records(self, jobs: Sequence[str], *, steps: bool = False) -> Iterator[Row | str]:
        for job in dict.fromkeys(job.split("_")[0] for job in jobs):
            found = self._jobs(f"/slurmdb/{self._version()}/job/{job}", {})
            yield from self._rows(found, steps=steps)

    def _rows(self, jobs: list[Any], *, steps: bool) -> Iterator[Row | str]:
        for job in jobs:
            try:
                rows = rows_of(job)
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                yield f"{str(job)[:200]}: {error}"
                continue
            yield from rows if steps else rows[:1]

    def job(self, job: str) -> str:
        jobs = self._jobs(f"/slurm/{self._version()}/job/{job.split('_')[0]}", {})
        if not jobs:
            raise CommandError(Trouble.UNKNOWN_JOB, f"slurmctld has forgotten job {job}")
        return "\n".join(_job_text(one) for one in jobs)

    def nodes(self, names: Sequence[str]) -> str:
        wanted, parts = set(names), []
        if len(wanted) > 20:
            answer = self._ask(f"/slurm/{self._version()}/nodes", {})
            parts = [_node_text(node) for node in answer.get("nodes") or [] if node.get("name") in wanted]
        else:
            for name in names:
                answer = self._ask(f"/slurm/{self._version()}/node/{urllib.parse.quote(name, safe='')}", {})
                parts += [_node_text(node) for node in answer.get("nodes") or []]
        return "\n".join(parts)

    def queue(self, job: str) -> str:
        return ""  # job() holds the same

    def batch_script(self, job: str) -> str:
        return ""

    def utc_offset(self, at: float) -> float:
        raise ConnectorError("slurmrestd does not tell the cluster's time zone: set timezone")

    def ping(self) -> int:
        self._ask(f"/slurm/{self._version()}/ping", {})
        params = {"start_time": f"uts{int(time.time()) - 3600}", "skip_steps": "true"}
        return len(self._jobs(f"/slurmdb/{self._version()}/jobs", params))

    # --- asking ------------------------------------------------------------------------------------------------------

    def _jobs(self, path: str, params: Mapping[str, str]) -> list[Any]:
        try:
            found = self._ask(path, params).get("jobs")
        except HttpError as error:
            if any(words in error.detail for words in _NOTHING):
                return []
            raise
        return found if isinstance(found, list) else []

    def _version(self) -> str:
        """The configured version of the API, or the newest one that this slurmrestd has."""
        if self._rest.version:
            return self._rest.version
        place = self._rest.socket or (self._rest.endpoint.url if self._rest.endpoint else "")
        if place not in self._versions:
            for path in ("/openapi/v3", "/openapi"):
                try:
                    found = _PATHS.findall(self._get(path, {}).decode("utf-8", "replace").replace("\\/", "/"))
                except HttpError as error:
                    if error.kind is not Kind.ELSEWHERE:
                        raise
                    continue
                if found:
                    self._versions[place] = f"v0.0.{max(int(number) for number in found)}"
                    break
            else:
                raise ConnectorError("slurmrestd names no version of its API: set rest.version")
        return self._versions[place]

    def _ask(self, path: str, params: Mapping[str, str]) -> dict[str, Any]:
        body = self._get(path, params)
        try:
            answer = msgspec.json.decode(body)
        except (msgspec.DecodeError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise HttpError(Kind.GARBAGE, "slurmrestd answers something else than JSON: check rest.url")
        errors = [error for error in answer.get("errors") or [] if isinstance(error, dict)]
        if errors:
            words = " ".join(str(errors[0].get("description") or errors[0].get("error") or errors[0]).split())[:300]
            if any(nothing in words for nothing in _NOTHING):
                return {}
            kind = Kind.DENIED if "uthenti" in words or "denied" in words else Kind.SERVER
            raise HttpError(kind, f"slurmrestd: {words}", detail=words)
        return answer

    def _get(self, path: str, params: Mapping[str, str]) -> bytes:
        shown = f"GET {path}" + (f"?{urllib.parse.urlencode(params)}" if params else "")
        if shown not in self.asked:
            self.asked.append(shown)
        if self._rest.socket:
            return _over_socket(self._rest, path, params, self.deadline)
        assert self._rest.endpoint is not None
        headers = {"X-SLURM-USER-NAME": self._rest.user} if self._rest.user else {}
        if self._rest.token is not None:
            headers["X-SLURM-USER-TOKEN"] = self._rest.token.reveal()
        with HttpClient(self._rest.endpoint) as client:
            return client.get(path, list(params.items()), self.deadline, headers=headers, max_bytes=MAX_BYTES)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, seconds: float) -> None:
        super().__init__("localhost", timeout=seconds)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _over_socket(rest: RestConfig, path: str, params: Mapping[str, str], deadline: Deadline) -> bytes:
    """The body of a 200 answer. Raises HttpError."""
    allowed = min(rest.seconds, deadline.left())
    if allowed <= 0:
        raise HttpError(Kind.OVER, f"slurmrestd was not finished within the time limit ({deadline.seconds:.0f} s)")
    end, content = time.monotonic() + allowed, bytearray()
    connection = _UnixConnection(rest.socket, allowed)
    try:
        target = path + (f"?{urllib.parse.urlencode(params)}" if params else "")
        connection.request("GET", target, headers={"Accept": "application/json", "User-Agent": "faultline"})
        answer = connection.getresponse()
        while block := answer.read1(1 << 16):
            content += block
            if len(content) > MAX_BYTES:
                raise HttpError(Kind.TOO_LARGE, f"slurmrestd answers with more than {MAX_BYTES} bytes")
            if time.monotonic() > end or deadline.stopped():
                raise TimeoutError
    except TimeoutError:
        raise HttpError(
            Kind.SLOW, f"slurmrestd did not answer within {allowed:.0f} s: slurmctld or slurmdbd is down or overloaded"
        ) from None
    except (OSError, http.client.HTTPException) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        raise HttpError(
            Kind.DOWN,
            f"slurmrestd at {rest.socket} can not be reached ({why}): see that it runs, and who may use its socket",
        ) from None
    finally:
        connection.close()
    if answer.status != 200:
        detail = " ".join(bytes(content[:2000]).decode("utf-8", "replace").split())
        kind = Kind.ELSEWHERE if answer.status == 404 else Kind.DENIED if answer.status in (401, 403) else Kind.SERVER
        raise HttpError(kind, f"slurmrestd answers {path} with HTTP {answer.status}: {detail[:300]}", detail=detail)
    return bytes(content)


# --- answers as scontrol prints them ---------------------------------------------------------------------------------


def _words(value: Any) -> str:
    return "+".join(str(part) for part in value) if isinstance(value, list) else str(value or "")


def _time(value: Any) -> str:
    at = number(value)
    return print_time(float(at)).removesuffix("Z") if at else "Unknown"


def _flat(value: Any) -> str:
    return " ".join(str(value if value not in (None, "") else "(null)").split())


def _job_text(job: Mapping[str, Any]) -> str:
    raw = job.get("exit_code")
    code = (number(raw.get("return_code")) if isinstance(raw, dict) else number(raw)) or 0
    signal = 0
    if isinstance(raw, dict):
        signal = number((raw.get("signal") or {}).get("id")) or 0
    elif code:
        code, signal = code >> 8, code & 0x7F  # a wait status
    task, array = number(job.get("array_task_id")), number(job.get("array_job_id"))
    ids = f"JobId={number(job.get('job_id'))}" + (f" ArrayJobId={array} ArrayTaskId={task}" if task is not None else "")
    return (
        f"{ids} JobName={_flat(job.get('name'))}\n"
        f"   UserId={_flat(job.get('user_name'))}({number(job.get('user_id'))})\n"
        f"   JobState={_words(job.get('job_state'))} Reason={_flat(job.get('state_reason'))}\n"
        f"   Restarts={number(job.get('restart_cnt')) or 0} BatchFlag={int(bool(job.get('batch_flag')))} "
        f"ExitCode={code}:{signal}\n"
        f"   SubmitTime={_time(job.get('submit_time'))} StartTime={_time(job.get('start_time'))} "
        f"EndTime={_time(job.get('end_time'))}\n"
        f"   NodeList={_flat(job.get('nodes'))}\n   WorkDir={_flat(job.get('current_working_directory'))}\n"
        f"   StdErr={_flat(job.get('stderr_expanded') or job.get('standard_error'))}\n"
        f"   StdOut={_flat(job.get('stdout_expanded') or job.get('standard_output'))}\n"
    )


def _node_text(node: Mapping[str, Any]) -> str:
    state = [*_words(node.get("state")).upper().split("+"), *(node.get("state_flags") or [])]
    reason, at = _flat(node.get("reason")), _time(node.get("reason_changed_at"))
    said = f"\n   Reason={reason} [{node.get('reason_set_by_user') or 'unknown'}@{at}]" if node.get("reason") else ""
    return (
        f"NodeName={_flat(node.get('name'))}\n   State={'+'.join(dict.fromkeys(filter(None, state)))}\n"
        f"   BootTime={_time(node.get('boot_time'))} SlurmdStartTime={_time(node.get('slurmd_start_time'))}\n"
        f"   LastBusyTime={_time(node.get('last_busy'))}{said}\n"
    )
