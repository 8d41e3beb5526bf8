"""What Kubernetes tells of an attempt becomes files that the engine reads; what it can't tell is said in the report."""

from __future__ import annotations

import json
import ssl
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from connectors.base import CollectionReport, CollectRequest, ConfigError, ConnectorError, FoundAttempt, Limits
from connectors.kube.sightings import MemorySightings
from connectors.kueue.connector import KueueConnector
from engine.diagnose import diagnose
from engine.facts import read_facts
from engine.model import Attempt, Stream, Workload
from engine.ruleset import load_ruleset
from tests.connectors.kueue.cluster import NOW, admitted, condition, event, evicted, node, owner, pod, workload
from tests.fakes.kubernetes import FakeKubernetes, Fault

Connect = Callable[..., KueueConnector]
ATTEMPT = Attempt(
    workload=Workload(id="research/pytorchjob-t5-1f0c2", name="t5", scheduler="kueue", cluster="k2"),
    state="Failed",
    started_at=NOW,
    ended_at=NOW + 700,
    nodes=("gpu-a", "gpu-b"),
    gpus_per_node=8,
)
REF = "research/pytorchjob-t5-1f0c2?uid=wl-t5&number=1&kind=PyTorchJob&api=kubeflow.org/v1&owner=t5&owner_uid=owner-t5"


def collected(
    connector: KueueConnector, attempt: Attempt = ATTEMPT, ref: str = REF, **request: Any
) -> tuple[dict[str, bytes], CollectionReport]:
    with connector.collect(CollectRequest(attempt=attempt, ref=ref, **request)) as collection:
        files = {stream.name: stream.open().read() for stream in collection.streams()}
        (report,) = collection.reports()
    return files, report


def populate(cluster: FakeKubernetes) -> None:
    cluster.put(workload("t5", *admitted(), condition("Finished", True, "Failed", NOW + 700)))
    cluster.put(owner("t5"))
    for index, name in enumerate(("gpu-a", "gpu-b")):
        cluster.put(pod("t5", index, name, exit_code=1))
        cluster.put(node(name, ready=name != "gpu-b", when=NOW + 650))
    pod_event = event("Pod", "t5-worker-1", "pod-t5-worker-1", "NodeNotReady", NOW + 660, "Node is not ready")
    cluster.put(pod_event)
    cluster.put(event("Pod", "someone-else", "pod-x", "BackOff", NOW + 660, "Back-off restarting"))
    cluster.put(event("Pod", "t5-worker-1", "pod-of-last-week", "BackOff", NOW + 10, "same name, other pod", number=2))
    not_ready = "Node gpu-b status is now: NodeNotReady"
    cluster.put(event("Node", "gpu-b", "gpu-b", "NodeNotReady", NOW + 655, not_ready, namespace="default"))
    cluster.put(event("Node", "gpu-z", "gpu-z", "NodeNotReady", NOW + 655, "another node", namespace="default"))


def test_everything_of_an_attempt_is_collected_as_the_engine_reads_it(
    cluster: FakeKubernetes, connect: Connect
) -> None:
    populate(cluster)
    files, report = collected(connect())
    assert sorted(files) == [f"scheduler/{name}.json" for name in ("events", "nodes", "owner", "pods", "workload")]
    facts = [fact.text for name, content in files.items() for fact in read_facts(name, content, ATTEMPT)]
    assert any(text.startswith("pod: Pod=t5-worker-0 Node=gpu-a Phase=Failed") for text in facts)
    assert any("container: Pod=t5-worker-1 Node=gpu-b Container=pytorch State=terminated" in text for text in facts)
    assert any(text.startswith("condition: Kind=Node Name=gpu-b Type=Ready Status=False") for text in facts)
    assert any("event: Kind=Node Object=gpu-b Node=gpu-b" in text for text in facts)
    assert any("Kind=Workload" in text and "Type=Finished" in text for text in facts)
    assert not any("someone-else" in text or "gpu-z" in text or "same name" in text for text in facts)
    assert (report.source, report.status, report.streams, report.note) == ("scheduler", "ok", 5, "")
    assert report.bytes == sum(map(len, files.values()))
    assert "/api/v1/namespaces/research/pods?labelSelector=training.kubeflow.org/job-name=t5" in report.query


def test_the_engine_diagnoses_a_lost_node_from_it(cluster: FakeKubernetes, connect: Connect) -> None:
    populate(cluster)
    with connect().collect(CollectRequest(attempt=ATTEMPT, ref=REF)) as collection:
        streams: list[Stream] = list(collection.streams())
        diagnosis = diagnose(ATTEMPT, streams, load_ruleset())
    assert diagnosis.root_cause is not None and diagnosis.root_cause.nodes == ("gpu-b",)
    assert (diagnosis.outcome, diagnosis.domain) == ("failed", "scheduler")


def test_environment_and_arguments_never_leave_the_cluster(cluster: FakeKubernetes, connect: Connect) -> None:
    populate(cluster)
    files, _ = collected(connect())
    assert b"hush" not in b"".join(files.values())
    assert b"managedFields" not in b"".join(files.values())


def test_pods_that_are_gone_are_known_from_when_they_were_there(cluster: FakeKubernetes, connect: Connect) -> None:
    connector = connect()
    cluster.put(workload("t5", *admitted()))
    for index in range(2):
        cluster.put(pod("t5", index, f"gpu-{index}"))
    cursor: dict[str, Any] = {}
    for step in connector.find(cursor):
        cursor = step.cursor
    for index in range(2):
        cluster.put(pod("t5", index, f"gpu-{index}", exit_code=1))
        cluster.delete(pod("t5", index))
    cluster.put(workload("t5", *admitted(), condition("Finished", True, "Failed", NOW + 700)))
    (found,) = [step.found for step in connector.find(cursor) if isinstance(step.found, FoundAttempt)]
    assert found.attempt.nodes == ("gpu-0", "gpu-1")

    # another process collects, with the same store
    files, report = collected(connect(), found.attempt, found.ref)
    pods = json.loads(files["scheduler/pods.json"])["items"]
    assert [(p["spec"]["nodeName"], p["status"]["phase"]) for p in pods] == [("gpu-0", "Failed"), ("gpu-1", "Failed")]
    assert "2 of 2 pods are gone" in report.note


def test_an_earlier_attempt_keeps_its_own_workload_and_pods(cluster: FakeKubernetes, connect: Connect) -> None:
    connector = connect()
    cluster.put(workload("t5", *evicted(NOW + 50)))
    cluster.put(pod("t5", 0, "gpu-a"))
    (first,) = [step.found for step in connector.find({}) if isinstance(step.found, FoundAttempt)]
    cluster.put(workload("t5", *admitted(NOW + 900)))
    cluster.delete(pod("t5", 0))
    cluster.put(pod("t5", 0, "gpu-c", created=NOW + 901, uid="second"))
    files, _ = collected(connector, first.attempt, first.ref)
    conditions = {c["type"]: c["status"] for c in json.loads(files["scheduler/workload.json"])["status"]["conditions"]}
    assert conditions["Evicted"] == "True" and conditions["Admitted"] == "False"
    assert [p["spec"]["nodeName"] for p in json.loads(files["scheduler/pods.json"])["items"]] == ["gpu-a"]


def test_a_plain_job_is_found_by_its_uid_so_that_one_of_the_same_name_is_not_mixed_in(
    cluster: FakeKubernetes, connect: Connect
) -> None:
    uid = {"batch.kubernetes.io/controller-uid": "owner-prep", "job-name": "prep"}
    other = {"batch.kubernetes.io/controller-uid": "an-older-one", "job-name": "prep"}
    cluster.put(workload("prep", *admitted(), condition("Finished", True, "Failed", NOW + 700), kind="Job",
                         api="batch/v1"))  # fmt: skip
    cluster.put(pod("prep", 0, "gpu-a", labels=uid))
    cluster.put(pod("prep", 1, "gpu-b", labels=other))
    (found,) = [step.found for step in connect().find({}) if isinstance(step.found, FoundAttempt)]
    assert found.attempt.nodes == ("gpu-a",)


@pytest.mark.parametrize(
    ("kind", "api", "labels"),
    [
        ("JobSet", "jobset.x-k8s.io/v1alpha2", {"jobset.sigs.k8s.io/jobset-name": "big"}),
        ("RayCluster", "ray.io/v1", {"ray.io/cluster": "big"}),
        ("RayJob", "ray.io/v1", {"ray.io/originated-from-cr-name": "big"}),
        ("PyTorchJob", "kubeflow.org/v1", {"training.kubeflow.org/job-name": "big"}),
    ],
)
def test_pods_of_every_kind_of_owner_are_found(
    cluster: FakeKubernetes, connect: Connect, kind: str, api: str, labels: dict[str, str]
) -> None:
    cluster.put(workload("big", *admitted(), kind=kind, api=api))
    cluster.put(pod("big", 0, "gpu-a", labels=labels))
    cluster.put(pod("small", 0, "gpu-b", labels=dict.fromkeys(labels, "small")))
    (found,) = [step.found for step in connect().find({}) if isinstance(step.found, FoundAttempt)]
    assert found.attempt.nodes == ("gpu-a",)


# --- what can go wrong ------------------------------------------------------------------------------------------------


def test_a_workload_that_is_gone_with_its_pods_is_a_report(cluster: FakeKubernetes, connect: Connect) -> None:
    files, report = collected(connect())
    assert files == {}
    assert report.status == "missing"
    assert "the Workload research/pytorchjob-t5-1f0c2 is gone" in report.note
    assert "none was seen while it ran" in report.note


def test_rights_that_lack_are_named_and_the_rest_is_collected(cluster: FakeKubernetes, connect: Connect) -> None:
    populate(cluster)
    cluster.denied = {("list", "events"), ("get", "nodes")}
    files, report = collected(connect())
    assert sorted(files) == ["scheduler/owner.json", "scheduler/pods.json", "scheduler/workload.json"]
    assert report.status == "partial"
    assert 'cannot list resource "events"' in report.note and 'cannot get resource "nodes"' in report.note


def test_nodes_can_be_left_out(cluster: FakeKubernetes, connect: Connect) -> None:
    populate(cluster)
    cluster.denied = {("get", "nodes")}
    files, report = collected(connect(nodes=False))
    assert "scheduler/nodes.json" not in files
    assert report.status == "ok"
    assert not any("/nodes" in path or "/default/" in path for path, _ in cluster.requests)


def test_a_login_that_has_run_out_says_which(cluster: FakeKubernetes, connect: Connect, tmp_path: Path) -> None:
    connector = connect()
    cluster.token = "another"
    files, report = collected(connector)
    assert files == {} and report.status == "error"
    assert f"does not accept the login (HTTP 401: Unauthorized): the token or certificate of {tmp_path}" in report.note
    assert "sesame" not in report.note
    assert len(cluster.requests) <= 4  # it isn't tried again and again


def test_a_cluster_that_is_down_is_tried_again_later(tmp_path: Path) -> None:
    with FakeKubernetes() as cluster:
        file = cluster.kubeconfig(tmp_path / "kubeconfig")
    connector = KueueConnector.from_config({"kubeconfig": file})
    with pytest.raises(ConnectorError, match="refuses connections") as caught:
        collected(connector)
    assert caught.value.temporary


def test_nothing_waits_longer_than_its_limit(cluster: FakeKubernetes, connect: Connect) -> None:
    populate(cluster)
    cluster.faults.extend([Fault(0, seconds=20)] * 9)
    began = time.monotonic()
    files, report = collected(connect(time_limit=1.5))
    assert time.monotonic() - began < 5
    assert files == {} and report.status == "error"
    assert "not finished within the time limit (2 s)" in report.note


def test_a_stop_ends_it(cluster: FakeKubernetes, connect: Connect) -> None:
    stop = threading.Event()
    stop.set()
    with connect().collect(CollectRequest(attempt=ATTEMPT, ref=REF), stop) as collection:
        assert list(collection.streams()) == []
        assert "stopped before it was finished" in collection.reports()[0].note


def test_limits_give_a_partial_report(cluster: FakeKubernetes, connect: Connect) -> None:
    populate(cluster)
    files, report = collected(connect(), limits=Limits(streams=2))
    assert len(files) == 2
    assert report.status == "partial" and "left out for the limit of 2 streams" in report.note


def test_a_page_that_is_no_api_says_so(cluster: FakeKubernetes, connect: Connect) -> None:
    cluster.faults.extend([Fault(200, "<html><title>Sign in</title></html>")] * 20)
    _files, report = collected(connect())
    assert "does not answer like the Kubernetes API" in report.note


# --- signing in -------------------------------------------------------------------------------------------------------


def test_a_pods_own_service_account_signs_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, certificate: tuple[Path, ssl.SSLContext]
) -> None:
    file, context = certificate
    monkeypatch.setattr("kubernetes.config.incluster_config.SERVICE_CERT_FILENAME", str(file))
    monkeypatch.setattr("kubernetes.config.incluster_config.SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    (tmp_path / "token").write_text("sesame")
    with FakeKubernetes(tls=context) as cluster:
        host, _, port = cluster.url.removeprefix("https://").partition(":")
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
        cluster.token = "sesame"
        cluster.put(workload("t5", *admitted()))
        report = KueueConnector.from_config({}).check()
    assert (report.status, report.note) == ("ok", "")


def test_outside_of_a_cluster_without_kubeconfig_it_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    report = KueueConnector.from_config({}).check()
    assert report.status == "error"
    assert "set kubeconfig, or run Faultline in the cluster" in report.note


def test_a_certificate_of_an_unknown_authority_is_named(
    tmp_path: Path, certificate: tuple[Path, ssl.SSLContext]
) -> None:
    with FakeKubernetes(tls=certificate[1]) as cluster:
        report = KueueConnector.from_config({"kubeconfig": cluster.kubeconfig(tmp_path / "kc")}).check()
    assert "its certificate is not trusted: set certificate-authority-data" in report.note


def test_a_command_that_waits_for_input_is_not_waited_for(
    tmp_path: Path, cluster: FakeKubernetes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectors.kube.login.LOGIN_SECONDS", 0.5)
    config = json.loads(Path(cluster.kubeconfig(tmp_path / "kc")).read_text())
    user = {"apiVersion": "client.authentication.k8s.io/v1", "command": "sleep", "args": ["3"]}
    config["users"][0]["user"] = {"exec": {**user, "interactiveMode": "Never"}}
    (tmp_path / "kc").write_text(json.dumps(config))
    report = KueueConnector.from_config({"kubeconfig": str(tmp_path / "kc")}).check()
    assert "took longer than" in report.note and report.duration_s < 3


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "No such file|Invalid kube-config"), ("{", "can not be used"), ("{}", "current-context")],
)
def test_a_kubeconfig_that_can_not_be_used_is_named(tmp_path: Path, content: str | None, words: str) -> None:
    file = tmp_path / "kc"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ConnectorError, match=words) as caught:
        list(KueueConnector.from_config({"kubeconfig": str(file)}).find({}))
    assert str(file) in str(caught.value)


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, ssl.SSLContext]:
    """A certificate for 127.0.0.1 that only its own file vouches for."""
    key, file = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", file, "-days", "2",
         "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file, key)
    return file, context


# --- check and configuration ------------------------------------------------------------------------------------------


def test_check_says_what_works_and_what_to_change(cluster: FakeKubernetes, connect: Connect) -> None:
    connector = connect()
    assert connector.check().status == "empty"
    cluster.put(workload("t5", *admitted()))
    report = connector.check()
    assert (report.status, report.note) == ("ok", "") and report.duration_s > 0
    cluster.denied = {("list", "nodes")}
    assert "or set nodes = false" in connector.check().note


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"color": "red"}, "unknown key 'color'"),
        ({"namespaces": "research"}, "namespaces: must be a list"),
        ({"namespaces": ["Research!"]}, "namespaces: must be a list"),
        ({"context": "k2"}, "context: needs kubeconfig"),
        ({"queues": "x"}, "queues: must be a list"),
        ({"nodes": "yes"}, "nodes: must be true or false"),
        ({"request_seconds": 0}, "request_seconds: must be a number"),
    ],
)
def test_configuration_is_checked_when_it_is_read(config: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        KueueConnector.from_config({"name": "kueue", **config})


def test_a_watch_that_runs_on_sees_where_pods_are_placed(cluster: FakeKubernetes, connect: Connect) -> None:
    connector, store, stop = connect(), MemorySightings(), threading.Event()
    raised: list[Exception] = []

    def watch() -> None:
        try:
            connector.watch_placements(store, stop, turn=1.0)
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    cluster.put(pod("t5", 0))
    cluster.put(pod("t5", 0, "gpu-a"))
    cluster.compact()
    cluster.put(pod("t5", 1, "gpu-b"))
    labels = {"training.kubeflow.org/job-name": "t5"}
    deadline = time.monotonic() + 10
    while {s.node for s in store.by_labels("Pod", "research", labels)} != {"gpu-a", "gpu-b"}:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    stop.set()
    thread.join(10)
    assert not thread.is_alive() and raised == []
