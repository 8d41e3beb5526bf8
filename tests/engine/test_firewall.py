"""A node's firewall is the cause when it turned away what a rank could not reach; strangers are turned away all day."""

from __future__ import annotations

import pytest

from engine.model import Diagnosis
from tests.engine.evidence import made_of
from tests.engine.rules.test_hardware_diagnoses import verdict

HEAD = "2026-11-03T04:10:{s:02d}.000000+00:00 {node} kernel: "
PACKET = (
    "IN={into} OUT={out} MAC=b8:ce:f6:11:0a:3c:b8:ce:f6:22:91:0e:08:00 SRC={src} DST={dst} LEN=60 TOS=0x00 PREC=0x00 "
    "TTL=64 ID=28918 DF PROTO=TCP SPT=58003 DPT={port} WINDOW=64240 RES=0x00 SYN URGP=0"
)
NCCL = "node-01:11:91 [3] misc/socket.cc:489 NCCL WARN socketStartConnect: Connect to 10.5.0.2<54955> failed : {why}"
MASTER = (
    "[E1103 04:10:20.000001 socket.cpp:1019] [c10d] The client socket has timed out after 600000ms while trying to "
    "connect to (node-02, 29500)."
)


def packet(
    prefix: str, port: int, *, src: str = "10.5.0.1", dst: str = "10.5.0.2", s: int = 4, out: bool = False
) -> str:
    return f"{HEAD.format(s=s, node='node-02' if not out else 'node-01')}{prefix}" + PACKET.format(
        into="" if out else "eth2", out="eth2" if out else "", src=src, dst=dst, port=port
    )


def met(failed: str, *packets: str, node: str = "node-02") -> Diagnosis:
    """A rank of node-01 could not connect to node-02; the kernel log of a node tells of packets."""
    app = "".join(f"node-0{n}:11:12 [0] NCCL INFO Bootstrap : Using eth2:10.5.0.{n}<0>\n" for n in range(1, 5))
    return made_of(
        {
            "applog/job.log": app + failed + "\n",
            f"syslog/{node}.log": "".join(f"{line}\n" for line in packets),
        }
    ).diagnosed()


@pytest.mark.parametrize(
    "prefix",
    [
        '"filter_IN_public_REJECT: "',
        "FINAL_REJECT: ",
        "IN_public_DROP: ",
        "[UFW BLOCK] ",
        "nft-input-drop ",
        "iptables denied: ",
    ],
)
@pytest.mark.parametrize("why", ["No route to host", "Connection timed out", "Connection refused"])
def test_the_node_whose_firewall_turned_the_ranks_port_away_is_blamed(prefix: str, why: str) -> None:
    found = met(NCCL.format(why=why), packet(prefix, 9100, src="10.5.0.200"), packet(prefix, 54955))
    assert verdict(found) == ("platform/node_config", ("node-02",))


def test_a_master_named_by_its_host_is_found_by_the_port() -> None:
    first_try = packet("[UFW BLOCK] ", 29500).replace("T04:10", "T04:00")
    assert verdict(met(MASTER, first_try)) == ("platform/node_config", ("node-02",))


def test_a_node_that_lets_its_own_packets_not_out_is_blamed_itself() -> None:
    found = met(NCCL.format(why="Operation not permitted"), packet("OUTPUT_DROP: ", 54955, out=True), node="node-01")
    assert verdict(found) == ("platform/node_config", ("node-01",))


@pytest.mark.parametrize(
    "packets",
    [
        [packet("[UFW BLOCK] ", 8472, src="10.18.4.116", dst="10.29.6.197")],
        [packet("[UFW BLOCK] ", 9100), packet("[UFW BLOCK] ", 22, src="203.0.113.9")],
        [packet("[UFW ALLOW] ", 54955)],
        [packet("[UFW BLOCK] ", 54955).replace("T04:10", "T02:10")],
    ],
    ids=["strangers", "other ports", "let in", "long before the start"],
)
def test_packets_that_the_job_did_not_miss_accuse_nobody(packets: list[str]) -> None:
    assert verdict(met(NCCL.format(why="Connection refused"), *packets))[0] == "unattributed/none"


def test_a_port_turned_away_that_no_rank_speaks_of_accuses_nobody() -> None:
    quiet = "[rank3]: RuntimeError: NCCL communicator was aborted"
    assert verdict(met(quiet, packet("FINAL_REJECT: ", 54955)))[1] == ()
