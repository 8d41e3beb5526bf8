"""The connector against a real Prometheus and a real VictoriaMetrics."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from connectors.base import CollectionReport, CollectRequest, Limits
from connectors.promql.connector import PromConnector
from engine.diagnose import diagnose
from engine.model import Attempt, Source, Stream, Workload
from engine.ruleset import load_ruleset
from tests.connectors.promql.conftest import END, HOT, NODES, START, WEEK
from tests.connectors.test_docs_of_connectors import first_of
from tests.peers.metrics import Server

HOUR = Attempt(
    workload=Workload(id="4242", scheduler="slurm", cluster="c1"),
    state="FAILED",
    started_at=float(END - 3600),
    ended_at=float(END),
    nodes=NODES[:8],
)


def collect(
    server: Server, attempt: Attempt, limits: Limits | None = None, **config: Any
) -> tuple[dict[str, Any], CollectionReport]:
    """The documents by stream name, and the report."""
    connector = PromConnector.from_config({**config, "url": server.url})
    found: dict[str, Any] = {}
    with connector.collect(CollectRequest(attempt=attempt, ref="", limits=limits or Limits())) as collected:
        for stream in collected.streams():
            with stream.open() as content:
                body = content.read()
            assert len(body) == stream.size and stream.source is Source.METRIC
            found[stream.name] = json.loads(body)
        (report,) = collected.reports()
    return found, report


def test_the_pack_finds_the_series_of_the_attempts_nodes_and_no_others(server: Server) -> None:
    found, report = collect(server, HOUR)
    assert set(found) == {
        f"metrics/{name}.json"
        for name in ("dcgm-clocks-event-reasons", "dcgm-temperature", "boot-time", "infiniband-state", "up")
    }
    reasons = found["metrics/dcgm-clocks-event-reasons.json"]["data"]["result"]
    assert {series["metric"]["Hostname"] for series in reasons} == set(NODES[:8])
    assert {series["metric"]["__name__"] for series in reasons} == {"DCGM_FI_DEV_CLOCKS_EVENT_REASONS"}
    assert report.status == "ok" and report.source == "metric" and report.streams == 5
    assert "no series for dcgm-xid" in report.note
    assert "dcgm-clocks-event-reasons: {__name__=~" in report.query


def test_an_hour_comes_at_full_resolution(server: Server) -> None:
    found, _ = collect(server, HOUR)
    (series,) = [
        series
        for series in found["metrics/dcgm-clocks-event-reasons.json"]["data"]["result"]
        if series["metric"]["Hostname"] == HOT and series["metric"]["gpu"] == "0"
    ]
    times = [at for at, _ in series["values"]]
    assert {b - a for a, b in pairwise(times)} == {15}
    hot = [at for at, value in series["values"] if float(value) == 64]
    assert (hot[0], hot[-1]) == (END - 1800, END - 900)


def test_a_week_at_15_s_on_64_nodes_is_complete_within_the_point_limit(server: Server) -> None:
    attempt = Attempt(workload=Workload(id="7"), started_at=float(START), ended_at=float(END), nodes=NODES)
    found, report = collect(server, attempt, queries=["dcgm-temperature"], step=15, before=1, after=1)
    series = found["metrics/dcgm-temperature.json"]["data"]["result"]
    assert len(series) == 64
    points = WEEK // 15 + 1
    expected = list(range(START, END + 1, 15))
    for one in series:
        assert [at for at, _ in one["values"]] == expected
    assert report.status == "ok" and report.lines == 64 * points


def test_a_week_is_thinned_by_itself_but_for_its_end(server: Server) -> None:
    attempt = Attempt(workload=Workload(id="7"), started_at=float(START), ended_at=float(END), nodes=NODES)
    found, report = collect(server, attempt, queries=["dcgm-temperature"])
    series = found["metrics/dcgm-temperature.json"]["data"]["result"]
    assert len(series) == 64
    times = [at for at, _ in series[0]["values"]]
    assert times == sorted(set(times)) and times[-1] - times[0] > WEEK
    assert {b - a for a, b in pairwise(times[-100:])} == {15}
    assert report.lines < 250_000
    assert "asked every 15 s and" in report.note


def test_a_placement_is_asked_for_as_a_single_moment(server: Server) -> None:
    extra = [{"name": "boot", "query": 'node_boot_time_seconds{instance=~"{nodes_regex}:9100"}', "kind": "instant"}]
    found, _ = collect(server, HOUR, queries=["up"], extra=extra)
    boots = found["metrics/boot.json"]["data"]
    assert boots["resultType"] == "vector" and len(boots["result"]) == 8
    assert float(boots["result"][0]["value"][1]) == START - 86400


def test_the_engine_blames_the_hot_node_by_these_streams(server: Server) -> None:
    connector = PromConnector.from_config({"url": server.url})
    with connector.collect(CollectRequest(attempt=HOUR, ref="")) as collected:
        streams = [Stream(name=s.name, source=s.source, open=s.open, size=s.size) for s in collected.streams()]
        diagnosis = diagnose(HOUR, streams, load_ruleset())
    slowed = [evidence for evidence in diagnosis.evidence if evidence.rule == "metric.thermal-slowdown"]
    assert [evidence.node for evidence in slowed] == [HOT]
    assert not any(report.status == "error" for report in diagnosis.coverage)


def test_a_wrong_query_is_told_in_the_servers_own_words(server: Server) -> None:
    extra = [{"name": "broken", "query": "sum(("}]
    found, report = collect(server, HOUR, queries=["up"], extra=extra)
    assert set(found) == {"metrics/up.json"}
    assert report.status == "partial"
    assert "broken: " in report.note and "HTTP 4" in report.note


def test_nodes_that_it_does_not_know_are_empty_and_say_what_to_check(server: Server) -> None:
    attempt = Attempt(workload=Workload(id="7"), started_at=END - 600.0, ended_at=float(END), nodes=("nowhere-1",))
    found, report = collect(server, attempt, queries=["up", "dcgm-xid"])
    assert not found and report.status == "empty"
    assert "check matchers" in report.note


def test_a_limit_of_bytes_leaves_the_rest_out_and_says_so(server: Server) -> None:
    found, report = collect(server, HOUR, limits=Limits(bytes=10_000))
    assert len(found) < 5 and report.status == "partial"
    assert "more than 10000 bytes" in report.note


@pytest.mark.parametrize("nodes_per_query", [3, 1000])
def test_node_sets_are_asked_for_in_batches(server: Server, nodes_per_query: int) -> None:
    found, _ = collect(server, HOUR, queries=["infiniband-state"], nodes_per_query=nodes_per_query)
    series = found["metrics/infiniband-state.json"]["data"]["result"]
    assert sorted(one["metric"]["instance"] for one in series) == [f"{node}:9100" for node in NODES[:8]]


def test_check_says_that_it_works(server: Server) -> None:
    report = PromConnector.from_config({"url": server.url}).check()
    assert report.status in ("ok", "empty") and report.duration_s < 10


def test_the_queries_of_the_documents_configuration_are_understood(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROMETHEUS_TOKEN", "sesame")
    found, report = collect(server, HOUR, **first_of("promql"))
    assert (found, report.status) == ({}, "empty"), "its selector names another cluster"
    assert "check matchers (how exporters name a node), selector" in report.note
    assert "ipmi-power: ipmi_power_watts{instance=~" in report.query
