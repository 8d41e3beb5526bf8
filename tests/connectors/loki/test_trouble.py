"""What the connector makes of a Loki that is down, slow, closed, busy, empty or something else."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from connectors.base import CollectRequest, ConfigError, ConnectorError, Limits
from connectors.loki.connector import LokiConnector
from connectors.registry import Registry
from engine.model import Attempt, Workload
from tests.connectors.loki.conftest import APPLOG, NS, START, SYSLOG, attempt, collect
from tests.fakes.loki import FakeLoki, Fault

LABELS = {"job_id": "4242", "node": "gx-01"}
LOGIN = "<html><head><title>Sign in</title></head></html>"


def some(loki: FakeLoki, count: int = 10, **more: str) -> None:
    loki.push({**LABELS, **more}, [((START + index) * NS, f"line {index}") for index in range(count)])


def test_a_loki_that_is_down_may_be_asked_again_later() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(ConnectorError) as refused:
        collect(f"http://127.0.0.1:{port}")
    assert refused.value.temporary and "Loki at http://127.0.0.1" in str(refused.value)
    assert "it is down, or url names a wrong port" in str(refused.value)


def test_a_name_that_does_not_resolve_is_told() -> None:
    with pytest.raises(ConnectorError) as refused:
        collect("http://loki.invalid:3100", limits=Limits(seconds=20))
    assert "the name loki.invalid can not be resolved" in str(refused.value)


@pytest.mark.parametrize(
    "fault",
    [Fault(0, seconds=20), Fault(200, '{"status": "success"' + " " * 900, trickle=True)],
    ids=["silent", "trickle"],
)
def test_nothing_waits_longer_than_its_limit(fault: Fault) -> None:
    with FakeLoki() as loki:
        loki.always = fault
        began = time.monotonic()
        found = collect(loki.url, limits=Limits(seconds=1))
        assert time.monotonic() - began < 3
    report = found.reports["applog"]
    assert report.status == "error" and "part of the time limit (1 s)" in report.note


def test_a_slow_answer_is_asked_for_in_smaller_windows() -> None:
    with FakeLoki() as loki:
        some(loki, 600)
        loki.faults.extend([Fault(0, seconds=1.2)] * 2)
        found = collect(loki.url, request_seconds=1)
    assert found.texts("applog/loki/gx-01.log") == [f"line {index}" for index in range(600)]
    assert found.reports["applog"].status == "ok"


def test_a_stop_ends_the_waiting() -> None:
    stop = threading.Event()
    with FakeLoki() as loki:
        loki.always = Fault(429, "too many outstanding requests", {"Retry-After": "5"})
        connector = LokiConnector.from_config({"url": loki.url, "queries": [APPLOG]})
        threading.Timer(0.5, stop.set).start()
        began = time.monotonic()
        with connector.collect(CollectRequest(attempt=attempt(), ref=""), stop) as collected:
            assert list(collected.streams()) == []
        assert time.monotonic() - began < 3
    assert "stopped before it was finished" in collected.reports()[0].note


@pytest.mark.parametrize("retry_after", [{"Retry-After": "1"}, {}])
def test_too_many_requests_and_failures_are_repeated(retry_after: dict[str, str]) -> None:
    with FakeLoki() as loki:
        some(loki)
        loki.faults.extend(
            [Fault(429, "too many outstanding requests", retry_after), Fault(502, "bad gateway"), Fault(503, "")]
        )
        found = collect(loki.url)
    assert len(found.texts("applog/loki/gx-01.log")) == 10
    assert found.reports["applog"].status == "ok"


def test_a_failure_in_the_middle_keeps_what_was_had() -> None:
    with FakeLoki() as loki:
        some(loki, 100)
        found_first = Fault(0)
        loki.faults.extend([found_first, found_first])
        loki.faults.extend([Fault(500, "ingester is gone")] * 9)
        found = collect(loki.url, page=10)
    report = found.reports["applog"]
    assert report.status == "partial" and report.lines >= 19
    assert "Loki failed (HTTP 500: ingester is gone)" in report.note


def test_missing_and_wrong_logins_say_what_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOKI_PASSWORD", "not-the-right-one")
    with FakeLoki(basic=("faultline", "right")) as loki:
        some(loki)
        without = collect(loki.url).reports["applog"]
        wrong = collect(loki.url, username="faultline", password="env:LOKI_PASSWORD").reports["applog"]
        monkeypatch.setenv("LOKI_PASSWORD", "right")
        right = collect(loki.url, username="faultline", password="env:LOKI_PASSWORD").reports["applog"]
    assert without.status == "error" and "set username and password, or token" in without.note
    assert wrong.status == "error" and "check username and password (env:LOKI_PASSWORD)" in wrong.note
    assert "not-the-right-one" not in repr(wrong)
    assert right.status == "ok"


def test_a_bearer_token_and_a_tenant_are_sent(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t0ken\n")
    with FakeLoki(bearer="t0ken", tenants=["gpu", "infra"]) as loki:
        loki.push(LABELS, [(START * NS, "of gpu")], tenant="gpu")
        loki.push({**LABELS, "node": "gx-02"}, [(START * NS, "of infra")], tenant="infra")
        token = f"file:{tmp_path / 'token'}"
        none = collect(loki.url, token=token).reports["applog"]
        one = collect(loki.url, token=token, tenant="gpu")
        both = collect(loki.url, token=token, tenant="gpu|infra")
        other = collect(loki.url, token=token, tenant="sales").reports["applog"]
    assert none.status == "error" and "no org id" in none.note
    assert len(one.streams) == 1 and len(both.streams) == 2
    assert other.status == "empty" and "check tenant" in other.note


def test_an_empty_answer_names_the_label_that_does_not_exist() -> None:
    with FakeLoki() as loki:
        some(loki, cluster="c1")
        report = collect(loki.url, SYSLOG).reports["syslog"]
    assert report.status == "empty"
    assert "no label is called job; there are cluster, job_id, node" in report.note


def test_an_empty_answer_with_known_labels_says_which_values_to_check() -> None:
    with FakeLoki() as loki:
        some(loki)
        report = collect(loki.url, of=attempt(workload="999")).reports["applog"]
    assert report.status == "empty" and report.lines == 0
    assert 'no line matches {job_id="999"} between 2026-05-28T20:25:40Z and' in report.note


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (Fault(200, LOGIN), 'a web page, "Sign in" instead of JSON'),
        (Fault(200, "OK"), "does not answer like Loki (it says: OK)"),
        (Fault(200, ""), "does not answer like Loki (it says: nothing)"),
        (Fault(200, '{"status":"success","data":{"resultType":"matrix","result":[]}}'), "does not answer like Loki"),
        (Fault(302, "", {"Location": "https://sso.example.org/?t=1"}), "redirects to https://sso.example.org/"),
        (Fault(404, "404 page not found"), "check that url is the address of Loki"),
        (Fault(403, "forbidden"), "give this account the right to read"),
    ],
)
def test_what_is_not_loki_is_told(fault: Fault, says: str) -> None:
    with FakeLoki() as loki:
        loki.always = fault
        report = collect(loki.url).reports["applog"]
    assert report.status == "error" and says in report.note and "\n" not in report.note


def test_one_source_that_fails_does_not_take_the_other_with_it() -> None:
    broken = {"source": "syslog", "query": '{host=~"(unclosed"}'}
    with FakeLoki() as loki:
        some(loki)
        found = collect(loki.url, broken, APPLOG)
    assert (
        found.reports["syslog"].status == "error"
        and "Loki rejects the request (HTTP 400" in found.reports["syslog"].note
    )
    assert found.reports["applog"].status == "ok" and len(found.streams) == 1


def test_an_attempt_that_lacks_what_a_query_needs_is_missing() -> None:
    query = {"source": "applog", "query": '{namespace="{namespace}"}'}
    with FakeLoki() as loki:
        report = collect(loki.url, query).reports["applog"]
        never = Attempt(workload=Workload(id="1"), nodes=("gx-01",))
        no_time = collect(loki.url, of=never).reports["applog"]
        assert loki.requests == []
    assert report.status == "missing" and "the attempt has no namespace" in report.note
    assert no_time.status == "missing" and "neither start nor end" in no_time.note


def test_the_report_has_query_times_and_a_link_to_explore() -> None:
    with FakeLoki() as loki:
        some(loki)
        grafana = {"grafana_url": "https://grafana.example.org", "grafana_datasource": "loki-1"}
        report = collect(loki.url, **grafana).reports["applog"]
    assert report.query == '{job_id="4242"}' and report.connector == "loki"
    assert (report.first_at, report.last_at) == ("2026-05-28T20:26:40.000000Z", "2026-05-28T20:26:49.000000Z")
    assert report.link.startswith("https://grafana.example.org/explore?schemaVersion=1&panes=")
    assert "loki-1" in report.link and str((START - 60) * 1000) in report.link


def test_check_says_what_works_and_what_does_not() -> None:
    with FakeLoki(tenants=["gpu"]) as loki:
        loki.push(LABELS, [(time.time_ns() - NS, "now")], tenant="gpu")
        config: dict[str, Any] = {"url": loki.url, "queries": [APPLOG]}
        works = LokiConnector.from_config({**config, "tenant": "gpu"}).check()
        empty = LokiConnector.from_config({**config, "tenant": "sales"}).check()
        refused = LokiConnector.from_config(config).check()
    assert (works.status, works.note) == ("ok", "")
    assert empty.status == "empty" and "check tenant" in empty.note
    assert refused.status == "error" and "set" in refused.note


def test_the_registry_knows_the_connector() -> None:
    registry = Registry.from_config({"logs": {"kind": "loki", "url": "http://loki.example.org", "queries": [APPLOG]}})
    assert registry.get("logs").name == "logs" and list(registry.get("logs").find({})) == []


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"queries": []}, "queries: at least one"),
        ({"queries": [{"source": "metric", "query": '{a="b"}'}]}, "source: must be one of applog, syslog"),
        ({"queries": [{"source": "applog", "query": 'sum(rate({a="b"}[1m]))'}]}, "must begin with a stream selector"),
        ({"queries": [{"source": "applog", "query": '{a="b"'}]}, "must begin with a stream selector"),
        ({"queries": [{"source": "applog", "query": "{a={job_id}}"}]}, "must stand inside of quotes"),
        ({"queries": [{"source": "applog", "query": '{a="{pod_regex}"}'}]}, "needs =~"),
        ({"queries": [{"source": "applog", "query": '{a="{jobid}"}'}]}, "{jobid} is not one of"),
        ({"queries": [APPLOG | {"name": "x"}, APPLOG | {"name": "x"}]}, "have the same name"),
        ({"queries": [APPLOG | {"limit": 5}]}, "unknown key 'limit'"),
        ({"password": "hunter2", "username": "u"}, "password: must be env:NAME or file:PATH"),
        ({"ca_file": "/x.pem"}, "ca_file: needs an https url"),
        ({"page": "many"}, "page: must be a number from 1"),
        ({"tenant": "a\r\nX: y"}, "tenant: must be printable"),
    ],
)
def test_a_wrong_configuration_is_told_by_its_key(config: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        LokiConnector.from_config({"url": "http://loki.example.org", "queries": [APPLOG], **config})
    assert says in str(refused.value) and "hunter2" not in str(refused.value)
