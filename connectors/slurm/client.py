"""What Slurm is asked, by its own command line clients. Every call has a time limit and prints times in UTC."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Protocol

from connectors.http import Deadline
from connectors.slurm.config import SlurmConfig
from connectors.slurm.parser import (
    DELIMITER,
    FIELDS,
    NotSacct,
    Row,
    compress_nodes,
    parse_rows,
)
from connectors.slurm.runner import CommandError, Trouble

_UTC = {"TZ": "UTC", "SLURM_TIME_FORMAT": "standard"}
_EPOCH = {"TZ": "UTC", "SLURM_TIME_FORMAT": "%s"}
NODES_PER_CALL = 500
JOBS_PER_CALL = 500
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class TooMuch(Exception):
    """The answer is larger, or takes longer, than one call may: ask for a shorter window."""


class SlurmClient(Protocol):
    """What the connector needs of a cluster, whichever way it is asked. Everything raises ConnectorError."""

    asked: list[str]
    """Every question so far, for people."""
    deadline: Deadline

    def ended(self, start: float, end: float) -> Iterator[Row | str]:
        """Allocations that came into one of the wanted states from `start` to `end`. Raises TooMuch."""
        ...

    def records(self, jobs: Sequence[str], *, steps: bool = False) -> Iterator[Row | str]:
        """Every record of these jobs (ids as `JobId.asked`), requeued ones as well."""
        ...

    def job(self, job: str) -> str:
        """What slurmctld still knows of a job, as `scontrol show job` prints it. CommandError: UNKNOWN_JOB."""
        ...

    def nodes(self, names: Sequence[str]) -> str:
        """The nodes as `scontrol show node` prints them."""
        ...

    def queue(self, job: str) -> str:
        """The job's line in the queue, as a table with | between columns; empty when it is in none."""
        ...

    def batch_script(self, job: str) -> str:
        """The batch script, where accounting keeps it; else empty."""
        ...

    def utc_offset(self, at: float) -> float:
        """Seconds east of UTC of the cluster's clock at that time."""
        ...

    def ping(self) -> int:
        """Asks accounting and controller for as little as possible: how many jobs there are of the last hour."""
        ...


class CommandClient:
    """By sacct, scontrol and squeue. One for each search or collection; not shared between threads."""

    def __init__(self, config: SlurmConfig, deadline: Deadline) -> None:
        self._config, self._runner = config, config.runner
        self._fields: tuple[str, ...] = ()
        self._down: dict[bool, CommandError] = {}
        """Why accounting (True) or the controller (False) gave no answer: each is waited for once."""
        self.deadline = deadline
        self.asked: list[str] = []

    def ended(self, start: float, end: float) -> Iterator[Row | str]:
        command = [
            "sacct", "-a", "-D", "-X", f"--state={','.join(self._config.states)}", f"--starttime={_utc(start)}",
            f"--endtime={_utc(end)}",
        ]  # fmt: skip
        for option, words in (("user", self._config.users), ("accounts", self._config.accounts),
                              ("partition", self._config.partitions)):  # fmt: skip
            if words:
                command.append(f"--{option}={','.join(words)}")
        try:
            yield from self._rows(command)
        except CommandError as error:
            if error.trouble in (Trouble.TOO_LARGE, Trouble.SLOW):
                raise TooMuch(str(error)) from error
            raise

    def records(self, jobs: Sequence[str], *, steps: bool = False) -> Iterator[Row | str]:
        for start in range(0, len(jobs), JOBS_PER_CALL):
            some = jobs[start : start + JOBS_PER_CALL]
            yield from self._rows(["sacct", "-a", "-D", *([] if steps else ["-X"]), f"--jobs={','.join(some)}"])

    def _rows(self, command: list[str]) -> Iterator[Row | str]:
        if not self._fields:
            known = self._run(["sacct", "--helpformat"]).decode("utf-8", "replace").split()
            self._fields = tuple(field for field in FIELDS if field in known)
            if "JobID" not in self._fields:
                raise CommandError(Trouble.SETUP, "sacct --helpformat names no column JobID: is sacct Slurm's own?")
        command += [*self._cluster(), "--parsable2", f"--delimiter={DELIMITER}", f"--format={','.join(self._fields)}"]
        output = self._run(command, _EPOCH)
        try:
            yield from parse_rows(output.splitlines(keepends=True))
        except NotSacct as error:
            said = f": {error}" if str(error) else ""
            raise CommandError(Trouble.OTHER, f"sacct printed no table{said}: is there a wrapper around it?") from None

    def job(self, job: str) -> str:
        return self._records(["scontrol", "show", "job", *self._cluster(), job], "JobId=")

    def nodes(self, names: Sequence[str]) -> str:
        wanted = [name for name in names if _NODE.fullmatch(name)]
        parts = []
        for start in range(0, len(wanted), NODES_PER_CALL):
            some = compress_nodes(wanted[start : start + NODES_PER_CALL])
            parts.append(self._records(["scontrol", "show", "node", *self._cluster(), some], "NodeName="))
        return "\n".join(parts)

    def queue(self, job: str) -> str:
        columns = {"JobID": "%i", "State": "%T", "Reason": "%r", "NodeList": "%N", "Submit": "%V"}
        command = ["squeue", *self._cluster(), "--states=all", "--noheader", f"--jobs={job}",
                   f"--format={DELIMITER.join(columns.values())}"]  # fmt: skip
        try:
            lines = self._text(command).splitlines()
        except CommandError as error:
            if error.trouble is Trouble.UNKNOWN_JOB:
                return ""
            raise
        rows = [line.replace("|", "/").replace(DELIMITER, "|") for line in lines if DELIMITER in line]
        return "\n".join(["|".join(columns), *rows, ""]) if rows else ""

    def batch_script(self, job: str) -> str:
        try:
            text = self._text(["sacct", *self._cluster(), f"--jobs={job}", "--batch-script"])
        except CommandError as error:
            if error.trouble is Trouble.OTHER:
                return ""  # an sacct before 21.08 knows no such option
            raise
        return text.partition("\n---")[2] if "Batch Script for" in text else ""

    def utc_offset(self, at: float) -> float:
        said = self._run(["date", "-d", f"@{int(at)}", "+%z"]).decode("ascii", "replace").strip().splitlines()
        found = re.fullmatch(r"([+-])(\d\d)(\d\d)", said[-1]) if said else None
        if not found:
            raise CommandError(Trouble.OTHER, "date tells no time zone: set timezone")
        seconds = int(found[2]) * 3600.0 + int(found[3]) * 60.0
        return -seconds if found[1] == "-" else seconds

    def ping(self) -> int:
        now = datetime.now(UTC).timestamp()
        rows = self._rows(["sacct", "-a", "-X", f"--starttime={_utc(now - 3600)}", f"--endtime={_utc(now)}"])
        count = sum(1 for _ in rows)
        self._text(["scontrol", "ping"])
        return count

    def _cluster(self) -> list[str]:
        return [f"--clusters={self._config.slurm_cluster}"] if self._config.slurm_cluster else []

    def _records(self, command: list[str], begin: str) -> str:
        text = self._text(command)
        if text.strip() and begin not in text:
            said = "".join(sign if sign.isprintable() else "?" for sign in " ".join(text.split())[:60])
            raise CommandError(Trouble.OTHER, f"scontrol printed no record: {said}: is there a wrapper around it?")
        return text

    def _text(self, command: list[str]) -> str:
        return self._run(command, _UTC).decode("utf-8", "replace")

    def _run(self, command: list[str], environment: dict[str, str] | None = None) -> bytes:
        shown = self._runner.shown(command)
        if shown not in self.asked and shown != "sacct --helpformat":
            self.asked.append(shown)
        service = command[0] == "sacct"
        if service in self._down and command[0] != "date":
            raise self._down[service]
        try:
            return self._runner.run(command, self.deadline, environment=environment)
        except CommandError as error:
            if error.trouble in (Trouble.DOWN, Trouble.SETUP) or (error.trouble is Trouble.SLOW and not service):
                self._down[service] = error
            raise


def _utc(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S")
