"""Whole attempts whose loudest line names the wrong place or thing: the one that checked, the neighbour, the daemon."""

from __future__ import annotations

import pytest

from engine.model import Diagnosis
from engine.ruleset import Ruleset, load_ruleset
from tests.engine.rules.test_cluster_diagnoses import NFS_HANGS, WATCHDOG, items, pod, told, verdict


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


# --- whom the kernel killed for memory


POD = "983fc568-aac3-4108-873d-ba8b04561950"


def killed(name: str, uid: str = POD, pid: int = 41200) -> list[tuple[float, str]]:
    group = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid.replace('-', '_')}.slice"
    return [
        (
            1201.0,
            f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x.scope,mems_allowed=0-1,oom_memcg={group},"
            f"task_memcg={group}/cri-containerd-3f7f16ff.scope,task={name},pid={pid},uid=0",
        ),
        (1201.1, f"Memory cgroup out of memory: Killed process {pid} ({name}) total-vm:1289104kB, anon-rss:170884kB"),
    ]


def pods_of(uid: str) -> dict[str, object]:
    own = pod("pretrain-2", "node-03")
    own["metadata"]["uid"] = uid
    return {"pods.json": items(own)}


def test_a_process_of_another_pod_that_the_kernel_killed_is_no_cause(ruleset: Ruleset) -> None:
    other = "11111111-2222-3333-4444-555555555555"
    found = told(ruleset, syslog={"node-03": killed("python3", other)}, files=pods_of(POD), app=WATCHDOG)
    assert verdict(found) == ("unattributed/none", ())
    assert any("another pod" in (one.not_root_because or "") for one in found.candidates)


def test_a_process_of_the_job_s_pod_that_the_kernel_killed_is_the_cause(ruleset: Ruleset) -> None:
    found = told(ruleset, syslog={"node-03": killed("python3")}, files=pods_of(POD), app=WATCHDOG)
    assert verdict(found) == ("software/host_oom", ())


@pytest.mark.parametrize("daemon", ["node-cache", "calico-node", "cilium-agent", "ebs-csi-node", "kube-proxy", "k3s"])
def test_a_daemon_of_the_node_that_the_kernel_killed_is_no_cause_by_itself(ruleset: Ruleset, daemon: str) -> None:
    assert verdict(told(ruleset, syslog={"node-03": killed(daemon)}, app=WATCHDOG)) == ("unattributed/none", ())


@pytest.mark.parametrize(
    "down",
    [
        *killed("node-cache"),
        (1201.0, "systemd-resolved.service: Failed with result 'oom-kill'."),
        (1201.0, "dnsmasq.service: Main process exited, code=killed, status=9/KILL"),
    ],
)
def test_a_node_without_its_resolver_is_blamed_for_the_lookup_that_failed_there(
    ruleset: Ruleset, down: tuple[float, str]
) -> None:
    lookup = "[rank2]: socket.gaierror: [Errno -3] Temporary failure in name resolution"
    found = told(ruleset, syslog={"node-03": [down]}, app=[(1230.0, lookup), *WATCHDOG])
    assert verdict(found) == ("network/dns", ("node-03",))
    elsewhere = told(ruleset, syslog={"node-02": [down]}, app=[(1230.0, lookup), *WATCHDOG])
    assert "node-02" not in verdict(elsewhere)[1]


# --- a queue that only ended what was already stuck


@pytest.mark.parametrize("reason", ["Deactivated", "InactiveWorkload"])
def test_a_workload_that_was_deactivated_after_an_hour_of_silence_hung(ruleset: Ruleset, reason: str) -> None:
    stuck = {f"node-0{n}": [(1280.0 + n, NFS_HANGS[1])] for n in range(1, 5)}
    for state, why in (("Evicted", reason), (f"Evicted/{reason}", None)):
        found = told(ruleset, syslog=stuck, state=state, reason=why, end=5400)
        assert (found.outcome, *verdict(found)) == ("hung", "storage/shared_filesystem", ())


def test_a_workload_that_was_deactivated_while_it_worked_was_cancelled(ruleset: Ruleset) -> None:
    found = told(ruleset, state="Evicted/Deactivated", progress=1800)
    assert (found.outcome, *verdict(found)) == ("cancelled", "scheduler/cancelled", ())


def test_a_workload_that_had_its_time_is_not_called_preempted(ruleset: Ruleset) -> None:
    found = told(ruleset, state="Evicted", reason="DeactivatedDueToMaximumExecutionTimeExceeded", progress=1800)
    assert (found.outcome, *verdict(found)) == ("timed_out", "scheduler/time_limit", ())


# --- an address that went away under the job


GID = "NCCL WARN NET/IB : mlx5_5:1 GID table changed"
STATUS_12 = (
    "NCCL WARN NET/IB: Got completion from peer 10.8.2.18<55365> with status=12 opcode=0 len=0 vendor err 129 (Send)"
)
LOST = [
    "systemd-networkd[733]: ens26f0np0: DHCP lease lost",
    "NetworkManager[1201]: <info>  [1794505459.1234] dhcp4 (enp94s0): state changed bound -> expire",
    "avahi-daemon[901]: Withdrawing address record for 172.30.5.18 on rail5.",
]


def without_address(ruleset: Ruleset, lost: str, app: list[tuple[float, str]]) -> Diagnosis:
    return told(ruleset, syslog={"node-03": [(1201.0, lost)]}, app=app)


@pytest.mark.parametrize("lost", LOST)
@pytest.mark.parametrize("host", ["node-03", "train-worker-2"])
def test_an_interface_that_lost_its_address_as_nccl_saw_it_is_blamed(ruleset: Ruleset, lost: str, host: str) -> None:
    app = [
        (1202.3, f"{host}:95:1505 [0] transport/net_ib.cc:184 {GID}"),
        (1233.0, f"node-01:95:1505 [0] transport/net_ib.cc:2358 {STATUS_12}"),
        (1233.5, f"node-02:95:1505 [0] transport/net_ib.cc:2358 {STATUS_12}"),
    ]
    assert verdict(without_address(ruleset, lost, app)) == ("network/roce", ("node-03",))


def test_a_lost_address_that_nccl_did_not_notice_accuses_nobody(ruleset: Ruleset) -> None:
    app = [(1233.0, f"node-01:95:1505 [0] transport/net_ib.cc:2358 {STATUS_12}")]
    assert verdict(without_address(ruleset, LOST[0], app))[1] == ()
    late = [(1320.0, f"train-worker-2:95:1505 [0] transport/net_ib.cc:184 {GID}"), *app]
    assert verdict(without_address(ruleset, LOST[0], late))[1] == ()


def test_a_fault_in_the_words_of_a_container_that_nothing_maps_to_a_node_accuses_none(ruleset: Ruleset) -> None:
    fatal = "train-worker-2:95:1505 [0] transport/net_ib.cc:93 NCCL WARN NET/IB : mlx5_4:1 async fatal event"
    found = told(ruleset, app=[(1202.0, fatal), *WATCHDOG])
    assert verdict(found) == ("hardware/nic", ())


def test_ranks_that_do_not_fit_an_engine_are_a_matter_of_configuration(ruleset: Ruleset) -> None:
    for said in (
        "[TensorRT-LLM][ERROR] Assertion failed: mpiSize == tp * pp (/src/worldConfig.cpp:99)",
        "RuntimeError: [TensorRT-LLM][ERROR] Assertion failed: MPI size 1 != TP size 2 * PP size 1 (/src/x.cpp:9)",
        "AssertionError: Engine world size (2 * 1) != Runtime world size (1)",
    ):
        assert verdict(told(ruleset, app=[(5.0, said)], progress=0, end=20)) == ("software/configuration", ())


@pytest.mark.parametrize(("state", "reason"), [("Failed", "DeadlineExceeded"), ("Failed/DeadlineExceeded", None)])
def test_a_job_that_its_deadline_ended_timed_out_whichever_word_says_so(
    ruleset: Ruleset, state: str, reason: str | None
) -> None:
    found = told(ruleset, state=state, reason=reason, progress=1800)
    assert (found.outcome, *verdict(found)) == ("timed_out", "scheduler/time_limit", ())


# --- Ray's memory monitor speaks of the host's memory


def test_a_task_that_ray_ended_for_the_host_s_memory_is_no_gpu_error(ruleset: Ruleset) -> None:
    app = [
        (1790.0, "Traceback (most recent call last):"),
        (1790.0, '  File "/opt/ray/_private/worker.py", line 2822, in get'),
        (1790.0, "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory."),
    ]
    found = told(ruleset, app=app)
    assert verdict(found) == ("software/host_oom", ())
    assert "python.gpu-error" not in {symptom.rule for symptom in found.symptoms}


@pytest.mark.parametrize(
    "said",
    [
        "RuntimeError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1269, unhandled system error "
        "(run with NCCL_DEBUG=INFO for details), NCCL version 2.14.3",
        "RuntimeError: NCCL communicator was aborted on rank 3.  Original reason for failure was: watchdog timeout",
    ],
)
def test_what_older_pytorch_raises_for_nccl_is_its_backend_giving_up(ruleset: Ruleset, said: str) -> None:
    found = told(ruleset, app=[(1790.0, said)])
    assert {"pytorch.distributed-exception"} <= {symptom.rule for symptom in found.symptoms}
    assert verdict(found) == ("unattributed/none", ())
