"""What becomes of the words of schedulers, networks and storage in a whole attempt: who is blamed, and who never is."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from engine.diagnose import diagnose
from engine.model import Attempt, Diagnosis, Source, Stream, Workload
from engine.ruleset import Ruleset, load_ruleset

START = datetime(2026, 11, 3, 4, 0, tzinfo=UTC).timestamp()
NODES = ("node-01", "node-02", "node-03", "node-04")
Lines = Sequence[tuple[float, str]]

WATCHDOG = [
    (
        1802.0,
        "[rank1]: [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1201, OpType=ALLREDUCE, "
        "NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600030 milliseconds before timing out.",
    )
]
KEY_ERROR = [
    (1500.0, "Traceback (most recent call last):"),
    (1500.0, '  File "/opt/app/train.py", line 10, in <module>'),
    (1500.0, "    row['label']"),
    (1500.0, "KeyError: 'label'"),
]
NFS_HANGS = (1205.0, "nfs: server fs01 not responding, still trying")


@pytest.fixture(scope="module")
def ruleset() -> Ruleset:
    return load_ruleset()


def iso(at: float) -> str:
    return datetime.fromtimestamp(START + at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def steps(until: float) -> list[tuple[float, str]]:
    return [(float(at), f"step {at // 10} loss 2.31 tokens/s 12000") for at in range(10, int(until), 10)]


def stream(name: str, source: Source, text: str, node: str | None = None, rank: int | None = None) -> Stream:
    content = text.encode()
    return Stream(name=name, source=source, open=lambda: io.BytesIO(content), size=len(content), node=node, rank=rank)


def told(
    ruleset: Ruleset,
    *,
    app: Lines = (),
    syslog: dict[str, Lines] | None = None,
    slurmctld: Lines = (),
    files: dict[str, Any] | None = None,
    progress: float = 1200,
    state: str = "FAILED",
    reason: str | None = None,
    end: float = 1830,
) -> Diagnosis:
    """Diagnose an attempt of four nodes: rank 0 prints `app` and its steps, the rest is as given."""
    lines = sorted([*steps(progress), *app], key=lambda line: line[0])
    streams = [stream("applog/train.log", Source.APPLOG, "".join(f"{iso(at)} {text}\n" for at, text in lines))]
    for node, kernel in (syslog or {}).items():
        text = "".join(f"{iso(at)} {node} kernel: {line}\n" for at, line in kernel)
        streams.append(stream(f"syslog/{node}.log", Source.SYSLOG, text, node))
    if slurmctld:
        text = "".join(f"[{iso(at)[:-1]}.000] {line}\n" for at, line in slurmctld)
        streams.append(stream("scheduler/slurmctld.log", Source.SCHEDULER, text))
    for name, content in (files or {}).items():
        text = content if isinstance(content, str) else json.dumps(content)
        streams.append(stream(f"scheduler/{name}", Source.SCHEDULER, text))
    attempt = Attempt(
        workload=Workload(id="4711"),
        state=state,
        reason=reason,
        started_at=START,
        ended_at=START + end,
        nodes=NODES,
        gpus_per_node=1,
    )
    return diagnose(attempt, streams, ruleset)


def verdict(found: Diagnosis) -> tuple[str, tuple[str, ...]]:
    return f"{found.domain}/{found.sub_domain}", found.root_cause.nodes if found.root_cause else ()


def event(kind: str, name: str, reason: str, message: str, at: float) -> dict[str, Any]:
    return {
        "kind": "Event",
        "metadata": {"name": f"{name}.{reason}.{at}"},
        "involvedObject": {"kind": kind, "name": name},
        "type": "Warning",
        "reason": reason,
        "message": message,
        "firstTimestamp": iso(at),
        "lastTimestamp": iso(at),
    }


def pod(name: str, node: str, **status: Any) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"nodeName": node},
        "status": {"phase": "Failed", **status},
    }


def ended(code: int, reason: str, at: float, message: str = "") -> dict[str, Any]:
    state = {"exitCode": code, "reason": reason, "finishedAt": iso(at), "message": message}
    return {"containerStatuses": [{"name": "main", "restartCount": 0, "state": {"terminated": state}}]}


def items(*objects: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "List", "items": list(objects)}


# --- Slurm


def test_the_node_that_slurm_lost_is_blamed_and_not_the_one_that_reports_it(ruleset: Ruleset) -> None:
    notice = "slurmstepd: error: *** STEP 4711.0 ON node-01 CANCELLED AT 2026-11-03T04:25:11 DUE TO NODE FAILURE, SEE"
    found = told(
        ruleset,
        app=[(1510, "srun: error: Node failure on node-03"), (1511, f"{notice} SLURMCTLD LOG FOR DETAILS ***")],
        slurmctld=[
            (1400, "error: Nodes node-03 not responding"),
            (1509, "error: Nodes node-03 not responding, setting DOWN"),
            (1509, "Killing JobId=4711 on failed node node-03"),
        ],
        state="NODE_FAIL",
        end=1512,
    )
    assert verdict(found) == ("scheduler/node_failure", ("node-03",))


def test_what_slurm_says_of_other_jobs_and_nodes_explains_nothing(ruleset: Ruleset) -> None:
    found = told(
        ruleset,
        app=KEY_ERROR,
        slurmctld=[
            (1300, "error: Nodes gpu-x1 not responding, setting DOWN"),
            (1301, "error: Nodes gpu-x[2-4] not responding, setting DOWN"),
            (1400, "Killing JobId=99 on failed node gpu-x1"),
            (1420, "error: Nodes node-03 not responding"),
            (1430, "Time limit exhausted for JobId=4799"),
            (1450, "_slurm_rpc_kill_job: REQUEST_KILL_JOB JobId=4710 uid 1000"),
            (1460, "preempted JobId=4801 has been requeued to reclaim resources for JobId=4711"),
        ],
        files={
            "sacct.txt": "JobID|JobName|State|ExitCode|Start|End|NodeList|Reason\n"
            "4710|x|TIMEOUT|0:0|2026-11-03T04:00:00|2026-11-03T04:25:00|node-[01-04]|TimeLimit\n"
            "4711|x|FAILED|1:0|2026-11-03T04:00:00|2026-11-03T04:25:10|node-[01-04]|None\n"
            "4711.0|x|CANCELLED|0:9|2026-11-03T04:00:00|2026-11-03T04:25:10|node-[01-04]|\n"
        },
        progress=1490,
        end=1510,
    )
    assert found.domain == "software"
    assert verdict(found)[1] == ()


def test_a_time_limit_is_the_cause_only_when_the_job_still_worked(ruleset: Ruleset) -> None:
    said = "slurmstepd: error: *** JOB 4711 ON node-01 CANCELLED AT 2026-11-03T04:30:01 DUE TO TIME LIMIT ***"
    limit = [(1801.0, said)]
    busy = told(ruleset, app=limit, progress=1790, state="TIMEOUT")
    stuck = told(ruleset, app=limit, syslog={n: [(605, NFS_HANGS[1])] for n in NODES}, progress=600, state="TIMEOUT")
    assert verdict(busy) == ("scheduler/time_limit", ())
    assert verdict(stuck) == ("storage/shared_filesystem", ())


def test_preemption_explains_the_errors_that_follow_it(ruleset: Ruleset) -> None:
    broken = [
        (1502.0, f"[rank{r}]: torch.distributed.DistBackendError: NCCL error: remote process exited") for r in (0, 1)
    ]
    found = told(
        ruleset,
        app=broken,
        slurmctld=[(1499, "preempted JobId=4711 has been requeued to reclaim resources for JobId=5000")],
        progress=1490,
        state="PREEMPTED",
        end=1530,
    )
    assert verdict(found) == ("scheduler/preemption", ())
    assert found.outcome == "preempted"


def test_a_step_that_srun_takes_down_was_cancelled_by_nobody(ruleset: Ruleset) -> None:
    app = [
        *KEY_ERROR,
        (1501.0, "srun: error: node-01: task 0: Exited with exit code 1"),
        (1501.0, "srun: Terminating StepId=4711.0"),
        (1502.0, "slurmstepd: error: *** STEP 4711.0 ON node-02 CANCELLED AT 2026-11-03T04:25:02 ***"),
        (1503.0, "srun: error: node-02: tasks 1-3: Terminated"),
    ]
    found = told(ruleset, app=app, progress=1490, end=1510)
    assert found.domain == "software"
    assert {"slurm.task-exit", "slurm.step-cancelled"} <= {symptom.rule for symptom in found.symptoms}


def test_memory_of_the_job_blames_no_node(ruleset: Ruleset) -> None:
    oom = "slurmstepd: error: Detected 1 oom_kill event in StepId=4711.0. Some of the step tasks have been OOM Killed."
    app = [(1500.0, oom), (1500.0, "srun: error: node-02: task 1: Out Of Memory")]
    assert verdict(told(ruleset, app=app, state="OUT_OF_MEMORY", end=1503)) == ("software/host_oom", ())


def test_exit_code_137_alone_proves_nothing(ruleset: Ruleset) -> None:
    pods = items(pod("t-1", "node-02", **ended(137, "Error", 1500)))
    assert verdict(told(ruleset, files={"pods.json": pods}, state="Failed")) == ("unattributed/none", ())


def test_the_node_whose_prolog_failed_is_blamed_and_not_the_node_of_srun(ruleset: Ruleset) -> None:
    app = [
        (12.0, "srun: error: Task launch for StepId=4711.0 failed on node node-02: Job prolog failed"),
        (12.0, "srun: error: Application launch failed: Job prolog failed"),
        (12.0, "srun: Job step aborted: Waiting up to 32 seconds for job step to finish."),
    ]
    assert verdict(told(ruleset, app=app, progress=0, end=15)) == ("scheduler/launch", ("node-02",))


# --- Kubernetes


@pytest.mark.parametrize(
    ("expected", "nodes", "progress", "files"),
    [
        ("software/host_oom", (), 1200, {"pods.json": items(pod("t-1", "node-02", **ended(137, "OOMKilled", 1500)))}),
        (
            "scheduler/eviction",
            (),
            1200,
            {
                "pods.json": items(
                    pod("t-1", "node-02", reason="Evicted", message="The node was low on resource: memory.")
                )
            },
        ),
        (
            "scheduler/node_failure",
            ("node-03",),
            1200,
            {
                "events.json": items(
                    event("Node", "node-03", "NodeNotReady", "Node node-03 status is now: NodeNotReady", 1245),
                    event("Pod", "t-2", "NodeNotReady", "Node is not ready", 1245),
                    event("Pod", "t-2", "TaintManagerEviction", "Marking for deletion Pod ml/t-2", 1550),
                )
            },
        ),
        (
            "software/configuration",
            (),
            0,
            {
                "events.json": items(
                    event("Pod", "t-0", "Failed", 'Failed to pull image "r/x:9": NotFound desc = r/x:9: not found', 20),
                    event("Pod", "t-0", "Failed", "Error: ErrImagePull", 20),
                )
            },
        ),
        (
            "scheduler/quota",
            (),
            0,
            {
                "events.json": items(
                    event(
                        "Job",
                        "t",
                        "FailedCreate",
                        'pods "t-x" is forbidden: exceeded quota: gpu-quota, requested: 8',
                        9,
                    )
                )
            },
        ),
    ],
)
def test_kubernetes_says_it_in_pods_and_events(
    ruleset: Ruleset, expected: str, nodes: tuple[str, ...], progress: float, files: dict[str, Any]
) -> None:
    assert verdict(told(ruleset, files=files, progress=progress, state="Failed")) == (expected, nodes)


def test_a_driver_mismatch_blames_the_node_whose_container_did_not_start(ruleset: Ruleset) -> None:
    message = (
        "error running hook: nvidia-container-cli: initialization error: nvml error: driver/library version mismatch"
    )
    pods = items(
        pod("t-0", "node-01", **ended(1, "Error", 900)), pod("t-2", "node-03", **ended(128, "StartError", 4, message))
    )
    found = told(ruleset, files={"pods.json": pods}, progress=0, state="Failed", reason="BackoffLimitExceeded", end=910)
    assert verdict(found) == ("platform/driver", ("node-03",))


def test_kueue_took_the_quota_back(ruleset: Ruleset) -> None:
    said = "Preempted to accommodate a workload (UID: a, JobUID: b) due to reclamation within the cohort"
    conditions = [
        {"type": "Evicted", "status": "True", "reason": "Preempted", "message": said, "lastTransitionTime": iso(1500)},
        {
            "type": "QuotaReserved",
            "status": "False",
            "reason": "Pending",
            "message": said,
            "lastTransitionTime": iso(1505),
        },
    ]
    workload = {"kind": "Workload", "metadata": {"name": "w"}, "status": {"conditions": conditions}}
    files = {"workload.json": workload, "pods.json": items(pod("t-0", "node-01", **ended(143, "Error", 1503)))}
    found = told(ruleset, files=files, progress=1490, state="Evicted/Preempted", end=1510)
    assert verdict(found) == ("scheduler/preemption", ())


def test_troubles_of_the_start_that_passed_are_not_the_cause(ruleset: Ruleset) -> None:
    events = items(
        event("Pod", "t-0", "FailedScheduling", "0/12 nodes are available: 12 Insufficient nvidia.com/gpu.", -60),
        event("Pod", "t-1", "FailedMount", 'MountVolume.SetUp failed for volume "data" : timed out', 10),
        event("Pod", "t-0", "Failed", 'Failed to pull image "r/x:1": dial tcp 10.0.0.1:443: i/o timeout', 12),
        event("Pod", "coredns-1", "Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 503", 14),
    )
    found = told(ruleset, app=KEY_ERROR, files={"events.json": events}, progress=0, state="Failed", end=1510)
    assert found.domain == "software"


# --- network and storage


@pytest.mark.parametrize(
    ("expected", "lines"),
    [
        ("network/infiniband", ["mlx5_core 0000:9b:00.0: Port module event: module 4, Cable unplugged"]),
        ("network/infiniband", ["mlx5_core 0000:5c:00.0 ibp92s0: Link down"]),
        ("network/roce", ["mlx5_core 0000:5c:00.0 ens5f0np0: Link down"]),
        ("network/ethernet", ["bond0: now running without any active interface!"]),
        (
            "hardware/nic",
            [
                "mlx5_core 0000:9a:00.0: poll_health:827:(pid 0): device's health compromised - reached miss count",
                "mlx5_core 0000:9a:00.0 ibp92s0: Link down",
            ],
        ),
        (
            "storage/shared_filesystem",
            ["LustreError: 167-0: s-OST0007-osc-ffff: This client was evicted by s-OST0007; in progress operations"],
        ),
        (
            "storage/shared_filesystem",
            ["mmfs: [E] Lost membership in cluster gpfs01.cluster. Unmounting."],
        ),
        (
            "storage/local_disk",
            [
                "blk_update_request: I/O error, dev nvme1n1, sector 811234 op 0x1:(WRITE) flags 0x800 phys_seg 1",
                "EXT4-fs error (device nvme1n1p1): ext4_journal_check_start:83: comm python3: Detected aborted journal",
                "EXT4-fs (nvme1n1p1): Remounting filesystem read-only",
            ],
        ),
    ],
)
def test_the_node_with_the_broken_link_or_disk_is_blamed(ruleset: Ruleset, expected: str, lines: list[str]) -> None:
    found = told(ruleset, app=WATCHDOG, syslog={"node-02": [(1203 + i / 10, line) for i, line in enumerate(lines)]})
    assert verdict(found) == (expected, ("node-02",))


def test_when_every_node_lost_its_link_no_node_is_blamed(ruleset: Ruleset) -> None:
    down = {node: [(1203 + i, "mlx5_core 0000:5c:00.0 ibp92s0: Link down")] for i, node in enumerate(NODES)}
    assert verdict(told(ruleset, app=WATCHDOG, syslog=down)) == ("network/infiniband", ())


def test_a_server_that_answers_no_client_blames_no_node(ruleset: Ruleset) -> None:
    found = told(ruleset, app=WATCHDOG, syslog={node: [NFS_HANGS] for node in NODES})
    assert verdict(found) == ("storage/shared_filesystem", ())


@pytest.mark.parametrize(
    ("down", "up"),
    [
        ("mlx5_core 0000:5c:00.0 ens5f0np0: Link down", "mlx5_core 0000:5c:00.0 ens5f0np0: Link up"),
        ("mlx5_core 0000:9b:00.0: Port module event: module 4, Cable unplugged",
         "mlx5_core 0000:9b:00.0: Port module event: module 4, Cable plugged"),
        (NFS_HANGS[1], "nfs: server fs01 OK"),
    ],
)  # fmt: skip
def test_a_condition_that_ended_by_itself_is_not_the_cause(ruleset: Ruleset, down: str, up: str) -> None:
    found = told(ruleset, app=KEY_ERROR, syslog={"node-02": [(1440, down), (1444, up)]}, progress=1490, end=1510)
    assert found.domain == "software"
    assert verdict(found)[1] == ()


def test_two_faults_on_two_nodes_at_once_are_left_undecided(ruleset: Ruleset) -> None:
    found = told(
        ruleset,
        app=WATCHDOG,
        syslog={
            "node-02": [(1203, "mlx5_core 0000:5c:00.0 ibp92s0: Link down")],
            "node-04": [(1205, "blk_update_request: I/O error, dev nvme1n1, sector 811234 op 0x1:(WRITE) flags 0x800")],
        },
    )
    assert verdict(found) == ("unattributed/ambiguous", ())
