"""Rows of accounting as attempts: requeues counted, components of one job together, reused job ids told apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import msgspec

from connectors.slurm.parser import Row, print_time, severity
from engine.model import Attempt, Workload
from engine.records import gpus_per_node

_TIMES = ("Submit", "Start", "End")
REQUEUE_SECONDS = 3600.0
"""A record that was submitted longer after the end of the one before it is another job with a reused id."""


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """One execution of a job: its allocation (several for a heterogeneous job) and their steps."""

    workload: str
    number: int
    allocations: tuple[Row, ...]
    steps: tuple[Row, ...] = ()
    followed: bool = False
    """Whether a later attempt of the same job has started, which may have written to the same files."""

    @property
    def leader(self) -> Row:
        return self.allocations[0]

    @property
    def ref(self) -> str:
        """The job's id and when it was submitted: together they name one execution for good."""
        return f"{self.leader.id.workload}@{int(self.leader.submit or 0)}"

    @property
    def ended(self) -> bool:
        return all(row.ended for row in self.allocations)

    @property
    def end(self) -> float | None:
        return max((row.end or 0.0 for row in self.allocations), default=0.0) or None if self.ended else None

    @property
    def raw_ids(self) -> frozenset[int]:
        return frozenset(row.raw_id for row in self.allocations)

    def attempt(self, cluster: str = "") -> Attempt:
        """In the engine's vocabulary; `cluster` replaces the name that Slurm gives its cluster."""
        worst = max(self.allocations, key=lambda row: severity(row.state))
        row = worst if self.ended else self.leader
        nodes = tuple(dict.fromkeys(node for one in self.allocations for node in one.nodes))
        gpus = [gpus_per_node(one.tres, len(one.nodes)) for one in self.allocations]
        starts = [one.start for one in self.allocations if one.start is not None]
        leader = self.leader
        return Attempt(
            workload=Workload(
                id=self.workload,
                name=leader.name,
                scheduler="slurm",
                cluster=cluster or leader.cluster,
                user=leader.user,
                queue=leader.partition,
            ),
            number=self.number,
            state=row.state,
            exit_code=row.exit_code if row.ended else None,
            reason=row.reason,
            started_at=min(starts) if starts and nodes else None,
            ended_at=self.end,
            nodes=nodes,
            gpus_per_node=max((gpu for gpu in gpus if gpu is not None), default=None),
        )


def executions(rows: Iterable[Row]) -> list[Execution]:
    """Every execution in `rows`, which must hold all records (`sacct -D`) of the jobs in it, in order of submission.

    Steps follow their allocation, as sacct prints them.
    """
    jobs: dict[str, list[list[Row]]] = {}
    """Workload id -> allocation with its steps."""
    current: dict[int, list[Row]] = {}
    for row in rows:
        if row.id.step is None:
            current[row.raw_id] = [row]
            jobs.setdefault(row.id.workload, []).append(current[row.raw_id])
        elif row.raw_id in current:
            current[row.raw_id].append(row)
    return [execution for workload, records in jobs.items() for execution in _of_job(workload, records)]


def _of_job(workload: str, records: list[list[Row]]) -> list[Execution]:
    records.sort(
        key=lambda record: (record[0].submit or 0.0, record[0].start or float("inf"), record[0].id.offset or 0)
    )
    rounds: list[list[list[Row]]] = []
    for record in records:
        offset = record[0].id.offset
        if offset is not None and rounds and all(offset != other[0].id.offset for other in rounds[-1]):
            rounds[-1].append(record)
        else:
            rounds.append([record])
    found: list[Execution] = []
    name, number = workload, 0
    for index, components in enumerate(rounds):
        if index and not _continues(rounds[index - 1], components):
            name, number = f"{workload}@{_compact(components[0][0].submit)}", 0
        number += 1
        following = rounds[index + 1] if index + 1 < len(rounds) else None
        found.append(
            Execution(
                workload=name,
                number=number,
                allocations=tuple(record[0] for record in components),
                steps=tuple(step for record in components for step in record[1:]),
                followed=bool(following and _continues(components, following) and following[0][0].start is not None),
            )
        )
    return found


def _continues(before: Sequence[list[Row]], after: Sequence[list[Row]]) -> bool:
    """Is it the same job once more, and not another one that got the same id later?"""
    old, new = before[0][0], after[0][0]
    if (old.uid, old.user, old.name, old.submit_line) != (new.uid, new.user, new.name, new.submit_line):
        return False
    return old.end is None or new.submit is None or new.submit - old.end <= REQUEUE_SECONDS


def _compact(at: float | None) -> str:
    return datetime.fromtimestamp(at or 0.0, UTC).strftime("%Y%m%dT%H%M%SZ")


def sacct_text(execution: Execution) -> str:
    """The execution's rows as `sacct --parsable2` would print them, with times in UTC and no | inside of a cell."""
    rows = [*execution.allocations, *execution.steps]
    columns = [key for key in rows[0].cells if any(row.cells.get(key) for row in rows)]
    return "\n".join(["|".join(columns), *("|".join(_cell(row, key) for key in columns) for row in rows), ""])


def _cell(row: Row, key: str) -> str:
    if key in _TIMES:
        return print_time({"Submit": row.submit, "Start": row.start, "End": row.end}[key])
    return " ".join(row.cells.get(key, "").replace("|", "/").split())
