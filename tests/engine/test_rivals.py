"""Two faults that have nothing to do with each other: which of them came first, where the clocks tell that at all."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from engine.model import Diagnosis
from tests.engine.evidence import made_of
from tests.engine.rules.test_hardware_diagnoses import verdict

START = datetime(2026, 11, 3, 4, 0, tzinfo=UTC)
AT = START + timedelta(minutes=20)
UNPICKLED = ("pickle.loads(buf)", "_pickle.UnpicklingError: invalid load key, '\\x00'.")
KEY = ('batch["labels"]', "KeyError: 'labels'")
CABLE = ("mlx5_core 0000:5e:00.0: Port module event: module 0, Cable unplugged",)
PANIC = ("Kernel panic - not syncing: Fatal machine check",)
DRIVE = ("nvme nvme1: Disabling device after reset failure: -19",)
LOST_CLOCK = "Can't synchronise: no selectable sources"
BOTH = ("node-01", "node-03")


def rivals(
    raised: tuple[str, str] = UNPICKLED,
    said: tuple[str, ...] = CABLE,
    *,
    later: float = 0.0,
    on: int = 3,
    stamped: bool = True,
    clock: str = "",
) -> Diagnosis:
    """Rank 3 of node-01 raises something at 04:20, and so many seconds later the kernel of a node says something."""
    code, last = raised
    own = f" 3: {AT:%Y-%m-%d %H:%M:%S} " if stamped else " 3: "
    job = [f" 0: {START + timedelta(seconds=s):%Y-%m-%d %H:%M:%S} step={s // 10} loss=1.2" for s in range(60, 1200, 10)]
    job += [" 3: Traceback (most recent call last):", ' 3:   File "/home/a/train.py", line 144, in <module>']
    job += [f" 3:     {code}", f"{own}{last}" if stamped else f" 3: {last}"]
    logs = {n: [f"{START.isoformat()} node-0{n} systemd[1]: Started Session 4."] for n in range(1, 5)}
    if clock:
        logs[on].append(f"{(AT - timedelta(minutes=10)).isoformat()} node-0{on} chronyd[811]: {clock}")
    logs[on] += [f"{(AT + timedelta(seconds=later)).isoformat()} node-0{on} kernel: {text}" for text in said]
    files = {f"syslog/node-0{n}.log": "\n".join(lines) + "\n" for n, lines in logs.items()}
    evidence = made_of({"applog/job.log": "\n".join(job) + "\n", **files})
    return evidence.with_attempt(ended_at=(AT + timedelta(seconds=40)).isoformat()).diagnosed()


def suspects(found: Diagnosis) -> tuple[str, ...]:
    return tuple(sorted(node.node for node in found.affected_nodes))


@pytest.mark.parametrize("raised", [UNPICKLED, KEY], ids=["pickle", "key"])
@pytest.mark.parametrize("said", [CABLE, PANIC, DRIVE], ids=["cable", "panic", "drive"])
@pytest.mark.parametrize("later", [0.0, -5.0])
def test_what_another_node_s_machine_cannot_have_caused_stands_beside_its_fault(
    raised: tuple[str, str], said: tuple[str, ...], later: float
) -> None:
    found = rivals(raised, said, later=later)
    assert verdict(found)[0] == "unattributed/ambiguous"
    assert suspects(found) == BOTH


def test_a_fault_half_a_minute_before_the_other_is_the_cause_where_clocks_are_right() -> None:
    assert verdict(rivals(later=-30)) == ("network/infiniband", ("node-03",))


@pytest.mark.parametrize("later", [-30.0, 12.0, 30.0])
def test_a_clock_without_a_time_source_orders_nothing_within_a_minute(later: float) -> None:
    found = rivals(later=later, clock=LOST_CLOCK, stamped=later < 0)
    assert verdict(found)[0] == "unattributed/ambiguous"


@pytest.mark.parametrize("later", [5.0, 30.0])
def test_an_error_without_a_time_of_its_own_is_not_before_what_came_while_nothing_was_written(later: float) -> None:
    assert verdict(rivals(later=later, stamped=False))[0] == "unattributed/ambiguous"


def test_one_node_s_clock_orders_its_own_faults() -> None:
    assert verdict(rivals(later=5, on=1)) == ("software/checkpoint", ())
    assert verdict(rivals(later=-5, on=1)) == ("network/infiniband", ("node-01",))


@pytest.mark.parametrize("raised", [UNPICKLED, KEY], ids=["pickle", "key"])
def test_a_port_of_the_same_node_that_went_down_at_the_same_moment_has_not_made_a_program_s_error(
    raised: tuple[str, str],
) -> None:
    found = rivals(raised, CABLE, on=1)
    assert (verdict(found)[0], suspects(found)) == ("unattributed/ambiguous", ("node-01",))


def test_a_drive_of_the_same_node_that_was_lost_at_the_same_moment_may_have_made_it() -> None:
    assert verdict(rivals(UNPICKLED, DRIVE, on=1)) == ("storage/local_disk", ("node-01",))
