"""Which streams come out, whose they are, and that the engine reads them."""

from __future__ import annotations

import pytest

from connectors.base import CollectRequest, Limits
from connectors.loki.connector import LokiConnector
from engine.diagnose import diagnose
from engine.lines import clean
from engine.ruleset import load_ruleset
from tests.connectors.loki.conftest import APPLOG, NS, START, SYSLOG, attempt, collect
from tests.fakes.loki import FakeLoki

T = START * NS


def test_each_node_pod_and_container_is_a_stream() -> None:
    with FakeLoki() as loki:
        base = {"job_id": "4242", "node": "gx-01"}
        loki.push({**base, "pod": "train-0", "container": "main"}, [(T, "a")])
        loki.push({**base, "pod": "train-0", "container": "side"}, [(T, "b")])
        loki.push({**base, "pod": "train-1", "container": "main", "stream": "stderr"}, [(T, "c")])
        found = collect(loki.url)
    assert {stream.name: stream.node for stream in found.streams} == {
        "applog/loki/gx-01/train-0/main.log": "gx-01",
        "applog/loki/gx-01/train-0/side.log": "gx-01",
        "applog/loki/gx-01/train-1/main.log": "gx-01",
    }
    assert found.content["applog/loki/gx-01/train-1/main.log"] == b"2026-05-28T20:26:40.000000000Z stderr F c\n"


def test_stdout_and_stderr_of_a_container_are_one_stream_in_order_of_time() -> None:
    with FakeLoki() as loki:
        base = {"job_id": "4242", "pod": "train-0"}
        loki.push({**base, "stream": "stdout"}, [(T + index * 2, f"out {index}") for index in range(50)])
        loki.push({**base, "stream": "stderr"}, [(T + index * 2 + 1, f"err {index}") for index in range(50)])
        found = collect(loki.url, page=7)
    assert found.texts("applog/loki/train-0.log") == [f"{kind} {i}" for i in range(50) for kind in ("out", "err")]


@pytest.mark.parametrize("label", ["gx-01", "gx-01.example.org", "gx-01.example.org:9100"])
def test_a_node_is_called_as_the_scheduler_calls_it(label: str) -> None:
    with FakeLoki() as loki:
        loki.push({"job_id": "4242", "instance": label}, [(T, "a")])
        found = collect(loki.url)
    assert [stream.node for stream in found.streams] == ["gx-01"]


def test_structured_metadata_tell_node_and_rank_and_do_not_split_streams() -> None:
    with FakeLoki() as loki:
        entries = [
            (T + index, f"line {index}", {"rank": str(index % 2), "k8s_node_name": "gx-02", "trace_id": f"t{index}"})
            for index in range(10)
        ]
        loki.push({"job_id": "4242"}, entries)
        found = collect(loki.url, page=3)
    assert [(stream.name, stream.node, stream.rank) for stream in found.streams] == [
        ("applog/loki/gx-02/rank0.log", "gx-02", 0),
        ("applog/loki/gx-02/rank1.log", "gx-02", 1),
    ]
    assert found.texts("applog/loki/gx-02/rank1.log") == [f"line {index}" for index in range(1, 10, 2)]


def test_entries_that_differ_in_metadata_alone_are_two_lines() -> None:
    with FakeLoki() as loki:
        loki.push({"job_id": "4242", "node": "gx-01"}, [(T, "same", {"trace_id": str(index)}) for index in range(9)])
        found = collect(loki.url, page=2)
    assert found.texts("applog/loki/gx-01.log") == ["same"] * 9


def test_an_entry_of_several_lines_has_its_time_on_each() -> None:
    with FakeLoki() as loki:
        loki.push(
            {"job_id": "4242", "node": "gx-01"}, [(T + 5, "Traceback (most recent call last):\n  File\nKeyError\n")]
        )
        found = collect(loki.url)
    lines = found.content["applog/loki/gx-01.log"].decode().splitlines()
    assert len(lines) == 3 and all(line.startswith("2026-05-28T20:26:40.000000005Z stdout F ") for line in lines)
    assert found.reports["applog"].lines == 3


def test_the_engine_takes_time_and_text_apart() -> None:
    with FakeLoki() as loki:
        loki.push({"job_id": "4242", "node": "gx-01"}, [(T + 123456789, "CUDA error: an illegal memory access")])
        found = collect(loki.url)
    line = clean(found.content["applog/loki/gx-01.log"].rstrip(b"\n"))
    assert line.text == "CUDA error: an illegal memory access" and line.host is None
    assert line.stamp is not None and line.stamp.kind == "full"


def test_the_engine_finds_the_node_at_fault_in_lokis_lines() -> None:
    with FakeLoki() as loki:
        for node in ("gx-01", "gx-02"):
            lines = [((START + 60 * index) * NS, f"iteration {index}/100 loss 2.1") for index in range(9)]
            loki.push({"job_id": "4242", "node": node}, lines)
            loki.push({"job": "journal", "host": node}, [((START + 5) * NS, f"{node} systemd[1]: Started job.")])
        fault = "gx-02 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=4411, GPU has fallen off the bus."
        loki.push({"job": "journal", "host": "gx-02"}, [((START + 590) * NS, fault)])
        error = "RuntimeError: CUDA error: unspecified launch failure"
        loki.push({"job_id": "4242", "node": "gx-02"}, [((START + 595) * NS, error)])
        mine = attempt("gx-01", "gx-02")
        connector = LokiConnector.from_config({"url": loki.url, "queries": [APPLOG, SYSLOG]})
        with connector.collect(CollectRequest(attempt=mine, ref="")) as collected:
            streams = list(collected.streams())
            diagnosis = diagnose(
                mine, streams, load_ruleset(), collected=[report.for_engine() for report in collected.reports()]
            )
    assert diagnosis.root_cause is not None
    assert (diagnosis.root_cause.rule, diagnosis.root_cause.nodes) == ("xid.79", ("gx-02",))


def test_nodes_without_lines_are_named() -> None:
    with FakeLoki() as loki:
        loki.push({"job": "journal", "host": "gx-01"}, [(T, "gx-01 kernel: hello")])
        found = collect(loki.url, SYSLOG, of=attempt("gx-01", "gx-02", "gx-03"))
    report = found.reports["syslog"]
    assert report.status == "ok" and "no syslog lines from gx-02, gx-03 (2 of 3 nodes)" in report.note


@pytest.mark.parametrize("nodes_per_query", [1, 2, 100])
def test_nodes_are_asked_for_in_batches(nodes_per_query: int) -> None:
    nodes = [f"gx-{number:02d}" for number in range(1, 6)]
    with FakeLoki() as loki:
        for node in [*nodes, "gx-012", "agx-01"]:
            loki.push({"job": "journal", "host": node}, [(T, f"{node} kernel: hello")])
        found = collect(loki.url, SYSLOG, of=attempt(*nodes), nodes_per_query=nodes_per_query)
        asked = [params for path, params, _ in loki.requests if path.endswith("query_range")]
    assert [stream.node for stream in found.streams] == nodes
    assert len(asked) == -(-5 // nodes_per_query)


def test_each_node_can_be_asked_for_by_itself() -> None:
    with FakeLoki() as loki:
        for node in ("gx-01", "gx-02"):
            loki.push({"host": node}, [(T, "hello")])
        found = collect(loki.url, {"source": "syslog", "query": '{host="{node}"}'})
    assert [stream.node for stream in found.streams] == ["gx-01", "gx-02"]


def test_a_job_name_can_not_change_the_query() -> None:
    evil = 'x"} or {job=~".+'
    with FakeLoki() as loki:
        loki.push({"job_name": evil, "node": "gx-01"}, [(T, "mine")])
        loki.push({"job_name": "other", "node": "gx-02"}, [(T, "not mine")])
        for query in ('{job_name="{name}"}', '{job_name=~"{name}.*"}', '{job_name=~".+"} |= "{name}"'):
            found = collect(loki.url, {"source": "applog", "query": query}, of=attempt(name=evil))
            assert [stream.node for stream in found.streams] in (["gx-01"], [])


def test_pods_of_a_workload_are_found_by_its_name() -> None:
    with FakeLoki() as loki:
        for pod in ("train-7", "train-7-worker-0", "train-7-worker-1", "train-70-worker-0", "other"):
            loki.push({"namespace": "team-a", "pod": pod}, [(T, f"of {pod}")])
        loki.push({"namespace": "team-b", "pod": "train-7-worker-0"}, [(T, "of another team")])
        query = {"source": "applog", "query": '{namespace="{namespace}", pod=~"{pod_regex}"}'}
        found = collect(loki.url, query, of=attempt(workload="team-a/train-7"))
    assert [stream.name.split("/")[2] for stream in found.streams] == [
        "train-7.log", "train-7-worker-0.log", "train-7-worker-1.log",
    ]  # fmt: skip


def test_more_streams_than_allowed_are_left_out_and_told() -> None:
    with FakeLoki() as loki:
        for number in range(9):
            loki.push({"job_id": "4242", "pod": f"train-{number}"}, [(T, "a")])
        found = collect(loki.url, limits=Limits(streams=4))
    assert len(found.streams) == 4
    assert found.reports["applog"].status == "partial" and "more than 4 streams" in found.reports["applog"].note


def test_a_hostile_label_gives_a_harmless_name() -> None:
    with FakeLoki() as loki:
        loki.push({"job_id": "4242", "pod": "../../etc/\u202epasswd"}, [(T, "a")])
        loki.push({"job_id": "4242", "pod": "..*..*etc*\u202epasswd"}, [(T, "b")])
        found = collect(loki.url)
    names = [stream.name for stream in found.streams]
    assert len(set(names)) == 2 and all(name.startswith("applog/loki/") and ".." not in name for name in names)
