"""Whole attempts whose loudest line names the wrong place or thing: the one that checked, the neighbour, the daemon."""

from __future__ import annotations

import pytest

from engine.ruleset import Ruleset, load_ruleset
from tests.engine.rules.test_cluster_diagnoses import told, verdict


@pytest.fixture(scope="module")
def ruleset() -> Ruleset:
    return load_ruleset()


# --- Megatron repeats a step on another GPU


RERUN = "megatron.core.rerun_state_machine:"
PERSISTENT = f"ERROR:{RERUN}Rank 2, node node-04, device 0, iteration #118: Possible persistent error!!"


def test_the_node_that_repeated_a_step_is_not_the_one_that_failed_it(ruleset: Ruleset) -> None:
    at = f"node-03: ERROR:{RERUN}"
    again = (
        "First rerun: unexpected result is reproducible within the tolerance (nan = nan). Need to rerun on a different "
        "GPU to verify correctness"
    )
    app = [
        (1201.0, f"{at}Unexpected result nan on rank 2 at iteration #118 invocation #1 (message='loss is NaN')"),
        (1202.0, f"{at}Rank 2, node node-03, device 0, iteration #118: {again}"),
        (1790.0, f"node-04: {PERSISTENT}"),
    ]
    found = told(ruleset, app=app)
    assert verdict(found) == ("hardware/gpu", ("node-03",))
    assert "node-04" not in found.recommendation.exclude_nodes


def test_the_suspicious_node_may_be_named_by_another_rank(ruleset: Ruleset) -> None:
    app = [
        (1700.0, "[rank0]: > rerun state: RERUNNING_FROM_CHECKPOINT, suspicious node: node-02, suspicious device: 3"),
        (1790.0, f"[rank2]: {PERSISTENT}"),
    ]
    assert verdict(told(ruleset, app=app)) == ("hardware/gpu", ("node-02",))


def test_a_checker_alone_accuses_nobody(ruleset: Ruleset) -> None:
    found = told(ruleset, app=[(1790.0, f"[rank2]: {PERSISTENT}")])
    assert verdict(found) == ("hardware/gpu", ())
    assert found.recommendation.exclude_nodes == ()


def test_another_rank_s_unexpected_result_does_not_tell_which_gpu_was_checked(ruleset: Ruleset) -> None:
    other = f"[rank1]: ERROR:{RERUN}Unexpected result inf on rank 1 at iteration #40 invocation #1 (message='inf')"
    assert verdict(told(ruleset, app=[(1100.0, other), (1790.0, f"[rank2]: {PERSISTENT}")])) == ("hardware/gpu", ())


# --- two faults that nothing orders


ECC = (
    "NVRM: Xid (PCI:0000:3a:00): 48, pid='<unknown>', name=<unknown>, An uncorrectable double bit error (DBE) has been "
    "detected on GPU in the framebuffer at partition 9, subpartition 1."
)
DISK = "nvme nvme3: Disabling device after reset failure: -19"


def test_a_fault_that_may_be_older_than_its_line_is_not_thereby_the_first(ruleset: Ruleset) -> None:
    found = told(ruleset, syslog={"node-01": [(1201.5, ECC)], "node-04": [(1201.0, DISK)]})
    assert verdict(found) == ("unattributed/ambiguous", ())
    assert "node-01" in found.title and "node-04" in found.title


def test_what_came_clearly_after_the_line_of_another_node_s_fault_is_not_its_rival(ruleset: Ruleset) -> None:
    found = told(ruleset, syslog={"node-01": [(1290.0, ECC)], "node-04": [(1201.0, DISK)]})
    assert verdict(found) == ("storage/local_disk", ("node-04",))
