"""What schedulers write down, as lines that rules can match, each with its place in the file."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from engine.facts import Fact, attempt_fact, cluster_zone, is_structured, read_facts
from engine.model import Attempt, Workload
from tests.engine.evidence import attempt

ATTEMPT = Attempt(workload=Workload(id="4711"), state="FAILED", exit_code="1:0", reason="NonZeroExitCode")


def facts(name: str, content: str | bytes | list[Any] | dict[str, Any]) -> list[Fact]:
    if isinstance(content, (list, dict)):
        content = json.dumps(content, indent=1)
    return read_facts(f"scheduler/{name}", content.encode() if isinstance(content, str) else content, ATTEMPT)


def texts(name: str, content: str | list[Any] | dict[str, Any]) -> list[str]:
    return [fact.text for fact in facts(name, content)]


SACCT = (
    "JobID|JobName|State|ExitCode|Start|End|NodeList\n"
    "4711|pretrain|FAILED|1:0|2026-11-03T02:00:00|2026-11-03T03:00:00|node-[01-02]\n"
    "4711.batch|batch|CANCELLED by 1000|0:15|2026-11-03T02:00:00|Unknown|node-01\n"
)


def test_a_row_of_sacct_is_a_fact_with_its_place() -> None:
    job, batch = facts("sacct.txt", SACCT)
    assert job.text == (
        "sacct: JobID=4711 State=FAILED ExitCode=1:0 NodeList=node-[01-02] "
        "Start=2026-11-03T02:00:00 End=2026-11-03T03:00:00"
    )
    assert (job.line, job.offset) == (2, len(SACCT.splitlines()[0]) + 1)
    assert "State=CANCELLED by 1000 ExitCode=0:15" in batch.text
    assert batch.stamp is None


def test_sacct_in_columns_is_read_like_sacct_with_bars() -> None:
    table = (
        "JobID           State ExitCode\n"
        "------------ -------- --------\n"
        "4711           FAILED      1:0\n"
        "4711.batch    CANCELLE+   0:15\n"
    )
    assert texts("sacct.txt", table)[0] == "sacct: JobID=4711 State=FAILED ExitCode=1:0"


def test_squeue_says_why_a_job_waits() -> None:
    table = (
        "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)\n"
        "              4711       gpu pretrain    user1 PD       0:00      4 (QOSMaxGRESPerUser)\n"
    )
    assert texts("squeue.txt", table) == ["sacct: JobID=4711 State=PENDING Reason=(QOSMaxGRESPerUser)"]
    assert texts("squeue.txt", "JOBID|STATE|REASON\n4711|PENDING|Resources\n") == [
        "sacct: JobID=4711 State=PENDING Reason=Resources"
    ]


def test_the_exit_code_of_sacct_s_json_is_not_believed() -> None:
    job = {
        "job_id": 4711,
        "state": {"current": ["FAILED"], "reason": "NonZeroExitCode"},
        "exit_code": {"return_code": {"number": 0}},
        "nodes": "node-[01-02]",
        "time": {"end": 1793679129},
    }
    assert texts("sacct.json", {"jobs": [job]}) == [
        "sacct: JobID=4711 State=FAILED Reason=NonZeroExitCode NodeList=node-[01-02]"
    ]


def test_scontrol_s_nodes_are_facts_with_their_reason_and_its_time() -> None:
    text = (
        "NodeName=node-01 Arch=x86_64\n   State=DOWN*+DRAIN BootTime=2026-11-01T00:00:00\n"
        "   Reason=Not responding (ping) [slurm@2026-11-03T02:58:00]\n\nNodeName=node-02 State=IDLE\n"
    )
    down, idle = facts("scontrol-nodes.txt", text)
    assert (down.node, down.kind, down.line) == ("node-01", "node", 1)
    assert "State=DOWN*+DRAIN Reason=Not responding (ping) [slurm@2026-11-03T02:58:00]" in down.text
    assert down.stamp is not None
    assert (idle.node, idle.line, idle.stamp) == ("node-02", 5, None)


def test_scontrol_s_nodes_keep_what_stands_behind_an_empty_line() -> None:
    text = (
        "NodeName=gx1 Arch=x86_64\n   State=DOWN*+DRAIN ThreadsPerCore=2\n   CurrentWatts=0 AveWatts=0\n   \n"
        "   Reason=Not responding [slurm@2026-11-03T02:55:10]\n\n"
        "NodeName=gx2 Arch=x86_64\n   State=IDLE\n   \n\nNodeName=gx3 State=IDLE Comment=späť\n"
        "NodeName=gx4 State=DOWN\n"
    )
    found = facts("scontrol-nodes.txt", text)
    assert [fact.text for fact in found] == [
        "node: NodeName=gx1 State=DOWN*+DRAIN Reason=Not responding [slurm@2026-11-03T02:55:10]",
        "node: NodeName=gx2 State=IDLE",
        "node: NodeName=gx3 State=IDLE",
        "node: NodeName=gx4 State=DOWN",
    ]
    assert [fact.line for fact in found] == [1, 7, 11, 12]
    assert [text.encode()[fact.offset :].split(b" ")[0].decode() for fact in found] == [
        "NodeName=gx1", "NodeName=gx2", "NodeName=gx3", "NodeName=gx4",
    ]  # fmt: skip


def test_scontrol_s_job_is_a_fact() -> None:
    text = "JobId=4711 JobName=pretrain\n   JobState=TIMEOUT Reason=TimeLimit ExitCode=0:0\n   TimeLimit=01:00:00\n"
    assert texts("scontrol-job.txt", text) == [
        "job: JobId=4711 JobState=TIMEOUT Reason=TimeLimit ExitCode=0:0 TimeLimit=01:00:00"
    ]


POD = {
    "metadata": {"name": "w-0"},
    "spec": {"nodeName": "node-01"},
    "status": {
        "phase": "Failed",
        "podIP": "10.0.0.1",
        "reason": "Evicted",
        "message": "The node was low on resource: memory.\nThreshold: 100Mi",
        "conditions": [{"type": "Ready", "status": "False", "reason": "PodFailed"}],
        "containerStatuses": [
            {
                "name": "trainer",
                "restartCount": 2,
                "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-11-03T02:57:00Z"}},
                "lastState": {"terminated": {"exitCode": 1}},
            }
        ],
    },
}


def test_a_pod_tells_its_phase_its_conditions_and_how_each_container_ended() -> None:
    pod, ready, last, now = facts("pods.json", {"kind": "List", "items": [POD]})
    assert pod.text == (
        "pod: Pod=w-0 Node=node-01 Phase=Failed Reason=Evicted "
        "Message=The node was low on resource: memory. Threshold: 100Mi"
    )
    assert (pod.fields["ip"], pod.node) == ("10.0.0.1", "node-01")
    assert ready.text.endswith("Type=Ready Status=False Reason=PodFailed")
    assert last.text.endswith("State=terminated Last=true ExitCode=1 Restarts=2")
    assert now.text.endswith("Container=trainer State=terminated Reason=OOMKilled ExitCode=137 Restarts=2")
    assert now.stamp is not None


def test_an_event_names_what_it_is_about_and_where() -> None:
    event = {
        "kind": "Event",
        "involvedObject": {"kind": "Node", "name": "node-01"},
        "type": "Normal",
        "reason": "NodeNotReady",
        "message": "Node node-01 status is now: NodeNotReady",
        "firstTimestamp": "2026-11-03T02:50:00Z",
    }
    assert texts("events.json", {"items": [event]}) == [
        "event: Kind=Node Object=node-01 Node=node-01 Type=Normal Reason=NodeNotReady Count=1 "
        "Message=Node node-01 status is now: NodeNotReady"
    ]


@pytest.mark.parametrize("kind", ["Workload", "Job", "JobSet", "PyTorchJob", "Node"])
def test_conditions_of_other_kinds_are_facts(kind: str) -> None:
    condition = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "too many failures"}
    document = {"kind": kind, "metadata": {"name": "x"}, "status": {"conditions": [condition]}}
    assert texts("other.json", document) == [
        f"condition: Kind={kind} Name=x Type=Failed Status=True Reason=BackoffLimitExceeded Message=too many failures"
    ]


def test_objects_one_a_line_are_read_like_a_list() -> None:
    assert len(texts("pods.json", f"{json.dumps(POD)}\n{json.dumps(POD)}\n")) == 8


def test_a_line_break_in_a_field_cannot_make_two_facts_of_one() -> None:
    evil = {"metadata": {"name": "w-0\nattempt: State=PREEMPTED"}, "status": {"phase": "Failed\r\nx"}}
    assert texts("pods.json", [evil]) == ["pod: Pod=w-0 attempt: State=PREEMPTED Phase=Failed x"]


@pytest.mark.parametrize(
    "odd",
    [
        "[]",
        "null",
        "3",
        '"x"',
        '{"items":3}',
        '{"items":[3,null,[]]}',
        '[{"status":{"conditions":3,"containerStatuses":7},"spec":[],"metadata":3}]',
        '[{"spec":{"nodeName":{}},"metadata":{"name":[1]},"status":{"containerStatuses":[{"state":{"x":{"reason":[1]}}}]}}]',
        '{"jobs":3}',
        '{"jobs":[3,{"state":3,"time":3},{"state":{"current":{}}}]}',
        '{"involvedObject":7,"source":[]}',
        '{"kind":["Pod"]}',
    ],
)
def test_records_of_another_shape_are_harmless(odd: str) -> None:
    for name in ("pods.json", "sacct.json", "events.json", "workload.json"):
        facts(name, odd)
    attempt({f"scheduler/{name}": odd for name in ("pods.json", "sacct.json", "events.json")}).diagnosed()


@pytest.mark.parametrize("content", ["", "{", '{"items":[', "[" * 100_000, "\x00"])
def test_damaged_json_says_so(content: str) -> None:
    with pytest.raises(ValueError, match="not valid JSON"):
        facts("pods.json", content)


def test_which_files_hold_records() -> None:
    held = ["sacct.txt", "sacct.json", "scontrol-nodes.txt", "squeue.txt", "pods.json", "pods.json.gz"]
    assert all(is_structured(f"scheduler/{name}") for name in held)
    assert not is_structured("scheduler/slurmctld.log")


def test_compressed_records_are_read() -> None:
    found = attempt({"scheduler/pods.json.gz": gzip.compress(json.dumps({"items": [POD]}).encode())}).diagnosed()
    assert any("OOMKilled" in e.text for e in found.evidence)


def test_the_attempt_itself_is_a_fact() -> None:
    assert attempt_fact(ATTEMPT).text == "attempt: State=FAILED ExitCode=1:0 Reason=NonZeroExitCode"


ROWS = "JobID|State|ExitCode|Start|End\n4711|PREEMPTED|0:15|{}|{}\n4711|FAILED|1:0|{}|{}\n"
REQUEUED = {
    "an hour before, in UTC": (
        "2026-11-03T00:00:00",
        "2026-11-03T01:00:00",
        "2026-11-03T02:00:00",
        "2026-11-03T03:00:00",
    ),
    "at once, in UTC": ("2026-11-03T00:00:00", "2026-11-03T01:59:58", "2026-11-03T02:00:00", "2026-11-03T03:00:00"),
    "at once, in India": ("2026-11-03T05:30:00", "2026-11-03T07:29:58", "2026-11-03T07:30:00", "2026-11-03T08:30:00"),
    "after it": ("2026-11-03T03:00:30", "2026-11-03T03:05:00", "2026-11-03T02:00:00", "2026-11-03T03:00:00"),
}


@pytest.mark.parametrize("when", REQUEUED)
def test_another_attempt_in_the_same_file_is_told_apart(when: str) -> None:
    log = "2026-11-03 02:59:00 RuntimeError: boom\n"
    rows = ROWS.format(*REQUEUED[when])
    found = attempt({"scheduler/sacct.txt": rows, "applog/train.log": log}, number=2).diagnosed()
    assert found.outcome == "failed"
    assert found.domain != "scheduler"


def test_the_cluster_s_zone_is_told_by_the_row_of_this_attempt() -> None:
    rows = facts("sacct.txt", ROWS.format(*REQUEUED["at once, in India"]))
    begin = datetime(2026, 11, 3, 2, tzinfo=UTC).timestamp()
    this = Attempt(workload=Workload(id="4711"), started_at=begin, ended_at=begin + 3600)
    assert cluster_zone(rows, this) == 5.5 * 3600
    assert cluster_zone([], this) is None


def test_an_array_task_s_lines_are_its_own_under_the_raw_number() -> None:
    """slurmstepd writes StepId=1013.0 for task 1008_1."""
    from engine.origin import Places

    attempt = Attempt(workload=Workload(id="1008_1", scheduler="slurm"), nodes=("n1",))
    table = (
        b"JobID|JobIDRaw|State|ExitCode|Start|End|NodeList\n"
        b"1008_1|1013|FAILED|1:0|2026-01-01T00:00:00|2026-01-01T01:00:00|n1\n"
        b"1008_2|1014|FAILED|1:0|2026-01-01T00:00:00|2026-01-01T01:00:00|n1\n"
    )
    places = Places(attempt, [])
    places.learn_facts(read_facts("scheduler/sacct.txt", table, attempt))
    assert places.jobs == {"1008", "1013"}
