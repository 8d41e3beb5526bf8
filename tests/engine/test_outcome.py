"""How an attempt ended, where the scheduler's word alone does not say it."""

from __future__ import annotations

import pytest

from tests.engine.evidence import made_of

PROLOG = "2026-11-03T04:00:02+00:00 node-02 slurmd[2211]: error: [job 4711] prolog failed status=1:0"
OFF_BUS = (
    "2026-11-03T04:20:02+00:00 node-02 kernel: NVRM: Xid (PCI:0000:61:00): 79, pid=44, GPU has fallen off the bus."
)
NOTHING = "2026-11-03T04:20:02+00:00 node-02 systemd[1]: logrotate.service: Deactivated successfully."


@pytest.mark.parametrize("state", ["REQUEUED", "REQUEUE_HOLD", "REQUEUED+COMPLETING"])
@pytest.mark.parametrize("line", [PROLOG, OFF_BUS], ids=["prolog", "gpu"])
def test_an_attempt_put_back_in_the_queue_because_of_a_fault_has_failed(state: str, line: str) -> None:
    assert made_of({"syslog/node-02.log": line + "\n"}, state=state).diagnosed().outcome == "failed"


def test_an_attempt_put_back_in_the_queue_without_a_fault_was_cancelled() -> None:
    assert made_of({"syslog/node-02.log": NOTHING + "\n"}, state="REQUEUED").diagnosed().outcome == "cancelled"
