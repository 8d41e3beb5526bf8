"""An error behind the last time of its log, which may be minutes old: the job's other logs say until when it came."""

from __future__ import annotations

from engine.model import Diagnosis
from engine.report import as_text
from tests.engine.evidence import made_of
from tests.engine.rules.test_hardware_diagnoses import verdict

RAISED = (
    "[rank1]: Traceback (most recent call last):\n"
    '[rank1]:   File "/code/engine.py", line 58, in train\n'
    "[rank1]: RuntimeError: DataLoader worker (pid 88310) is killed by signal: Bus error. "
    "It is possible that dataloader's workers are out of shared memory. Please try to raise your shared memory limit.\n"
)
POISONED = (
    "EDAC MC3: 1 UE memory read error on CPU_SrcID#1_MC#1_Chan#1_DIMM#0 (channel:1 slot:0 page:0x1d40b3c7)",
    "Memory failure: 0x1d40b3c7: Sending SIGBUS to pt_data_worker:88310 due to hardware memory corruption",
)
LOST = (
    "[rank0]:[E1103 04:{:02d}:04.120000000 ProcessGroupNCCL.cpp:1885] [PG ID 0 PG GUID 0 Rank 0] Process group "
    "watchdog thread terminated with exception: NCCL error: remote process exited or there was a network error\n"
)


def diagnosed(*, poisoned: str, lost: int = 20, steps_until: int = 20) -> Diagnosis:
    """Rank 0 prints each minute, rank 1 every ten; node-02's kernel tells of its memory at some time of day."""
    steps = [
        f"2026-11-03 04:{minute:02d}:00 rank {{}} iter {minute} loss 1.7\n" for minute in range(1, steps_until + 1)
    ]
    kernel = "".join(f"2026-11-03T{poisoned}+00:00 node-02 kernel: {said}\n" for said in POISONED)
    files = {
        "applog/node-01.log": "".join(steps).format(*[0] * len(steps)) + LOST.format(lost),
        "applog/node-02.log": "".join(steps[9::10]).format(*[1] * len(steps)) + RAISED,
        "syslog/node-02.log": f"2026-11-03T04:00:30+00:00 node-02 systemd[1]: Started Session 4.\n{kernel}",
    }
    return made_of(files, nodes=2).diagnosed()


def test_memory_that_failed_while_the_others_still_trained_is_why_a_worker_got_sigbus() -> None:
    assert verdict(diagnosed(poisoned="04:18:02", lost=18, steps_until=17)) == ("hardware/host_memory", ("node-02",))


def test_memory_that_failed_after_the_job_had_noticed_is_not() -> None:
    assert verdict(diagnosed(poisoned="04:24:00", lost=18, steps_until=17)) == ("software/host_oom", ())


def test_rivals_that_one_reason_tells_apart_are_told_once() -> None:
    said = as_text(diagnosed(poisoned="04:18:02", lost=18, steps_until=17))
    heads = [line for line in said.splitlines() if line.startswith("  DataLoader worker hit a bus error")]
    assert len(heads) == len(set(heads)) == 1
