"""What the connector makes of servers that are down, slow, closed, limited or something else."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from connectors.base import CollectionReport, CollectRequest, ConnectorError, Limits
from connectors.promql.connector import PromConnector
from engine.model import Attempt, Workload
from tests.fakes.scripted import Say, ScriptedServer

ATTEMPT = Attempt(
    workload=Workload(id="team/train", name="train"),
    started_at=1_780_000_000.0,
    ended_at=1_780_003_600.0,
    nodes=("gx-01", "gx-02"),
)
ONE = {"queries": ["up"], "resolution": 60}
LOGIN = "<!DOCTYPE html><html><head><title>Sign in to Example</title></head><body></body></html>"


def matrix(params: dict[str, str], **more: Any) -> Say:
    """What a server with one series of ones answers."""
    start, end, step = (float(params.get(key, 0)) for key in ("start", "end", "step"))
    if not step:
        return vector(params, **more)
    values = [[start + i * step, "1"] for i in range(int((end - start) / step) + 1)]
    result = [{"metric": {"__name__": "up", "instance": "gx-01:9100"}, "values": values}]
    return Say({"status": "success", "data": {"resultType": "matrix", "result": result}, **more})


def vector(params: dict[str, str], **more: Any) -> Say:
    result = [{"metric": {}, "value": [float(params["time"]), "1"]}]
    return Say({"status": "success", "data": {"resultType": "vector", "result": result}, **more})


def refusal(status: int, kind: str, words: str) -> Say:
    return Say({"status": "error", "errorType": kind, "error": words}, status)


def collect(
    url: str, limits: Limits | None = None, attempt: Attempt = ATTEMPT, **config: Any
) -> tuple[dict[str, Any], CollectionReport]:
    connector = PromConnector.from_config({"url": url, **config})
    found = {}
    with connector.collect(CollectRequest(attempt=attempt, ref="", limits=limits or Limits())) as collected:
        for stream in collected.streams():
            with stream.open() as content:
                found[stream.name] = json.loads(content.read())
        (report,) = collected.reports()
    return found, report


def test_a_server_that_is_down_may_be_asked_again_later() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    began = time.monotonic()
    with pytest.raises(ConnectorError) as refused:
        collect(f"http://127.0.0.1:{port}", **ONE)
    assert refused.value.temporary
    assert "refuses connections: it is down, or url names a wrong port" in str(refused.value)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("slow", [Say("late", after=30), Say("x" * 1000, each=0.05)], ids=["silent", "trickling"])
def test_a_server_that_is_slow_is_not_waited_for_beyond_the_limit(slow: Say) -> None:
    with ScriptedServer(lambda path, params: slow) as server:
        began = time.monotonic()
        _, report = collect(server.url, Limits(seconds=1.0), **ONE)
        assert time.monotonic() - began < 2.5
    assert report.status == "error"
    assert "was not finished within its part of the time limit (1 s)" in report.note


def test_a_wrong_password_is_an_error_that_names_the_reference_and_not_the_secret(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("hunter2-and-more\n")
    login = {"username": "faultline", "password": f"file:{tmp_path / 'password'}"}

    def answer(path: str, params: dict[str, str]) -> Say:
        return Say("wrong password hunter2-and-more", 401)

    with ScriptedServer(answer) as server:
        _, report = collect(server.url, **ONE, **login)
        assert server.requests[0][2]["authorization"].startswith("Basic ")
        assert len(server.requests) == 1  # asking again would lock the account
    assert report.status == "error"
    assert f"check username and password (file:{tmp_path / 'password'})" in report.note
    assert "hunter2" not in repr(report)


def test_denied_access_names_what_is_missing() -> None:
    with ScriptedServer(lambda path, params: Say("no permission", 403)) as server:
        _, report = collect(server.url, **ONE)
    assert report.status == "error"
    assert "give this account the right to read, or check tenant" in report.note


def test_a_login_page_is_told_as_one() -> None:
    with ScriptedServer(lambda path, params: Say(LOGIN)) as server:
        _, report = collect(server.url, **ONE)
    assert report.status == "error"
    assert 'a web page, "Sign in to Example" instead of JSON' in report.note


def test_a_redirect_to_a_login_is_told_without_what_is_in_its_address() -> None:
    moved = Say("", 302, {"Location": "https://sso.example.org/login?ticket=s3cret"})
    with ScriptedServer(lambda path, params: moved) as server:
        _, report = collect(server.url, **ONE)
    assert "redirects to https://sso.example.org/login (HTTP 302)" in report.note
    assert "s3cret" not in report.note


@pytest.mark.parametrize("body", ["", "{}", "[]", '{"status": "success", "data": {"resultType": "matrix"', "null"])
def test_garbage_says_that_it_is_not_prometheus(body: str) -> None:
    with ScriptedServer(lambda path, params: Say(body)) as server:
        _, report = collect(server.url, **ONE)
    assert report.status == "error"
    assert "does not answer like Prometheus" in report.note


def test_warnings_and_partial_answers_stay_in_the_report() -> None:
    def answer(path: str, params: dict[str, str]) -> Say:
        return matrix(params, warnings=["store gateway 3 is away"], isPartial=True, infos=["might not be a counter"])

    with ScriptedServer(answer) as server:
        found, report = collect(server.url, **ONE)
    assert set(found) == {"metrics/up.json"}
    assert report.status == "partial"
    for words in (
        "answers are partial",
        "the server warns: store gateway 3 is away",
        "remarks: might not be a counter",
    ):
        assert words in report.note


def test_too_many_requests_are_waited_out_as_long_as_the_server_asks() -> None:
    answers = [Say("slow down", 429, {"Retry-After": "1"}), Say("", 503)]

    def answer(path: str, params: dict[str, str]) -> Say:
        return answers.pop(0) if answers else matrix(params)

    with ScriptedServer(answer) as server:
        began = time.monotonic()
        found, report = collect(server.url, **ONE)
        assert time.monotonic() - began > 1.0
    assert report.status == "ok" and found


def test_a_wait_that_does_not_fit_is_not_begun() -> None:
    with ScriptedServer(lambda path, params: Say("slow down", 429, {"Retry-After": "3600"})) as server:
        began = time.monotonic()
        with pytest.raises(ConnectorError) as refused:
            collect(server.url, Limits(seconds=20), **ONE)
        assert time.monotonic() - began < 3 and refused.value.temporary
    assert "asks to wait 3600 s" in str(refused.value)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution"),
        (422, "query processing would load too many samples into memory in query execution"),
        (
            422,
            "the query time range exceeds the limit (query length: 2h0m0s, limit: 1h0m0s) (err-mimir-max-query-length)",
        ),
        (503, "query timed out in expression evaluation"),
    ],
)
def test_a_question_that_is_too_large_is_halved_without_loss(status: int, words: str) -> None:
    def answer(path: str, params: dict[str, str]) -> Say:
        if "step" in params and float(params["end"]) - float(params["start"]) > 1000:
            return refusal(status, "execution", words)
        return matrix(params)

    with ScriptedServer(answer) as server:
        found, report = collect(server.url, queries=["up"], step=60)
    values = found["metrics/up.json"]["data"]["result"][0]["values"]
    times = [at for at, _ in values]
    assert times == list(range(int(times[0]), int(times[-1]) + 1, 60)) and times[-1] - times[0] > 4000
    assert report.status == "ok"


def test_the_tenant_and_token_are_sent_and_the_token_is_read_again_each_time(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first")

    def answer(path: str, params: dict[str, str]) -> Say:
        token.write_text("second")
        return matrix(params)

    with ScriptedServer(answer) as server:
        collect(server.url, **ONE, token=f"file:{token}", tenant="a|b")
        sent = [headers for _, _, headers in server.requests]
    assert sent[0]["authorization"] == "Bearer first" and sent[1]["authorization"] == "Bearer second"
    assert sent[0]["x-scope-orgid"] == "a|b"


def test_a_secret_that_is_not_there_is_named() -> None:
    with ScriptedServer(lambda path, params: matrix(params)) as server:
        _, report = collect(server.url, **ONE, token="env:FAULTLINE_NO_SUCH_TOKEN")
    assert report.status == "error"
    assert "env:FAULTLINE_NO_SUCH_TOKEN: the environment variable is not set" in report.note


def test_long_node_lists_go_as_a_form() -> None:
    methods = []

    def answer(path: str, params: dict[str, str]) -> Say:
        methods.append(len(params["query"]))
        return matrix(params)

    attempt = Attempt(
        workload=Workload(id="1"), started_at=1_780_000_000.0, ended_at=1_780_000_600.0,
        nodes=tuple(f"node-{number:04d}.rack.example.org" for number in range(300)),
    )  # fmt: skip
    with ScriptedServer(answer) as server:
        _, report = collect(server.url, attempt=attempt, nodes_per_query=1000, **ONE)
        assert server.requests[0][2]["content-type"] == "application/x-www-form-urlencoded"
    assert report.status == "ok" and methods[0] > 4000 and len(report.query) < 1000


def test_the_link_opens_grafana_explore_with_query_and_window() -> None:
    with ScriptedServer(lambda path, params: matrix(params)) as server:
        _, report = collect(server.url, **ONE, grafana_url="https://grafana.example.org/", grafana_datasource="prom-1")
    assert report.link.startswith("https://grafana.example.org/explore?schemaVersion=1&panes=%7B%22a%22")
    assert "prom-1" in report.link and "1780003900000" in report.link


def test_an_attempt_without_times_is_missing() -> None:
    with ScriptedServer(lambda path, params: matrix(params)) as server:
        _, report = collect(server.url, attempt=Attempt(workload=Workload(id="1"), nodes=("gx-01",)), **ONE)
        assert server.requests == []
    assert report.status == "missing" and "neither start nor end" in report.note


def test_queries_that_need_what_the_attempt_lacks_are_named() -> None:
    attempt = Attempt(workload=Workload(id="4242"), started_at=1_780_000_000.0, ended_at=1_780_000_600.0, nodes=("n1",))
    with ScriptedServer(lambda path, params: matrix(params)) as server:
        _, report = collect(server.url, attempt=attempt, queries=["up", "kube-pods"], resolution=60)
    assert report.status == "ok"
    assert "not asked, because the attempt has no namespace: kube-pods" in report.note
