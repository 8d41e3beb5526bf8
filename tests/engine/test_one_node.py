"""One node of many says it and the others only wait for that node: it is the node's own."""

from __future__ import annotations

import pytest

from engine.model import Diagnosis
from tests.engine.evidence import made_of
from tests.engine.rules.test_hardware_diagnoses import verdict

STARTS = "W1103 04:00:05.781466 2766298 torch/distributed/run.py:766] Setting OMP_NUM_THREADS environment variable"
WAITED = """Traceback (most recent call last):
  File "/opt/bin/torchrun", line 8, in <module>
    sys.exit(main())
  File "/opt/site-packages/torch/distributed/elastic/agent/server/api.py", line 601, in _assign_worker_ranks
    store.get(key)
torch.distributed.DistStoreError: wait timeout after 900000ms, keys: /none/torchelastic/role_info/2"""
LOST_PEER = (
    "[E1103 04:20:00.000001 socket.cpp:1019] [c10d] The client socket has timed out after 900000ms while trying to "
    "connect to (node-01, 29500)."
)
NO_ADDRESS = (
    "[W1103 04:00:0{n}.8 socket.cpp:764] [c10d] The IPv{v} network addresses of (node-01.int, 29500) cannot be "
    "retrieved (gai error: -2 - Name or service not known)."
)
UNRESOLVED = {
    "c10d": "\n".join(NO_ADDRESS.format(n=n, v=v) for n in (6, 8) for v in (6, 4)),
    "exception": """2026-11-03 04:02:00 Traceback (most recent call last):
  File "/opt/app/main.py", line 12, in <module>
    store = connect(socket.gethostbyname(master))
socket.gaierror: [Errno -3] Temporary failure in name resolution""",
    "shell": "2026-11-03 04:01:10 curl: (6) Could not resolve host: config.cluster.int",
}


def launched(said: dict[int, str], nodes: int = 4) -> Diagnosis:
    """A log of its launcher, without ranks, from each node: what the node says, or that it waited in vain."""
    return made_of(
        {f"applog/launch.node-0{n}.log": f"{STARTS}\n{said.get(n, WAITED)}\n" for n in range(1, nodes + 1)}, nodes=nodes
    ).diagnosed()


@pytest.mark.parametrize("wording", UNRESOLVED.values(), ids=UNRESOLVED)
def test_the_only_node_that_resolves_no_name_is_blamed(wording: str) -> None:
    found = launched({3: wording})
    assert verdict(found) == ("network/dns", ("node-03",))
    assert found.recommendation.exclude_nodes == ("node-03",)


def test_the_others_may_have_waited_with_their_own_times() -> None:
    found = launched({2: UNRESOLVED["c10d"], 3: LOST_PEER, 4: LOST_PEER})
    assert verdict(found) == ("network/dns", ("node-02",))


@pytest.mark.parametrize("wording", UNRESOLVED.values(), ids=UNRESOLVED)
def test_a_name_that_several_nodes_do_not_resolve_is_no_nodes_fault(wording: str) -> None:
    assert verdict(launched({2: wording, 3: wording})) == ("network/dns", ())


@pytest.mark.parametrize("wording", UNRESOLVED.values(), ids=UNRESOLVED)
def test_of_two_nodes_the_one_that_had_to_ask_for_the_name_is_not_blamed(wording: str) -> None:
    assert verdict(launched({2: wording}, nodes=2)) == ("network/dns", ())


def test_a_rank_of_many_on_its_node_does_not_speak_for_the_node() -> None:
    files = {f"applog/node-0{n}.rank-{n * 8}.log": f"{STARTS}\n{LOST_PEER}\n" for n in (1, 2, 4)}
    files["applog/node-03.rank-24.log"] = f"{STARTS}\n{UNRESOLVED['exception']}\n"
    assert verdict(made_of(files).diagnosed()) == ("network/dns", ())
