"""One collection of a Slurm attempt: accounting and controller, the files it wrote, the daemons' logs."""

from __future__ import annotations

import io
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast
from zoneinfo import ZoneInfo

from connectors.access import Refused, Roots
from connectors.base import CollectionReport, CollectRequest, ConnectorError
from connectors.part import Parts, Range, left_out, room_for, size_of, within
from connectors.slurm.client import SlurmClient
from connectors.slurm.config import SlurmConfig
from connectors.slurm.daemonlog import Clock, Mine, NoTimes, cut, rotations
from connectors.slurm.history import Execution, executions, sacct_text
from connectors.slurm.outputs import Output, components, outputs
from connectors.slurm.parser import JobId, Row, parse_time, row_of_scontrol, scontrol_records
from connectors.slurm.runner import CommandError, Trouble
from connectors.spool import Spool
from connectors.tally import Tally
from engine.model import Source, Stream

_UNSAFE = re.compile(r"[^\w.@+-]+")
LATE = 120.0
"""Seconds after its end within which an attempt may still write its own last lines."""


class SlurmCollection:
    """Streams by source; reports are complete once all streams were taken."""

    def __init__(self, config: SlurmConfig, client: SlurmClient, spool: Spool, request: CollectRequest) -> None:
        self._config, self._client, self._spool, self._request = config, client, spool, request
        self._attempt = request.attempt
        self._roots = Roots(config.roots)
        self._scheduler, self._applog = Tally(), Tally()
        self._execution: Execution | None = None
        self._details: list[dict[str, str]] = []
        self._errors: list[ConnectorError] = []
        self._names: set[str] = set()
        self._bytes = self._streams = 0

    def streams(self) -> Iterator[Stream]:
        """Accounting and controller, then the job's own output, then the daemons' logs. Raises ConnectorError when
        nothing at all could be had, and may be had later.
        """
        parts: tuple[tuple[Tally, Callable[[], Iterator[Stream]]], ...] = (
            (self._scheduler, self._from_scheduler),
            (self._applog, self._from_job),
            (self._scheduler, self._from_daemons),
        )
        for tally, part in parts:
            began = time.monotonic()
            for stream in part():
                tally.seconds += time.monotonic() - began
                if self._fits(tally, stream):
                    yield stream
                began = time.monotonic()
            tally.seconds += time.monotonic() - began
        passing = [error for error in self._errors if error.temporary]
        if passing and not self._streams:
            raise ConnectorError(str(passing[0]), temporary=True)

    def reports(self) -> list[CollectionReport]:
        """One for the scheduler, one for the job's own output."""
        self._scheduler.asked = [
            *self._client.asked,
            *(w for w in self._scheduler.asked if w not in self._client.asked),
        ]
        return [
            self._scheduler.report(Source.SCHEDULER, self._config.name),
            self._applog.report(Source.APPLOG, self._config.name),
        ]

    def _fits(self, tally: Tally, stream: Stream) -> bool:
        """Whether limits leave room for it; counts it."""
        limits, size = self._request.limits, max(stream.size, 0)
        why = ""
        if self._streams >= limits.streams:
            why = f"more than {limits.streams} streams: the rest was left out"
        elif self._bytes + size > limits.bytes:
            why = f"{stream.name} ({size} bytes) goes beyond the limit of {limits.bytes} bytes and was left out"
        elif self._client.deadline.stopped():
            why = "stopped before it was finished"
        elif self._client.deadline.left() <= 0:
            why = f"not finished within {limits.seconds:.0f} s: the rest was left out"
        if why:
            tally.partial = True
            tally.note(why)
            return False
        self._streams, self._bytes = self._streams + 1, self._bytes + size
        tally.streams, tally.bytes = tally.streams + 1, tally.bytes + size
        return True

    # --- accounting and controller -----------------------------------------------------------------------------------

    def _from_scheduler(self) -> Iterator[Stream]:
        self._execution = self._try(self._find_execution)
        execution = self._execution
        if execution is not None:
            yield self._text("scheduler/sacct.txt", sacct_text(execution))
        jobs = list(dict.fromkeys(str(row.raw_id) for row in execution.allocations)) if execution else [self._asked()]
        texts = []
        for job in jobs:
            text = self._try(partial(self._client.job, job))
            texts += [record for record, fields in scontrol_records(text or "") if self._is_current(fields, job)]
        if texts:
            yield self._text("scheduler/scontrol-job.txt", "\n".join(texts))
        nodes = self._nodes()
        if nodes:
            text = self._try(partial(self._client.nodes, nodes))
            if text:
                yield self._text("scheduler/scontrol-nodes.txt", text)
        queue = self._try(partial(self._client.queue, self._asked()))
        mine = self._queue_lines(queue or "")
        if mine:
            yield self._text("scheduler/squeue.txt", mine)

    def _asked(self) -> str:
        try:
            return JobId.parse(self._request.ref.split("@")[0]).asked
        except ValueError:
            raise ConnectorError(f"{self._request.ref}: is no reference of a Slurm job, like 1234@1796029833") from None

    def _find_execution(self) -> Execution | None:
        """The execution that the ref names, by when it was submitted."""
        rows = [row for row in self._client.records([self._asked()], steps=True) if isinstance(row, Row)]
        found = executions(rows)
        for execution in found:
            if execution.ref == self._request.ref:
                return execution
        for execution in found:
            if (execution.workload, execution.number) == (self._attempt.workload.id, self._attempt.number):
                return execution
        self._scheduler.missing += 1
        self._scheduler.note(
            f"accounting has no record of job {self._asked()} with that time of submission: slurmdbd has purged it "
            "(PurgeJobAfter), or this user may not see it (PrivateData)"
        )
        return None

    def _is_current(self, fields: dict[str, str], job: str) -> bool:
        """slurmctld knows only the last execution of a job, which may be another than the one that is looked for."""
        if job not in (fields.get("JobId"), f"{fields.get('ArrayJobId')}_{fields.get('ArrayTaskId')}"):
            return False
        start = parse_time(fields.get("StartTime", ""))
        wanted = self._start()
        if wanted is not None and (start is None or abs(start - wanted) > 1):
            self._scheduler.note(
                f"slurmctld tells of a later run of the job ({fields.get('JobState')}, {fields.get('Reason')}), "
                "not of this one"
            )
            return False
        self._details.append(fields)
        return True

    def _start(self) -> float | None:
        return self._execution.attempt().started_at if self._execution else self._attempt.started_at

    def _queue_lines(self, text: str) -> str:
        """The queue's lines about this execution: submitted when it was."""
        header, *rows = text.splitlines() or [""]
        submits = {int(row.submit or 0) for row in self._execution.allocations} if self._execution else set()
        kept = [row for row in rows if int(parse_time(row.rpartition("|")[2]) or 0) in submits]
        waiting = [row for row in rows if row not in kept and "|PENDING|" in row]
        if waiting:
            self._scheduler.note(f"the job waits in the queue again: {waiting[0].split('|')[2]}")
        return "\n".join([header, *kept, ""]) if kept else ""

    def _nodes(self) -> tuple[str, ...]:
        return self._attempt.nodes or (self._execution.attempt().nodes if self._execution else ())

    def _try(self, question: Callable[[], str | Execution | None]) -> Any:
        """The answer, or None with a note on why there is none."""
        try:
            return question()
        except CommandError as error:
            if error.trouble is Trouble.UNKNOWN_JOB:
                self._scheduler.note(
                    "slurmctld has forgotten the job (MinJobAge), so its details come from accounting alone"
                )
                return None
            failure: ConnectorError = error
        except ConnectorError as error:
            failure = error
        self._scheduler.failed += 1
        self._scheduler.note(str(failure))
        self._errors.append(failure)
        return None

    # --- what the job wrote ------------------------------------------------------------------------------------------

    def _from_job(self) -> Iterator[Stream]:
        execution, tally = self._execution or self._by_controller(), self._applog
        if not self._roots:
            tally.note("no output was read: name the folders that jobs write to in roots")
            return
        if execution is None:
            tally.note("which files the job wrote is not known, as neither accounting nor slurmctld tells of it")
            return
        if not any(row.nodes for row in execution.allocations):
            tally.note("the job never began, so it wrote nothing")
            return
        script = ""
        if not self._details:
            script = self._try(partial(self._client.batch_script, execution.leader.id.asked)) or ""
        places = outputs(execution, self._details, script)
        if not places:
            tally.note("the job wrote its output to a terminal (srun or salloc), which nothing keeps")
        for place in places:
            if place.path == "/dev/null":
                tally.note(f"{place.what} went to /dev/null")
                continue
            try:
                yield from self._files(place, execution)
            except Refused as refusal:
                tally.missing += 1
                hint = ": Slurm no longer tells the path, so this is its default" if place.guessed else ""
                tally.note(f"{place.what}: {refusal}{hint}")

    def _by_controller(self) -> Execution | None:
        """The execution as slurmctld knows it, for when accounting is silent."""
        rows = tuple(row for fields in self._details if (row := row_of_scontrol(fields)) is not None)
        attempt = self._attempt
        return Execution(workload=attempt.workload.id, number=attempt.number, allocations=rows) if rows else None

    def _files(self, place: Output, execution: Execution) -> Iterator[Stream]:
        tally, owner = self._applog, self._owner(execution) if self._config.check_owner else None
        parts = components(place, execution)
        found = 0
        shown = "/" + "/".join(part if isinstance(part, str) else "*" for part in parts)
        tally.asked.append(shown)
        for path, groups in self._roots.matching(parts):
            found += 1
            try:
                with self._roots.open(path, owner) as content:
                    size, changed = content.seek(0, io.SEEK_END), _changed(content)
                    ranges = within(content, 0, size, room_for(self._request.limits, self._bytes))
            except Refused as refusal:
                tally.missing += 1
                tally.note(f"{place.what}: {refusal}")
                continue
            end = execution.end
            if execution.followed and end is not None and changed > end + LATE:
                tally.missing += 1
                tally.note(
                    f"{place.what}: {path} was written to by a later run of the job, so it is not known which of its "
                    "lines are this one's (%r or a folder of its own for each run keeps them apart)"
                )
                continue
            if words := left_out(path.name, ranges):
                tally.partial = True
                tally.note(f"{place.what}: {words}")
            rank = groups.get("rank") if place.is_step else None
            yield Stream(
                name=self._name("applog", path.name),
                source=Source.APPLOG,
                open=partial(self._open_file, path, owner, ranges),
                size=size_of(ranges),
                node=self._node(groups, place),
                rank=int(rank) if rank is not None else None,
            )
        if not found:
            tally.missing += 1
            tally.note(f"{place.what}: no file is called {shown}")

    def _owner(self, execution: Execution) -> int:
        """The job's user; slurmctld knows it best. Raises Refused when nobody tells."""
        known = [row_of_scontrol(fields) for fields in self._details]
        for row in (*known, execution.leader):
            if row is not None and row.uid is not None:
                return row.uid
        raise Refused("not read: Slurm does not tell whose job it is (check_owner = false reads it all the same)")

    def _open_file(self, path: Path, owner: int | None, ranges: Sequence[Range]) -> BinaryIO:
        """As long as it was when it was found: a job that still runs writes on."""
        try:
            return Parts.reader(self._roots.open(path, owner), ranges)
        except Refused as refusal:
            raise OSError(str(refusal)) from None

    def _node(self, groups: dict[str, str], place: Output) -> str | None:
        nodes = place.row.nodes
        index = groups.get("index", "")
        if index.isdigit() and int(index) < len(nodes):
            return nodes[int(index)]
        if groups.get("node"):
            return next((node for node in nodes if node.split(".")[0] == groups["node"]), groups["node"])
        return nodes[0] if len(nodes) == 1 else None

    # --- the daemons' logs -------------------------------------------------------------------------------------------

    def _from_daemons(self) -> Iterator[Stream]:
        config = self._config
        if config.slurmctld_log is None and not config.slurmd_log:
            return
        start, end = self._attempt.started_at, self._attempt.ended_at
        if start is None and end is None:
            self._scheduler.note("the daemons' logs were not read: the attempt has neither start nor end")
            return
        end = time.time() if end is None else end
        start = (end if start is None else start) - config.log_before
        end += config.log_after
        clock = Clock(self._zone(end))
        mine, nodes = self._mine(), self._nodes()
        if config.slurmctld_log is not None:
            yield from self._log(config.slurmctld_log, "slurmctld.log", None, (start, end, clock), mine.in_controller)
        if config.slurmd_log:
            for node in nodes:
                path = Path(config.slurmd_log.replace("{node}", _UNSAFE.sub("_", node)))
                yield from self._log(path, f"slurmd-{node}.log", node, (start, end, clock), mine.on_node)

    def _mine(self) -> Mine:
        try:
            job = JobId.parse(self._request.ref.split("@")[0])
        except ValueError:
            job = JobId(0)
        raw = self._execution.raw_ids if self._execution else {job.job}
        return Mine(job.job, job.task, raw, self._nodes())

    def _zone(self, at: float) -> ZoneInfo | float | None:
        """The clock that the daemons write: as configured, else of the host where commands are run."""
        if self._config.timezone is not None:
            return self._config.timezone
        try:
            return self._client.utc_offset(at)
        except ConnectorError as error:
            self._scheduler.note(f"the daemons' logs are taken to be in UTC: {error}")
            return None

    def _log(
        self, path: Path, name: str, node: str | None, window: tuple[float, float, Clock], keep: Callable[[bytes], bool]
    ) -> Iterator[Stream]:
        tally, key = self._scheduler, f"scheduler/{name}"
        try:
            for part in rotations(path, window[0]):
                for line in cut(partial(_open, part), part.name, *window, keep):
                    self._spool.add(key, line, lines=1)
                    if self._spool.size > self._request.limits.bytes or self._client.deadline.left() <= 0:
                        tally.partial = True
                        tally.note(f"{name}: cut off by the limit of bytes or time")
                        break
        except (OSError, EOFError) as error:
            tally.missing += 1
            why = getattr(error, "strerror", None) or str(error)
            tally.note(
                f"{path} can not be read ({why}): let the user that Faultline runs as read it, or leave its key out"
            )
        except NoTimes:
            tally.missing += 1
            tally.note(f"{path}: its lines begin with no time; set LogTimeFormat=iso8601_ms in slurm.conf")
        spooled = self._spool.streams().get(key)
        if spooled is None:
            if path.is_file():
                tally.note(f"{name}: no line about the job or its nodes in its time")
            return
        tally.lines += spooled.lines
        yield Stream(
            name=self._name("scheduler", name),
            source=Source.SCHEDULER,
            open=partial(self._spool.open, spooled),
            size=spooled.size,
            node=node,
        )

    def _text(self, name: str, text: str) -> Stream:
        content = text.encode("utf-8", "replace")
        self._scheduler.lines += content.count(b"\n")
        self._names.add(name)
        return Stream(name=name, source=Source.SCHEDULER, open=partial(io.BytesIO, content), size=len(content))

    def _name(self, folder: str, base: str) -> str:
        safe = _UNSAFE.sub("_", base).strip("_")[:150] or "output"
        stem, dot, ending = safe.rpartition(".")
        name, count = f"{folder}/{safe}", 1
        while name in self._names:
            count += 1
            name = f"{folder}/{stem}-{count}.{ending}" if dot else f"{folder}/{safe}-{count}"
        self._names.add(name)
        return name


def _changed(content: BinaryIO) -> float:
    return os.fstat(content.fileno()).st_mtime


def _open(path: Path) -> BinaryIO:
    return cast(BinaryIO, path.open("rb"))
