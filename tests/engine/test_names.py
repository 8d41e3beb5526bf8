"""A host's name or address means one node of the attempt, or none."""

from __future__ import annotations

import pytest

from engine.bundle import match_node
from engine.names import NodeNames, address_in
from tests.engine.evidence import attempt

REGION = ["cn-beijing.172.21.8.61", "cn-beijing.172.21.8.62", "cn-beijing.172.21.8.63"]
AMAZON = ["ip-10-0-3-7.ec2.internal", "ip-10-0-3-8.ec2.internal"]


@pytest.mark.parametrize(
    ("nodes", "host", "node"),
    [
        (REGION, "cn-beijing.172.21.8.62", "cn-beijing.172.21.8.62"),
        (REGION, "172.21.8.63", "cn-beijing.172.21.8.63"),
        (REGION[:1], "cn-beijing.172.21.8.99", None),
        (REGION[:1], "cn-beijing", None),
        (AMAZON, "ip-10-0-3-8", "ip-10-0-3-8.ec2.internal"),
        (AMAZON, "10.0.3.7", "ip-10-0-3-7.ec2.internal"),
        (["10.0.3.7", "10.0.3.8"], "10.0.3.8", "10.0.3.8"),
        (["10.0.3.7"], "10.0.9.9", None),
        (["gpu1.rack-a.example.org", "gpu1.rack-b.example.org"], "gpu1", None),
        (["gpu1.rack-a.example.org", "gpu1.rack-b.example.org"], "gpu1.rack-b", "gpu1.rack-b.example.org"),
        (["gpu1.rack-a.example.org", "gpu2.rack-a.example.org"], "GPU2", "gpu2.rack-a.example.org"),
        (["gpu1"], "gpu1.example.org", "gpu1"),
    ],
)
def test_a_host_is_a_node_only_where_its_name_can_mean_no_other(nodes: list[str], host: str, node: str | None) -> None:
    assert NodeNames(nodes).known(host) == node


@pytest.mark.parametrize("node", REGION)
def test_a_log_named_after_a_node_is_that_node_s(node: str) -> None:
    assert match_node(f"{node}", REGION) == node
    assert match_node(f"{node}.kern", list(reversed(REGION))) == node


def test_a_region_in_a_file_s_name_is_no_node() -> None:
    assert match_node("cn-beijing.trainer-0", REGION) is None


@pytest.mark.parametrize("name", ["node-1-2-3-4", "gpu-10.0.3", "ip-10-0-3-700.internal", "v1.2.3.4-rc1"])
def test_numbers_in_a_name_are_not_always_an_address(name: str) -> None:
    assert address_in(name) is None


@pytest.mark.parametrize("nodes", [REGION, ["10.0.3.7", "10.0.3.8"], AMAZON])
def test_a_fault_is_blamed_on_the_node_of_its_log_however_alike_the_names_are(nodes: list[str]) -> None:
    off = "2026-11-03T02:40:00+00:00 {host} kernel: NVRM: Xid (PCI:0000:61:00): 79, GPU has fallen off the bus.\n"
    for node in nodes:
        for host in (node, "iz0jljm6nmgjwl"):
            files = {f"syslog/{one}.log": off.format(host=host) if one == node else "" for one in nodes}
            diagnosis = attempt(dict(files), nodes, ended_at="2026-11-03T02:41:00Z").diagnosed()
            assert diagnosis.root_cause is not None
            assert diagnosis.root_cause.nodes == (node,)
