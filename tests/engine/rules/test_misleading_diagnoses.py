"""Whole attempts whose loudest line names the wrong place or thing: the one that checked, the neighbour, the daemon."""

from __future__ import annotations

import pytest

from engine.model import Diagnosis
from engine.ruleset import Ruleset, load_ruleset
from tests.engine.rules.test_cluster_diagnoses import told, verdict


@pytest.fixture(scope="module")
def ruleset() -> Ruleset:
    return load_ruleset()


# --- Megatron repeats a step on another GPU


RERUN = "megatron.core.rerun_state_machine:"
PERSISTENT = f"ERROR:{RERUN}Rank 2, node node-04, device 0, iteration #118: Possible persistent error!!"


def test_the_node_that_repeated_a_step_is_not_the_one_that_failed_it(ruleset: Ruleset) -> None:
    app = [
        (1201.0, f"node-03: ERROR:{RERUN}Unexpected result nan on rank 2 at iteration #118 invocation #1 (message='nan')"),
        (1202.0, f"node-03: ERROR:{RERUN}Rank 2, node node-03, device 0, iteration #118: First rerun: unexpected result is "
         "reproducible within the tolerance (nan = nan). Need to rerun on a different GPU to verify correctness"),
        (1790.0, f"node-04: {PERSISTENT}"),
    ]  # fmt: skip
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
