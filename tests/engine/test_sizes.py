"""A node that only small packets reach is named when all its pairs say so, and something waited for what never came."""

from __future__ import annotations

import pytest

from engine.model import Diagnosis
from tests.engine.evidence import made_of
from tests.engine.rules.test_hardware_diagnoses import verdict

PING = "ping node-0{a} -> node-0{b}: size 1472 DF {small} rtt 0.1 ms | size 8972 DF {large}"
MTU = "mtu check: node-0{a} <-> node-0{b}: 1472 {small}, 8972 {large}"
WAITED = (
    "[rank0]:[E1103 04:20:00.810000941 ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=3, OpType=ALLREDUCE, NumelIn=6553600, NumelOut=6553600, Timeout(ms)=600000) ran for "
    "600023 milliseconds before timing out."
)
PAIRS = [(a, b) for a in range(1, 5) for b in range(a + 1, 5)]


def checked(form: str, lost: set[tuple[int, int]], *, small: str = "5/5", then: str = WAITED) -> Diagnosis:
    good, bad = ("5/5", "0/5") if form is PING else ("ok", "FAIL")
    small = small if form is PING else good
    lines = [form.format(a=a, b=b, small=small, large=bad if (a, b) in lost else good) for a, b in PAIRS]
    return made_of({"applog/job.log": "".join(f"{line}\n" for line in [*lines, then])}).diagnosed()


@pytest.mark.parametrize("form", [PING, MTU])
@pytest.mark.parametrize("node", [1, 3, 4])
def test_the_node_that_no_large_packet_reaches_is_blamed(form: str, node: int) -> None:
    found = checked(form, {pair for pair in PAIRS if node in pair})
    assert verdict(found) == ("network/ethernet", (f"node-0{node}",))


@pytest.mark.parametrize("lost", [set(PAIRS), {(1, 2)}, {(1, 2), (3, 4)}, {(1, 4), (2, 4)}, set()])
def test_pairs_that_do_not_agree_on_one_node_accuse_none(lost: set[tuple[int, int]]) -> None:
    assert verdict(checked(PING, lost)) == ("unattributed/none", ())


def test_a_node_that_no_packet_reaches_is_no_matter_of_sizes() -> None:
    assert checked(PING, {(1, 4), (2, 4), (3, 4)}, small="0/5").domain == "unattributed"


def test_an_error_of_the_program_stays_the_programs() -> None:
    error = "Traceback (most recent call last):\n  File \"/app/train.py\", line 9, in main\nKeyError: 'lr'"
    assert checked(PING, {(1, 4), (2, 4), (3, 4)}, then=error).domain == "software"
