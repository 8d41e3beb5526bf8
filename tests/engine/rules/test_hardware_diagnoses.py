"""What becomes of hardware lines in a whole attempt: the cause is blamed, its echoes and harmless lines are not."""

from __future__ import annotations

import io
from datetime import UTC, datetime

import pytest

from engine.diagnose import diagnose
from engine.model import Attempt, Diagnosis, Source, Stream, Workload
from engine.ruleset import Ruleset, load_ruleset

START = datetime(2026, 11, 3, 4, 0, tzinfo=UTC).timestamp()
NODES = ("node-01", "node-02", "node-03", "node-04")
Lines = list[tuple[float, str]]

OFF_BUS = "NVRM: Xid (PCI:0000:61:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
ECC = "NVRM: Xid (PCI:0000:61:00): 48, pid=44, An uncorrectable double bit error (DBE) has been detected on GPU"
LINK_DOWN = "NVRM: Xid (PCI:0000:61:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 10 (0x004545c6 0x00000000 0x00000000)"
LINK_PEER = "NVRM: Xid (PCI:0000:1b:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 09 (0x025525c6 0x00000000 0x00000000)"
MMU = "NVRM: Xid (PCI:0000:61:00): 31, pid=44, name=python3, Ch 00000012, intr 00000000. MMU Fault: ENGINE GRAPHICS"
TIMED_OUT: Lines = [
    (
        1802,
        "node-01:101:202 [3] NCCL WARN [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1201, "
        "OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600030 milliseconds before timing out.",
    )
]


@pytest.fixture(scope="module")
def ruleset() -> Ruleset:
    return load_ruleset()


def stamped(lines: Lines, between: str = " ") -> bytes:
    """Lines at seconds after the attempt's start, as a log of RFC 3339 time stamps."""
    return "".join(
        f"{datetime.fromtimestamp(START + s, UTC).isoformat()}{between}{text}\n" for s, text in lines
    ).encode()


def stream(name: str, source: Source, content: bytes, node: str, rank: int | None = None) -> Stream:
    return Stream(name=name, source=source, open=lambda: io.BytesIO(content), size=len(content), node=node, rank=rank)


def diagnosed(
    ruleset: Ruleset, syslog: dict[str, Lines], applog: dict[int, Lines] | None = None, *, end: float = 1830
) -> Diagnosis:
    """Diagnose a failed attempt of four nodes with one rank each; rank 1 timed out unless the application says more."""
    streams = [
        stream(f"syslog/{node}.log", Source.SYSLOG, stamped(lines, f" {node} kernel: "), node)
        for node, lines in syslog.items()
    ]
    for rank, lines in ({1: TIMED_OUT} if applog is None else applog).items():
        node = NODES[rank]
        streams.append(stream(f"applog/{node}.rank-{rank}.log", Source.APPLOG, stamped(lines), node, rank))
    attempt = Attempt(
        workload=Workload(id="4711", scheduler="slurm"),
        state="FAILED",
        exit_code="1:0",
        started_at=START,
        ended_at=START + end,
        nodes=NODES,
        gpus_per_node=1,
    )
    return diagnose(attempt, streams, ruleset)


def verdict(found: Diagnosis) -> tuple[str, tuple[str, ...]]:
    return f"{found.domain}/{found.sub_domain}", found.root_cause.nodes if found.root_cause else ()


UNDECIDED = ("unattributed/none", ())


def traceback(at: float, error: str) -> Lines:
    text = [
        "Traceback (most recent call last):",
        '  File "/opt/app/train.py", line 10, in <module>',
        "    main()",
        error,
    ]
    return [(at, line) for line in text]


@pytest.mark.parametrize(
    ("expected", "lines"),
    [
        ("hardware/gpu", [OFF_BUS]),
        ("hardware/gpu_memory", [ECC]),
        ("hardware/gpu_memory", [MMU, ECC]),
        ("hardware/nvlink", [LINK_DOWN]),
        ("hardware/gpu", [OFF_BUS, "nvidia-nvswitch2: SXid (PCI:0000:07:00.0): 20034, Fatal, Link 45 LTSSM Fault Up"]),
        ("hardware/gpu", ["nvidia-nvswitch2: SXid (PCI:0000:07:00.0): 20034, Fatal, Link 45 LTSSM Fault Up", OFF_BUS]),
        ("platform/kernel", ["Oops: 0000 [#1] SMP NOPTI", "Kernel panic - not syncing: Fatal exception"]),
        (
            "hardware/host_memory",
            [
                "EDAC MC0: 1 UE memory read error on CPU_SrcID#1_MC#2_Chan#0_DIMM#1 (channel:1 slot:0)",
                "Memory failure: 0x51b2e7: Sending SIGBUS to python3:41380 due to hardware memory corruption",
            ],
        ),
    ],
)
def test_the_node_that_reports_a_fault_of_its_own_is_blamed(ruleset: Ruleset, expected: str, lines: list[str]) -> None:
    found = diagnosed(ruleset, {"node-03": [(1200 + i / 10, line) for i, line in enumerate(lines)]})
    assert verdict(found) == (expected, ("node-03",))


def test_an_application_xid_alone_is_the_applications_and_blames_no_node(ruleset: Ruleset) -> None:
    assert verdict(diagnosed(ruleset, {"node-03": [(1200, MMU)]})) == ("software/user_code", ())


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: Xid (PCI:0000:61:00): 45, pid=44, name=python3, Ch 00000008",
        "NVRM: Xid (PCI:0000:61:00): 63, pid=44, Row Remapper: New row marked for remapping, reset gpu to activate.",
        LINK_PEER,
        "nvidia 0000:61:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
        "EDAC MC1: 1 CE memory read error on CPU_SrcID#1_MC#0_Chan#1_DIMM#0 (channel:1 slot:0)",
        "INFO: task python3:44 blocked for more than 120 seconds.",
        "python3[8449]: segfault at 0 ip 00007f73b30b32f3 sp 00007ffd4d73578b error 4 in libcuda.so",
        "CPU60: Package temperature is above threshold, cpu clock is throttled (total events = 1)",
    ],
)
def test_echoes_and_harmless_lines_alone_decide_nothing(ruleset: Ruleset, line: str) -> None:
    assert verdict(diagnosed(ruleset, {"node-03": [(1200, line)]})) == UNDECIDED


def test_clean_up_on_the_gpus_does_not_hide_the_exception_before_it(ruleset: Ruleset) -> None:
    clean_up = [(1205.0, f"NVRM: Xid (PCI:0000:{bus}:00): 45, pid=44, name=python3, Ch 8") for bus in ("61", "62")]
    found = diagnosed(ruleset, {"node-03": clean_up}, {2: traceback(1200, "KeyError: 'input_ids'"), 1: TIMED_OUT})
    assert verdict(found) == ("software/user_code", ())


def test_the_end_with_the_signal_integrity_code_is_blamed_not_the_far_end(ruleset: Ruleset) -> None:
    contained = (
        "NVRM: Xid (PCI:0000:1b:00): 145, RLW_SRC_TRACK Nonfatal XC1 i0 Link 10 (0x040948e2 0x00000008 0x00000000)"
    )
    found = diagnosed(ruleset, {"node-02": [(1199, LINK_PEER), (1199.5, contained)], "node-03": [(1200, LINK_DOWN)]})
    assert verdict(found) == ("hardware/nvlink", ("node-03",))


def test_a_fault_on_a_node_outside_the_allocation_is_not_this_jobs(ruleset: Ruleset) -> None:
    assert verdict(diagnosed(ruleset, {"node-99": [(1200, ECC)]})) == UNDECIDED


def test_training_that_went_on_refutes_a_fault(ruleset: Ruleset) -> None:
    steps = [
        (float(s), f"iteration {s // 10}/5000 | loss 2.31 | elapsed time per iteration (ms): 1000.0")
        for s in range(30, 1200, 10)
    ]
    assert verdict(diagnosed(ruleset, {"node-02": [(300, ECC)]}, {1: steps + TIMED_OUT})) == UNDECIDED


def test_a_gpu_lost_before_the_start_counts_until_the_node_booted(ruleset: Ruleset) -> None:
    failed = {2: traceback(60, "RuntimeError: CUDA error: no CUDA-capable device is detected")}
    lost = [(-3000.0, OFF_BUS)]
    assert verdict(diagnosed(ruleset, {"node-03": lost}, failed, end=90)) == ("hardware/gpu", ("node-03",))
    booted = [*lost, (-2000.0, "Linux version 5.15.0-122-generic (buildd@host) #132-Ubuntu SMP")]
    assert verdict(diagnosed(ruleset, {"node-03": booted}))[0] == "unattributed/none"


def test_a_fabric_manager_that_failed_counts_only_when_cuda_says_so_too(ruleset: Ruleset) -> None:
    failed = [(-3000.0, "nvidia-fabricmanager.service: Failed with result 'exit-code'.")]
    not_ready = "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized"
    found = diagnosed(ruleset, {"node-03": failed}, {2: traceback(60, not_ready)}, end=90)
    assert verdict(found) == ("platform/fabric_manager", ("node-03",))
    other = diagnosed(ruleset, {"node-03": failed}, {2: traceback(60, "RuntimeError: something of ours")}, end=90)
    assert verdict(other)[1] == ()


def test_an_oom_kill_of_the_job_blames_no_node(ruleset: Ruleset) -> None:
    lines = [
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=step_0,mems_allowed=0-1,oom_memcg=/slurm/uid_1/job_4711,"
        "task_memcg=/slurm/uid_1/job_4711/step_0,task=python3,pid=88,uid=1",
        "Memory cgroup out of memory: Killed process 88 (python3) total-vm:98211344kB, anon-rss:61220144kB",
    ]
    found = diagnosed(ruleset, {"node-03": [(1200, line) for line in lines]})
    assert verdict(found) == ("software/host_oom", ())
