"""Faults between the nodes, and faults that nothing orders: whom they accuse, and whom not."""

from __future__ import annotations

import pytest

from engine.model import Diagnosis
from tests.engine.evidence import made_of
from tests.engine.rules.test_hardware_diagnoses import verdict

LISTED = "node-01:11:12 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_3:1/IB [RO]; OOB eth0:10.5.0.1<0>"
GID = "localGid fe80::a288:c203:46:1e2c remoteGids fe80::a288:c203:4b:5c7e"
PORT = (
    "2026-11-03T04:10:01Z node-0{n}:11:91 [3] transport/net_ib.cc:104 NCCL WARN NET/IB : mlx5_3:1 Got async event : "
    "port error"
)
STATUS = (
    "2026-11-03T04:10:40Z node-0{n}:11:91 [3] transport/net_ib.cc:2066 NCCL WARN NET/IB: Got completion from peer "
    "10.5.0.2<41254> with status=12 opcode=1 len=0 vendor err 129 (Recv) {gid} hca mlx5_3"
)
PKEY = "2026-11-03T04:10:0{n}+00:00 node-0{n} kernel: ib0.8003: P_Key 0x8003 not found\n"
CABLE = "[{at}] mlx5_core 0000:5e:00.0: Port module event: module 2, Cable error, Bus stuck (I2C or data shorted)\n"
EVICTED = (
    "[{at}] LustreError: 167-0: flash-OST001c-osc-ffff12: This client was evicted by flash-OST001c; in progress "
    "operations using this service will fail.\n"
)
REFUSED = (
    "node-02:11:91 [0] misc/socket.cc:484 NCCL WARN socketPollConnect: connect returned Connection refused, "
    "exceeded error retry count (35)\n"
)


def diagnosed(app: list[str], kernels: dict[int, str]) -> Diagnosis:
    logs = {f"syslog/node-0{n}.log": text for n, text in kernels.items()}
    return made_of({"applog/job.log": "".join(f"{line}\n" for line in app), **logs}).diagnosed()


def test_what_nccl_lists_a_port_as_goes_before_what_an_address_hints_at() -> None:
    ports = [PORT.format(n=n) for n in (1, 2, 3)]
    found = diagnosed([LISTED, *ports, *(STATUS.format(n=n, gid=GID) for n in (1, 2, 3, 4))], {})
    assert verdict(found) == ("network/infiniband", ())


@pytest.mark.parametrize(("nodes", "blamed"), [((1, 2, 3, 4), ()), ((3,), ("node-03",))])
def test_a_partition_that_is_gone_blames_a_node_unless_all_lost_it(
    nodes: tuple[int, ...], blamed: tuple[str, ...]
) -> None:
    broken = [LISTED, *(STATUS.format(n=n, gid="") for n in (1, 2, 3, 4))]
    assert verdict(diagnosed(broken, {n: PKEY.format(n=n) for n in nodes})) == ("network/infiniband", blamed)


def test_a_partition_that_is_gone_breaks_nothing_by_itself() -> None:
    assert diagnosed([LISTED, "Bus error"], {3: PKEY.format(n=3)}).domain != "network"


def test_faults_of_two_nodes_that_no_clock_orders_stand_side_by_side() -> None:
    found = diagnosed(
        ["RuntimeError: NCCL error"], {1: CABLE.format(at="801091.008009"), 3: EVICTED.format(at="289499.002948")}
    )
    assert (found.domain, found.sub_domain) == ("unattributed", "ambiguous")


def test_a_fault_without_a_time_does_not_explain_another_node_s_that_has_one() -> None:
    timed = "2026-11-03T04:29:40+00:00 node-03 kernel: " + EVICTED.format(at="289499.002948").split("] ", 1)[1]
    found = diagnosed(["RuntimeError: NCCL error"], {1: CABLE.format(at="801091.008009"), 3: timed})
    assert (found.domain, found.sub_domain) == ("unattributed", "ambiguous")


def test_the_only_fault_is_named_though_no_clock_dates_it() -> None:
    found = diagnosed(["RuntimeError: NCCL error"], {1: CABLE.format(at="801091.008009")})
    assert verdict(found) == ("network/infiniband", ("node-01",))


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("docker0:172.17.0.1", "software/configuration"),
        ("virbr0:192.168.122.1", "software/configuration"),
        ("eth0:10.5.0.{n}", "unattributed/none"),
    ],
)
def test_a_connection_that_names_no_peer_is_judged_by_the_addresses_that_all_ranks_gave(
    address: str, expected: str
) -> None:
    gave = [f"node-0{n}:11:12 [0] NCCL INFO Bootstrap : Using {address.format(n=n)}<0>" for n in (1, 2)]
    assert verdict(diagnosed([*gave, REFUSED.strip()], {})) == (expected, ())
