"""A process of the job that the kernel saw crash: in whose code, and never a node's fault for that alone."""

from __future__ import annotations

import pytest

from engine.model import Diagnosis
from tests.engine.evidence import attempt

EXTENSION = "in tokstream.cpython-312-x86_64-linux-gnu.so[7f04c266b000+1f000] likely on CPU 17 (core 58, socket 1)"
STABLE = "in _rowpack.abi3.so[7f04c266b000+1f000]"
LIBRARY = "in libarrow.so.1500[7f04c266b000+1f000]"
AGENT = (
    "E1103 02:40:06.100 120 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: {code}) "
    "local_rank: 1 (pid: {pid}) of binary: /usr/bin/python3"
)
MPI = (
    "2026-11-03T02:40:06Z mpirun noticed that process rank 1 with PID {pid} on node node-01 exited on signal 11 "
    "(Segmentation fault)."
)


def crashed(code: str, ended: str, *, node: str = "node-01", trap: bool = False) -> Diagnosis:
    said = (
        f"traps: python3[4411] general protection fault ip:7f04c267d3f4 sp:7ffd4d73578b error:0 {code}"
        if trap
        else f"python3[4411]: segfault at 18 ip 00007f04c267d3f4 sp 00007ffd4d73578b error 4 {code}"
    )
    steps = "".join(f"2026-11-03T02:{minute}:00Z step {minute} loss 2.3\n" for minute in range(10, 40))
    files: dict[str, bytes | str] = {
        f"syslog/{node}.log": f"2026-11-03T02:40:02.100000+00:00 {node} kernel: {said}\n",
        "applog/node-01.log": f"{steps}{ended}\n",
    }
    return attempt(files, ended_at="2026-11-03T02:40:30Z").diagnosed()


@pytest.mark.parametrize("code", [EXTENSION, STABLE])
@pytest.mark.parametrize("trap", [False, True])
@pytest.mark.parametrize(
    "ended", [AGENT.format(code=-11, pid=4411), AGENT.format(code=-11, pid=33), MPI.format(pid=4411)]
)
def test_a_crash_in_a_python_extension_is_the_program_s(code: str, ended: str, trap: bool) -> None:
    found = crashed(code, ended, trap=trap)
    assert (found.domain, found.sub_domain) == ("software", "user_code")
    assert found.root_cause is not None
    assert found.root_cause.nodes == ()
    assert "0x123f4" in found.evidence[0].text


def test_a_crash_in_a_library_is_the_library_s() -> None:
    found = crashed(LIBRARY, AGENT.format(code=-11, pid=4411))
    assert (found.domain, found.sub_domain) == ("software", "dependency")


@pytest.mark.parametrize(
    "file", ["libcuda.so.550.54", "libnccl.so.2", "libc.so.6", "libtorch_cuda.so", "ld-linux-x86-64.so.2"]
)
def test_a_crash_in_what_the_driver_or_every_program_brings_decides_nothing(file: str) -> None:
    found = crashed(f"in {file}[7f04c266b000+1f000]", AGENT.format(code=-11, pid=4411))
    assert found.domain == "unattributed"


def test_a_helper_that_crashed_while_the_rank_ended_otherwise_is_no_cause() -> None:
    assert crashed(EXTENSION, AGENT.format(code=1, pid=33)).domain == "unattributed"


def test_a_crash_on_another_node_than_the_launcher_s_is_not_the_one_it_tells_of() -> None:
    assert crashed(EXTENSION, AGENT.format(code=-11, pid=33), node="node-02").domain == "unattributed"
