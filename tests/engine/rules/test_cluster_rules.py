"""What the scheduler, network and storage rules say about single lines."""

from __future__ import annotations

import io

import pytest

from engine.model import Role, Source, Stream
from engine.ruleset import Rule, Ruleset, load_ruleset
from engine.scan import Scanner

FAMILIES = {"slurm", "k8s", "ib", "roce", "ethernet", "dns", "remote", "fs", "disk", "objectstore", "container"}
NOBODY = {"preemption", "time_limit", "cancelled", "eviction", "quota"} | {
    "capacity", "object_store", "dns", "remote_service", "host_oom",
}  # fmt: skip


@pytest.fixture(scope="module")
def ruleset() -> Ruleset:
    return load_ruleset()


@pytest.fixture(scope="module")
def scanner(ruleset: Ruleset) -> Scanner:
    return Scanner(ruleset)


def read(scanner: Scanner, line: str, source: Source = Source.SYSLOG) -> list[Rule]:
    """What the engine makes of one line: at most one meaning, beside those that only tell places."""
    content = f"{line}\n".encode()
    stream = Stream(name="log", source=source, open=lambda: io.BytesIO(content), size=len(content))
    return [hit.rule for hit in scanner.scan(stream).hits if hit.rule.family != "origin"]


HARMLESS = [
    "LustreError: 11-0: scratch-MDT0000-mdc-ffff2f65: operation mds_getattr to node 10.9.0.4@o2ib failed: rc = -107",
    "Lustre: scratch-OST0016-osc-ffff3595: Connection restored to 10.9.0.7@o2ib (at 10.9.0.7@o2ib)",
    "nfs: server fs01 OK",
    "libceph: osd12 (1)10.9.2.12:6805 socket closed (con state OPEN)",
    "mlx5_core 0000:67:00.0: Port module event: module 0, Cable plugged",
    "mlx5_core 0000:5c:00.0: mlx5_cmd_out_err:821:(pid 304): ACCESS_REG(0x805) op_mod(0x1) failed, status bad resource",
    "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing",
    "workqueue: ib_cache_event_task [ib_core] hogged CPU for >10000us 11 times, consider switching to WQ_UNBOUND",
    "IPv6: ADDRCONF(NETDEV_CHANGE): veth38de93f: link becomes ready",
    "docker0: port 5(veth052fad) entered disabled state",
    "e1000e 0000:00:1f.6 eno1: NIC Link is Up 1000 Mbps Full Duplex, Flow Control: None",
    "TCP: eno1: Driver has suspect GRO implementation, TCP performance may be compromised.",
    "TCP: request_sock_TCP: Possible SYN flooding on port 29500. Sending cookies.",
    "irqbalance[1133]: Cannot change IRQ 200 affinity: Input/output error",
    "multipathd[987]: sda: add missing path",
    "sshd[203]: error: kex_exchange_identification: Connection closed by remote host",
    "slurmd[3321]: debug:  credential expires at 1792282523",
    "slurmd[2177]: slurmd: Health Check completed in 252944usec",
    "node_exporter[1843]: level=error msg=\"collector failed\" name=infiniband err=\"no such file or directory\"",
    "kubelet[2811]: \"Nameserver limits exceeded\" err=\"Nameserver limits were exceeded, some have been omitted\"",
    "kubelet[2301]: \"operationExecutor.MountVolume started for volume \\\"kube-api-access-1a34a\\\"\"",
    "containerd[1988]: level=info msg=\"StopPodSandbox for \\\"116d34ebe5\\\"\"",
    "EXT4-fs (md0): mounted filesystem with ordered data mode. Quota mode: none.",
    "XFS (nvme1n1): Mounting V5 Filesystem",
    "nvme nvme2: I/O tag 71 (5047) opcode 0x1 (I/O Cmd) QID 9 timeout, completion polled",
    "blk_update_request: I/O error, dev sr0, sector 0 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 0",
]  # fmt: skip


@pytest.mark.parametrize("line", HARMLESS)
def test_everyday_lines_of_a_healthy_node_accuse_nobody(scanner: Scanner, line: str) -> None:
    assert [rule.id for rule in read(scanner, line) if rule.role in (Role.CAUSE, Role.EITHER)] == []


def test_an_end_from_outside_and_a_limit_of_the_job_blame_no_node(ruleset: Ruleset) -> None:
    blaming = [r.id for r in ruleset.rules if r.family in FAMILIES and r.sub_domain in NOBODY and r.blames != "none"]
    assert blaming == ["dns.node-resolver-down", "dns.servers-changed"]  # which are the node's own


def test_every_example_of_a_cause_is_read_as_one_of_its_domain(ruleset: Ruleset, scanner: Scanner) -> None:
    domains = {rule.id: rule.domain for rule in ruleset.rules}
    astray = []
    for spec in ruleset.specs:
        if spec.id.partition(".")[0] not in FAMILIES or spec.on != "line" or spec.role not in (Role.CAUSE, Role.EITHER):
            continue
        for example in spec.examples.match:
            found = read(scanner, example.line, spec.source[0])
            if not found or found[0].domain != domains[spec.id]:
                astray.append((spec.id, [rule.id for rule in found], example.line))
    assert astray == []


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-11-03T04:22:31 ***", "slurm.step-cancelled"),
        (
            "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-03T04:22:31 DUE TO TIME LIMIT ***",
            "slurm.time-limit",
        ),
        (
            "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-11-03T04:22:31 DUE TO PREEMPTION ***",
            "slurm.preempted",
        ),
        ("srun: error: n1: tasks 0-3: Terminated", "slurm.task-terminated"),
        ("srun: error: n1: task 3: Exited with exit code 1", "slurm.task-exit"),
        ("srun: error: n1: task 3: Out Of Memory", "slurm.out-of-memory"),
    ],
)
def test_slurms_ways_to_end_a_task_are_told_apart(scanner: Scanner, line: str, rule: str) -> None:
    assert [found.id for found in read(scanner, line, Source.APPLOG)] == [rule]


def test_a_word_of_slurm_about_a_job_names_the_job(ruleset: Ruleset) -> None:
    """Otherwise the controller's words about other jobs would be taken for this one's."""
    silent = []
    for matcher in ruleset.line_matchers:
        spec = matcher.spec
        if not spec.id.startswith("slurm.") or spec.role not in (Role.CAUSE, Role.EITHER):
            continue
        for example in spec.examples.match:
            if "JobId=" in example.line or "JobID=" in example.line or "StepId=" in example.line:
                captures = matcher.match(example.line) or {}
                if "job" not in captures:
                    silent.append((spec.id, example.line))
    assert silent == []
