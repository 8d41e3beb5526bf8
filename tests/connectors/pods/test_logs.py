"""Logs of all containers and of what they wrote before a restart; what the kubelets no longer have is said."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from connectors.base import CollectionReport, CollectRequest, ConfigError, ConnectorError, Limits
from connectors.kube.sightings import MemorySightings, sighting_of
from connectors.pods.connector import PodsConnector
from engine.diagnose import diagnose
from engine.model import Attempt, Stream, Workload
from engine.ruleset import load_ruleset
from tests.connectors.kueue.cluster import NOW, pod
from tests.fakes.kubernetes import FakeKubernetes, Fault, Line

SECOND = 10**9
START = NOW + 2
ATTEMPT = Attempt(
    workload=Workload(id="research/pytorchjob-t5-1f0c2", name="t5", scheduler="kueue", cluster="k2"),
    state="Failed",
    started_at=NOW,
    ended_at=NOW + 700,
    nodes=("gpu-0", "gpu-1"),
    gpus_per_node=8,
)
REF = "research/pytorchjob-t5-1f0c2?uid=wl-t5&kind=PyTorchJob&api=kubeflow.org/v1&owner=t5&owner_uid=owner-t5"
Connect = Callable[..., PodsConnector]


@pytest.fixture
def cluster() -> Iterator[FakeKubernetes]:
    with FakeKubernetes() as kubernetes:
        yield kubernetes


@pytest.fixture
def connect(cluster: FakeKubernetes, tmp_path: Path) -> Connect:
    def make(**config: Any) -> PodsConnector:
        file = cluster.kubeconfig(tmp_path / "kubeconfig")
        made = PodsConnector.from_config({"name": "pods", "kubeconfig": file, **config})
        made.sightings = MemorySightings()
        return made

    return make


def lines(*texts: str, start: float = START, step: float = 1.0) -> list[Line]:
    return [Line(int(start * SECOND) + int(step * SECOND) * n + n, text) for n, text in enumerate(texts)]


def collected(
    connector: PodsConnector, attempt: Attempt = ATTEMPT, ref: str = REF, **request: Any
) -> tuple[dict[str, str], CollectionReport, list[Stream]]:
    with connector.collect(CollectRequest(attempt=attempt, ref=ref, **request)) as collection:
        streams = list(collection.streams())
        texts = {stream.name: stream.open().read().decode() for stream in streams}
        (report,) = collection.reports()
    return texts, report, streams


def texts_of(content: str) -> list[str]:
    return [line.split(" ", 3)[3] for line in content.splitlines()]


def test_every_pods_log_is_a_stream_of_its_node(cluster: FakeKubernetes, connect: Connect) -> None:
    for index in range(2):
        cluster.put(pod("t5", index, f"gpu-{index}", exit_code=1))
        cluster.write("research", f"t5-worker-{index}", "pytorch", lines(f"rank {index} starts", "loss 2.1"))
    texts, report, streams = collected(connect())
    assert list(texts) == ["applog/t5-worker-0.pytorch.log", "applog/t5-worker-1.pytorch.log"]
    assert [stream.node for stream in streams] == ["gpu-0", "gpu-1"]
    assert texts_of(texts["applog/t5-worker-1.pytorch.log"]) == ["rank 1 starts", "loss 2.1"]
    assert (report.source, report.status, report.note) == ("applog", "ok", "")
    assert (report.streams, report.lines) == (2, 4)
    assert report.bytes == sum(map(len, texts.values()))
    assert report.first_at is not None and report.first_at.startswith("2026-11-06T21:20:02")
    assert "log?container=pytorch" in report.query


def test_times_keep_their_nanoseconds_in_an_envelope_that_the_engine_knows(
    cluster: FakeKubernetes, connect: Connect
) -> None:
    cluster.put(pod("t5", 0, "gpu-0"))
    at = int(START) * SECOND + 123_456_789
    cluster.write("research", "t5-worker-0", "pytorch", [Line(at, "CUDA error: out of memory")])
    texts, _, _ = collected(connect())
    (content,) = texts.values()
    assert content == "2026-11-06T21:20:02.123456789Z stdout F CUDA error: out of memory\n"


def test_the_engine_reads_them(cluster: FakeKubernetes, connect: Connect) -> None:
    for index in range(2):
        cluster.put(pod("t5", index, f"gpu-{index}", exit_code=1))
    cluster.write("research", "t5-worker-0", "pytorch", lines("iteration 10 | loss 2.1"))
    trace = ["Traceback (most recent call last):", '  File "/app/train.py", line 12, in <module>', "    main()",
             "KeyError: 'input_ids'"]  # fmt: skip
    cluster.write("research", "t5-worker-1", "pytorch", lines("iteration 10 | loss 2.1", *trace))
    with connect().collect(CollectRequest(attempt=ATTEMPT, ref=REF)) as collection:
        diagnosis = diagnose(ATTEMPT, list(collection.streams()), load_ruleset())
    assert (diagnosis.domain, diagnosis.outcome) == ("software", "failed")
    assert diagnosis.root_cause is not None and "KeyError" in diagnosis.title


def test_init_containers_and_the_run_before_a_restart_are_read(cluster: FakeKubernetes, connect: Connect) -> None:
    item = pod("t5", 0, "gpu-0", exit_code=1, restarts=2)
    item["spec"]["initContainers"] = [{"name": "fetch"}, {"name": "istio-init"}]
    item["spec"]["containers"].append({"name": "istio-proxy"})
    cluster.put(item)
    cluster.write("research", "t5-worker-0", "fetch", lines("fetching data"))
    cluster.write("research", "t5-worker-0", "pytorch", lines("the first run dies"), previous=True)
    cluster.write("research", "t5-worker-0", "pytorch", lines("the second run"))
    cluster.write("research", "t5-worker-0", "istio-proxy", lines("noise"))
    texts, report, _ = collected(connect())
    assert {name.removeprefix("applog/t5-worker-0."): texts_of(text)[0] for name, text in texts.items()} == {
        "fetch.log": "fetching data",
        "pytorch.previous.log": "the first run dies",
        "pytorch.log": "the second run",
    }
    assert report.status == "ok"
    assert len(collected(connect(init_containers=False, previous=False))[0]) == 1
    assert list(collected(connect(containers="fetch"))[0]) == ["applog/t5-worker-0.fetch.log"]


def test_a_previous_log_that_was_removed_is_nothing_to_tell(cluster: FakeKubernetes, connect: Connect) -> None:
    cluster.put(pod("t5", 0, "gpu-0", restarts=1))
    cluster.write("research", "t5-worker-0", "pytorch", lines("hello"))
    texts, report, _ = collected(connect())
    assert list(texts) == ["applog/t5-worker-0.pytorch.log"]
    assert (report.status, report.note) == ("ok", "")


def test_of_a_log_longer_than_its_limit_the_beginning_and_the_end_are_read(
    cluster: FakeKubernetes, connect: Connect
) -> None:
    cluster.put(pod("t5", 0, "gpu-0", exit_code=1))
    cluster.write(
        "research", "t5-worker-0", "pytorch", lines(*(f"step {n:05} " + "x" * 40 for n in range(9000)), step=0.01)
    )
    texts, report, _ = collected(connect(container_bytes=100_000))
    (content,) = texts.values()
    got = [text.split()[1] for text in texts_of(content) if text.startswith("step ")]
    assert got[0] == "00000" and got[-1] == "08999"
    assert got == sorted(set(got))
    assert 80_000 < len(content) < 160_000
    assert report.status == "partial"
    assert "t5-worker-0/pytorch is longer than 100000 bytes: lines from" in report.note


def test_pods_that_are_gone_are_a_report_and_no_error(cluster: FakeKubernetes, connect: Connect) -> None:
    texts, report, _ = collected(connect())
    assert texts == {} and report.status == "missing"
    assert "no pod of research/pytorchjob-t5-1f0c2 is there any more" in report.note and "Loki" in report.note

    connector = connect()
    assert connector.sightings is not None
    connector.sightings.save([sighting_of(pod("t5", n, f"gpu-{n}"), time.time(), deleted=True) for n in range(2)])
    cluster.put(pod("t5", 0, "gpu-0", exit_code=1))
    cluster.write("research", "t5-worker-0", "pytorch", lines("hello"))
    texts, report, _ = collected(connector)
    assert len(texts) == 1 and report.status == "partial"
    assert "1 of 2 pods are gone (t5-worker-1)" in report.note


def test_a_pod_that_vanishes_while_it_is_read_is_a_report(cluster: FakeKubernetes, connect: Connect) -> None:
    for index in range(2):
        cluster.put(pod("t5", index, f"gpu-{index}", exit_code=1))
        cluster.write("research", f"t5-worker-{index}", "pytorch", lines("hello"))
    with connect().collect(CollectRequest(attempt=ATTEMPT, ref=REF)) as collection:
        streams = collection.streams()
        next(streams)
        cluster.delete(pod("t5", 1))
        assert list(streams) == []
        (report,) = collection.reports()
    assert "pod t5-worker-1 is gone" in report.note


def test_containers_that_never_started_are_told_of(cluster: FakeKubernetes, connect: Connect) -> None:
    cluster.put(pod("t5", 0, "gpu-0"))
    cluster.put(pod("t5", 1))
    _, report, _ = collected(connect())
    assert report.status == "missing"
    assert "is waiting to start: ContainerCreating" in report.note
    assert "does not have a host assigned" in report.note


def test_a_kubelet_that_is_down_names_the_node_and_the_others_are_read(
    cluster: FakeKubernetes, connect: Connect
) -> None:
    cluster.kubelets_down = {"gpu-1"}
    for index in range(3):
        cluster.put(pod("t5", index, f"gpu-{index}"))
        cluster.write("research", f"t5-worker-{index}", "pytorch", lines("hello"))
    texts, report, _ = collected(connect())
    assert len(texts) == 2 and report.status == "partial"
    assert "the kubelet of gpu-1 does not give the log of t5-worker-1/pytorch" in report.note
    assert "no route to host" in report.note


def test_a_kubelet_that_has_removed_a_log_says_so_in_the_log(cluster: FakeKubernetes, connect: Connect) -> None:
    cluster.put(pod("t5", 0, "gpu-0", exit_code=1))
    cluster.write("research", "t5-worker-0", "pytorch", [Line(int(START * SECOND), "x")])
    said = b"unable to retrieve container logs for containerd://5f0c"
    cluster._log = lambda *_: iter([said])  # type: ignore[method-assign]
    texts, report, _ = collected(connect())
    assert texts == {} and report.status == "missing"
    assert "the kubelet has no log of t5-worker-0/pytorch any more" in report.note


def test_a_rotated_log_is_told_of(cluster: FakeKubernetes, connect: Connect) -> None:
    cluster.put(pod("t5", 0, "gpu-0", exit_code=1))
    log = cluster.write("research", "t5-worker-0", "pytorch", lines("long ago"))
    log.rotate()
    late = lines(*["y" * 1000] * 1100, start=START + 300, step=0.01)
    cluster.write("research", "t5-worker-0", "pytorch", late)
    _, report, _ = collected(connect())
    assert report.status == "partial"
    assert "begins 5 min after the container: it was probably rotated" in report.note


def test_a_running_attempt_is_followed_for_a_while_and_no_longer(cluster: FakeKubernetes, connect: Connect) -> None:
    now = time.time()
    cluster.put(pod("t5", 0, "gpu-0", created=now - 30))
    cluster.write("research", "t5-worker-0", "pytorch", lines("step 1", start=now - 20), ended=False)

    def write_on() -> None:
        for number in range(2, 6):
            time.sleep(0.3)
            cluster.write("research", "t5-worker-0", "pytorch", lines(f"step {number}", start=time.time()), ended=False)

    writer = threading.Thread(target=write_on)
    live = Attempt(workload=ATTEMPT.workload, state="Running", started_at=now - 31)
    began = time.monotonic()
    writer.start()
    texts, report, _ = collected(connect(follow_seconds=3), live)
    writer.join()
    assert texts_of(texts["applog/t5-worker-0.pytorch.log"]) == [f"step {n}" for n in range(1, 6)]
    assert time.monotonic() - began < 8
    assert report.status == "ok"
    again = time.monotonic()
    assert len(texts_of(collected(connect(follow_seconds=0), live)[0]["applog/t5-worker-0.pytorch.log"])) == 5
    assert time.monotonic() - again < 2


def test_pods_of_a_later_admission_are_left_out(cluster: FakeKubernetes, connect: Connect) -> None:
    cluster.put(pod("t5", 0, "gpu-0", exit_code=1))
    cluster.put(pod("t5", 1, "gpu-9", created=NOW + 5000))
    for index in range(2):
        cluster.write("research", f"t5-worker-{index}", "pytorch", lines("hello"))
    texts, _, _ = collected(connect())
    assert list(texts) == ["applog/t5-worker-0.pytorch.log"]


def test_without_kueues_handle_pods_are_found_by_the_jobs_name(cluster: FakeKubernetes, connect: Connect) -> None:
    cluster.put(pod("t5", 0, "gpu-0", exit_code=1))
    cluster.write("research", "t5-worker-0", "pytorch", lines("hello"))
    texts, _, _ = collected(connect(), ref="research/t5")
    assert list(texts) == ["applog/t5-worker-0.pytorch.log"]


# --- what can go wrong ------------------------------------------------------------------------------------------------


def test_logs_that_may_not_be_read_say_which_right_lacks(cluster: FakeKubernetes, connect: Connect) -> None:
    cluster.denied = {("get", "pods/log")}
    for index in range(50):
        cluster.put(pod("t5", index, f"gpu-{index}"))
        cluster.write("research", f"t5-worker-{index}", "pytorch", lines("hello"))
    texts, report, _ = collected(connect())
    assert texts == {} and report.status == "error"
    assert 'cannot get resource "pods/log"' in report.note
    assert len(cluster.requests) < 6


def test_a_cluster_that_is_down_is_tried_again_later(tmp_path: Path) -> None:
    with FakeKubernetes() as cluster:
        file = cluster.kubeconfig(tmp_path / "kubeconfig")
    with pytest.raises(ConnectorError, match="refuses connections") as caught:
        collected(PodsConnector.from_config({"kubeconfig": file}))
    assert caught.value.temporary


def test_a_log_that_does_not_come_is_not_waited_for(cluster: FakeKubernetes, connect: Connect) -> None:
    for index in range(3):
        cluster.put(pod("t5", index, f"gpu-{index}"))
        cluster.write("research", f"t5-worker-{index}", "pytorch", lines("hello"))
    cluster.faults.extend([Fault(0), Fault(0, seconds=15)])
    began = time.monotonic()
    texts, report, _ = collected(connect(log_seconds=1))
    assert time.monotonic() - began < 6
    assert len(texts) == 2 and report.status == "partial"
    assert "did not answer within 1 s" in report.note


def test_limits_give_a_partial_report(cluster: FakeKubernetes, connect: Connect) -> None:
    for index in range(4):
        cluster.put(pod("t5", index, f"gpu-{index}"))
        cluster.write("research", f"t5-worker-{index}", "pytorch", lines("hello"))
    texts, report, _ = collected(connect(), limits=Limits(streams=3))
    assert len(texts) == 3
    assert report.status == "partial" and "1 logs are left out for the limit of 3 streams" in report.note


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"color": "red"}, "unknown key 'color'"),
        ({"containers": "("}, "containers: no regular expression"),
        ({"follow_seconds": -1}, "follow_seconds: must be a number from 0"),
        ({"previous": 1}, "previous: must be true or false"),
    ],
)
def test_configuration_is_checked_when_it_is_read(config: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        PodsConnector.from_config({"name": "pods", **config})


def test_check_reads_one_line_of_one_log(cluster: FakeKubernetes, connect: Connect) -> None:
    assert connect().check().status == "empty"
    cluster.put(pod("t5", 0, "gpu-0"))
    cluster.write("research", "t5-worker-0", "pytorch", lines("hello"))
    assert (connect().check().status, connect().check().note) == ("ok", "")
    cluster.denied = {("get", "pods/log")}
    report = connect().check()
    assert report.status == "error" and 'cannot get resource "pods/log"' in report.note
