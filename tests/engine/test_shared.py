"""What several nodes say at once lies between them; and clocks that nothing keeps right order nothing."""

from __future__ import annotations

import pytest

from engine.model import Diagnosis
from engine.ruleset import Ruleset
from tests.engine.evidence import ruleset as built_in
from tests.engine.rules.test_hardware_diagnoses import ECC, Lines, diagnosed, verdict

NOBODY: tuple[str, ...] = ()
OOM = (
    "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=user.slice,mems_allowed=0-1,global_oom,"
    "task_memcg=/user.slice/user-7.slice/session-4.scope,task=python,pid=44,uid=7"
)


@pytest.fixture(scope="module")
def ruleset() -> Ruleset:
    return built_in()


def on_nodes(ruleset: Ruleset, line: str, *seconds: float) -> Diagnosis:
    """Node after node says the line at its second."""
    return diagnosed(ruleset, {f"node-0{n}": [(at, line)] for n, at in enumerate(seconds, 1)})


@pytest.mark.parametrize(
    ("line", "domain"),
    [
        ("mlx5_core 0000:5c:00.0 rail2: Link down", "network/roce"),
        ("bnxt_en 0000:af:00.0 ens2f0np0: NIC Link is Down", "network/roce"),
        ("mlx5_4 port 1: state changed from ACTIVE to DOWN", "network/infiniband"),
        (
            "LustreError: 167-0: fs01-OST0007-osc-ffff9a: This client was evicted by fs01-OST0007; in progress "
            "operations using this service will fail.",
            "storage/shared_filesystem",
        ),
    ],
)
def test_no_node_is_blamed_for_what_three_of_four_lose_at_once(ruleset: Ruleset, line: str, domain: str) -> None:
    found = on_nodes(ruleset, line, 1200.0, 1201.5, 1200.8)
    assert verdict(found) == (domain, NOBODY)
    assert "3 of 4 nodes at once" in found.title
    assert found.recommendation.action == "investigate"
    assert "node-01, node-02, node-03" in found.recommendation.text


def test_a_clock_that_is_behind_makes_no_node_the_first_to_lose_its_link(ruleset: Ruleset) -> None:
    found = on_nodes(ruleset, "mlx5_core 0000:5c:00.0 ibp92s0: Link down", 1200.0, 1200.4, 1148.0)
    assert verdict(found) == ("network/infiniband", NOBODY)
    assert found.root_cause is not None
    assert found.root_cause.at is not None
    assert found.root_cause.at.startswith("2026-11-03T04:20:00")


def test_a_link_that_went_minutes_before_the_others_is_blamed_alone(ruleset: Ruleset) -> None:
    found = on_nodes(ruleset, "mlx5_core 0000:5c:00.0 ibp92s0: Link down", 1500.0, 1200.0, 1500.4, 1501.0)
    assert verdict(found) == ("network/infiniband", ("node-02",))


def test_two_nodes_are_too_few_for_a_switch(ruleset: Ruleset) -> None:
    found = on_nodes(ruleset, "mlx5_core 0000:5c:00.0 ibp92s0: Link down", 1200.0, 1200.4)
    assert verdict(found) == ("network/infiniband", ("node-01", "node-02"))


def test_gpus_that_fail_on_three_nodes_at_once_are_still_these_nodes_own(ruleset: Ruleset) -> None:
    assert verdict(on_nodes(ruleset, ECC, 1200.0, 1201.0, 1202.0)) == (
        "hardware/gpu_memory",
        ("node-01", "node-02", "node-03"),
    )


def two_deaths(ruleset: Ruleset, *time_service: tuple[float, str]) -> Diagnosis:
    """A GPU's memory error on one node, half a minute later a lack of memory on another."""
    lines: Lines = [*time_service, (1230, OOM)]
    return diagnosed(ruleset, {"node-02": [(1200, ECC)], "node-03": lines})


def test_of_two_deaths_half_a_minute_apart_the_first_is_the_root(ruleset: Ruleset) -> None:
    assert verdict(two_deaths(ruleset)) == ("hardware/gpu_memory", ("node-02",))


@pytest.mark.parametrize(
    "lost",
    [
        "Can't synchronise: no selectable sources",
        "Can't synchronise: no majority",
        "Timed out waiting for reply from 10.3.0.1:123 (ntp1.int).",
        "0.0.0.0 c618 08 no_sys_peer",
        "no servers reachable",
    ],
)
def test_a_clock_without_a_time_source_orders_no_two_deaths(ruleset: Ruleset, lost: str) -> None:
    found = two_deaths(ruleset, (600, lost))
    assert (found.domain, found.sub_domain) == ("unattributed", "ambiguous")
    assert {a.node for a in found.affected_nodes if a.role == "suspect"} == {"node-02", "node-03"}
    assert any("node-03 had no time source" in sentence for sentence in found.reasoning)


@pytest.mark.parametrize(
    ("lost", "held"),
    [
        ("Can't synchronise: no selectable sources", "Selected source 10.3.0.1 (ntp1.int)"),
        ("Timed out waiting for reply from 10.3.0.1:123 (ntp1.int).", "Synchronized to time server 10.3.0.2:123."),
        ("no servers reachable", "synchronized to 10.3.0.1, stratum 2"),
    ],
)
def test_a_clock_that_found_its_source_again_is_believed(ruleset: Ruleset, lost: str, held: str) -> None:
    assert verdict(two_deaths(ruleset, (300, lost), (600, held))) == ("hardware/gpu_memory", ("node-02",))


def test_two_deaths_of_two_kinds_on_two_nodes_in_the_same_seconds_are_ambiguous(ruleset: Ruleset) -> None:
    found = diagnosed(ruleset, {"node-02": [(1200, ECC)], "node-03": [(1204, OOM)]})
    assert (found.domain, found.sub_domain) == ("unattributed", "ambiguous")
