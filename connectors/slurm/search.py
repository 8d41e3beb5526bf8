"""The search for attempts: windows of accounting records, so that none is missed or told twice.

The cursor holds the newest end that was told, in the cluster's own time, and what was told of the `overlap` before it:
a record that reaches slurmdbd late is found by the next search, and this machine's clock does not matter. While
nothing ends the position stays where it is.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from typing import Any

from connectors.base import ConnectorError, FindProblem, Found, FoundAttempt
from connectors.slurm.client import JOBS_PER_CALL, SlurmClient, TooMuch
from connectors.slurm.config import SlurmConfig
from connectors.slurm.history import Execution, executions
from connectors.slurm.parser import Row, state_word

SHORTEST = 60.0
"""Seconds of the shortest window that is asked for when longer ones give too much."""
_AHEAD = 86_400.0
"""How far beyond this machine's now is asked, as the cluster's clock may be ahead."""


def cursor_since(at: float) -> dict[str, Any]:
    """A cursor from which everything that ended at `at` (epoch seconds) or later is told: for back-filling."""
    return {"position": at, "from": at, "told": {}}


class Search:
    """One search from a cursor on."""

    def __init__(self, config: SlurmConfig, client: SlurmClient, cursor: dict[str, Any]) -> None:
        self._config, self._client = config, client
        now = time.time()
        since = cursor.get("from")
        self._from = float(since) if isinstance(since, int | float) else now - config.since
        position = cursor.get("position")
        self._position = float(position) if isinstance(position, int | float) else self._from
        told = cursor.get("told")
        self._told: dict[str, int] = dict(told) if isinstance(told, dict) else {}
        self._now = now
        self._kept: dict[str, Any] = {}
        self._steps = 0

    def run(self) -> Iterator[Found]:
        """What is new, in order of its end. Raises ConnectorError."""
        start = max(self._position - self._config.overlap, self._from)
        there: set[str] = set()
        for rows in self._windows(start, self._now + _AHEAD):
            new = []
            for row in rows:
                if isinstance(row, str):
                    yield from self._problem(row)
                    continue
                key = _key(row)
                there.add(key)
                if key not in self._told:
                    new.append(row)
            for execution in sorted(self._executions(new), key=lambda one: (one.end or float("inf"), one.ref)):
                yield from self._tell(execution)
        self._forget(there)
        yield Found(cursor=self._cursor(fresh=True))

    def _windows(self, start: float, end: float) -> Iterator[list[Row | str]]:
        """All rows from `start` to `end`, in as few questions as answers stay within limits."""
        length = end - start
        while start < end:
            stop = min(start + length, end)
            try:
                rows = list(self._client.ended(start, stop))
            except TooMuch as error:
                if length <= SHORTEST:
                    raise ConnectorError(
                        f"{self._config.name}: {error} for one minute of jobs: restrict states, partitions or accounts",
                        temporary=True,
                    ) from None
                length = max(min(length, self._now - start + SHORTEST) / 4, SHORTEST)
                continue
            yield rows
            start = stop

    def _executions(self, rows: list[Row]) -> Iterator[Execution]:
        """The executions that `rows` belong to, with what is needed to count them, once each."""
        wanted = {(row.id.workload, int(row.submit or 0)) for row in rows}
        jobs = list(dict.fromkeys(row.id.asked for row in rows))
        for start in range(0, len(jobs), JOBS_PER_CALL):
            records = self._client.records(jobs[start : start + JOBS_PER_CALL])
            for execution in executions(row for row in records if isinstance(row, Row)):
                if any((row.id.workload, int(row.submit or 0)) in wanted for row in execution.allocations):
                    yield execution

    def _tell(self, execution: Execution) -> Iterator[Found]:
        """One execution, unless it was told as it is now, or is no longer what was asked for."""
        if not any(state_word(row.state) in self._config.states for row in execution.allocations):
            return
        if not execution.ended and any(row.ended for row in execution.allocations):
            return  # its other components are about to end
        keys = [_key(row) for row in execution.allocations]
        if all(key in self._told for key in keys):
            return
        self._told.update({key: int(execution.end or 0) for key in keys})
        if execution.end is not None and execution.end <= self._now + self._config.overlap:
            self._position = max(self._position, execution.end)
        attempt = execution.attempt(self._config.cluster)
        found = FoundAttempt(
            attempt=attempt,
            ref=execution.ref,
            label=f"{attempt.workload.name} {execution.workload}".strip(),
            content_key=_content(execution),
        )
        yield Found(cursor=self._cursor(), found=found)

    def _problem(self, record: str) -> Iterator[Found]:
        key = _hash(record)
        if key not in self._told:
            self._told[key] = int(self._now)
            yield Found(cursor=self._cursor(), found=FindProblem(ref="sacct", message=f"not understood: {record}"))

    def _forget(self, there: set[str]) -> None:
        """What ended before all that the next search looks at can't come again; what still runs does."""
        edge = self._position - self._config.overlap
        self._told = {key: end for key, end in self._told.items() if end >= edge or (not end and key in there)}

    def _cursor(self, *, fresh: bool = False) -> dict[str, Any]:
        """The cursor to keep. It grows with what was told, so it is written anew the more seldom the longer it is:
        after a stop in between a few attempts are told again, with the same content key.
        """
        self._steps += 1
        if fresh or not self._kept or self._steps % (1 + len(self._told) // 100) == 0:
            self._kept = {"position": self._position, "from": self._from, "told": dict(self._told)}
        return self._kept


def _content(execution: Execution) -> str:
    """Changes when accounting says something new of the execution."""
    return " ".join(f"{row.state}/{row.exit_code}/{int(row.end or 0)}" for row in execution.allocations)


def _key(row: Row) -> str:
    """Names a record as it is now."""
    shown = f"{row.id.workload}+{row.id.offset}" if row.id.offset is not None else row.id.workload
    # the end of a short job may reach slurmdbd before its start, with a placeholder for name, user and partition
    about = f"{row.name}/{row.user}/{row.partition}"
    return _hash(f"{shown}@{int(row.submit or 0)} {row.state}/{row.exit_code}/{int(row.end or 0)} {about}")


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=9).hexdigest()
