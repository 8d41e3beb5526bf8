"""A running job that mostly waits for data from its beginning is slow; why, only something that speaks of it tells."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from engine.model import Diagnosis
from tests.engine.evidence import made_of
from tests.engine.rules.test_hardware_diagnoses import verdict

START = datetime(2026, 11, 3, 4, 0, tzinfo=UTC)
ONE_CPU = (
    "UserWarning: This DataLoader will create 12 worker processes in total. Our suggested max number of worker in "
    "current system is {}, which is smaller than what this DataLoader is going to create."
)
FEW_WORKERS = (
    "The 'train_dataloader' does not have many workers which may be a bottleneck. Consider increasing the value of the "
    "`num_workers` argument` to `num_workers=15` in the `DataLoader` to improve performance."
)
STYLES = [
    "train step {n} loss 1.91 step_time 4.02 data_wait {w:.2f} fwd_bwd 0.83",
    "Epoch: [0]  [ {n}/2502]  eta: 0:21:37  lr: 0.1  loss: 6.95 (6.96)  time: 4.0185  data: {w:.4f}  max mem: 5500",
    "Train: 31 [{n}/5004 ( 19%)]  Loss: 3.21  Time: 4.044s, 189.61/s  (4.044s, 189.61/s)  LR: 3e-4  Data: {w:.3f}",
]


def diagnosed(style: str, warning: str, waits: float, state: str = "RUNNING") -> Diagnosis:
    lines = [f"{START + timedelta(seconds=5):%Y-%m-%d %H:%M:%S} {warning}"] if warning else []
    for n in range(10, 380, 10):
        at = START + timedelta(seconds=30 + 4 * n)
        lines.append(f"{at:%Y-%m-%d %H:%M:%S} " + style.format(n=n, w=waits))
    return (
        made_of({"applog/job.log": "\n".join(lines) + "\n"}, state=state)
        .with_attempt(exit_code="0:0", ended_at=(START + timedelta(seconds=1560)).isoformat())
        .diagnosed()
    )


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("warning", [ONE_CPU.format(1), FEW_WORKERS], ids=["one processor", "few workers"])
def test_a_loader_without_processors_or_workers_slows_a_job_that_waits_for_it(style: str, warning: str) -> None:
    found = diagnosed(style, warning, 3.2)
    assert (found.outcome, *verdict(found)) == ("degraded", "software/configuration", ())


@pytest.mark.parametrize("waits", [0.02, 1.0, 9.0])
def test_a_loader_that_keeps_up_slows_nothing(waits: float) -> None:
    found = diagnosed(STYLES[1], ONE_CPU.format(1), waits)
    assert (found.outcome, *verdict(found)) == ("unknown", "unattributed/none", ())


@pytest.mark.parametrize("warning", ["", ONE_CPU.format(10)], ids=["nothing said", "enough processors"])
def test_waiting_alone_tells_no_cause(warning: str) -> None:
    found = diagnosed(STYLES[1], warning, 3.2)
    assert verdict(found) == ("unattributed/none", ())
    assert "throughput.data-wait" in {symptom.rule for symptom in found.symptoms}


def test_a_job_that_came_to_its_end_has_succeeded_however_it_waited() -> None:
    found = diagnosed(STYLES[1], ONE_CPU.format(1), 3.2, state="COMPLETED")
    assert (found.outcome, *verdict(found)) == ("succeeded", "unattributed/none", ())
