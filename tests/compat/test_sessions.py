"""Sessions in the manner of NVIDIA Attribution's v2 API: one for an attempt, everything in any order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.api.conftest import ada, api, token, work
from triage.models import Attempt, Observation

__all__ = ["ada", "api", "token"]
pytestmark = pytest.mark.django_db
BASE = "/compat/attribution/v2"
ATTEMPT = {
    "cluster": "c1", "scheduler": "slurm", "workload_id": "48213", "number": 1, "state": "FAILED", "exit_code": "1:0",
    "started_at": "2026-11-03T02:00:00Z", "ended_at": "2026-11-03T04:22:31Z", "nodes": ["gx-01", "gx-02"],
    "gpus_per_node": 8,
}  # fmt: skip
XID = {
    "source": "syslog", "node": "gx-02", "text": "Nov  3 04:11:16 gx-02 kernel: NVRM: Xid (PCI:0000:61:00): 79, "
    "pid=1234, name=python, GPU has fallen off the bus.",
}  # fmt: skip
CRASH = {"source": "applog", "rank": 3, "observed_at": "2026-11-03T04:11:54Z", "text": "iteration 1525 | loss 2.1"}


def post(client: Client, path: str, body: Any = None) -> Any:
    return client.post(f"{BASE}/{path}", body if body is not None else {}, content_type="application/json")


def opened(client: Client) -> str:
    answer = post(client, "sessions", ATTEMPT)
    assert answer.status_code in (200, 201), answer.content
    return answer.json()["handle"]


def test_it_says_that_it_is_there_without_a_token(client: Client) -> None:
    assert client.get(f"{BASE}/healthz").json() == {"status": "ok"}
    assert post(client, "sessions", ATTEMPT).status_code == 401


def test_an_attempt_has_one_handle_however_often_it_is_opened(api: Client) -> None:
    assert post(api, "sessions", ATTEMPT).status_code == 201
    again = post(api, "sessions", ATTEMPT)
    assert again.status_code == 200 and again.json()["handle"] == opened(api) and Attempt.objects.count() == 1


def test_what_was_observed_becomes_one_verdict(api: Client, data_dir: Any) -> None:
    handle = opened(api)
    taken = post(api, f"sessions/{handle}/observations", {"observations": [XID, CRASH]})
    assert taken.status_code == 202 and taken.json()["accepted"] == 2
    assert sorted(Observation.objects.values_list("name", flat=True)) == ["applog/rank3.log", "syslog/gx-02.log"]
    pending = post(api, f"sessions/{handle}/attribute")
    assert pending.status_code == 202 and pending.json()["status"] == "pending" and pending.json()["verdict"] is None
    work(int(handle))
    verdict = api.get(f"{BASE}/sessions/{handle}/verdict").json()["verdict"]
    assert (verdict["domain"], verdict["nodes"]) == ("hardware", ["gx-02"])
    assert [node["node"] for node in verdict["recommendation"]["exclude_nodes"]] == ["gx-02"]
    assert any(item["stream"] == "syslog/gx-02.log" for item in verdict["evidence"])


def test_the_order_does_not_matter(api: Client, data_dir: Any) -> None:
    """A verdict is asked for before anything was observed; what comes later makes another one."""
    handle = opened(api)
    assert post(api, f"sessions/{handle}/attribute").status_code == 202
    work(int(handle))
    assert api.get(f"{BASE}/sessions/{handle}/verdict").json()["verdict"]["domain"] == "unattributed"
    post(api, f"sessions/{handle}/observations", {"observations": [XID]})
    post(api, f"sessions/{handle}/attribute")
    work(int(handle))
    assert api.get(f"{BASE}/sessions/{handle}/verdict").json()["verdict"]["domain"] == "hardware"


def test_a_call_that_is_sent_twice_with_its_key_counts_once(api: Client) -> None:
    handle = opened(api)
    for _ in range(2):
        answer = api.post(
            f"{BASE}/sessions/{handle}/observations", {"observations": [XID]}, content_type="application/json",
            headers={"Idempotency-Key": "batch-1"},
        )  # fmt: skip
        assert answer.status_code == 202
    assert Observation.objects.get().size == len(XID["text"]) + 1
    assert api.get(f"{BASE}/sessions/{handle}").json()["observed"] == [
        {"stream": "syslog/gx-02.log", "bytes": len(XID["text"]) + 1}
    ]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "observations"),
        ({"observations": []}, "observations"),
        ({"observations": [XID, {"source": "syslog"}]}, "observations[1].text"),
        ({"observations": [{**XID, "source": "gossip"}]}, "observations[0].source"),
        ({"observations": [{**XID, "node": "../etc"}]}, "observations[0].node"),
        ({"observations": [{**XID, "nod": "gx-01"}]}, "observations[0].nod"),
        ({"observations": ["text"]}, "observations[0].body"),
        ([], "body"),
    ],
)
def test_a_bad_observation_stops_all_and_is_named(api: Client, body: Any, field: str) -> None:
    handle = opened(api)
    answer = post(api, f"sessions/{handle}/observations", body)
    assert answer.status_code == 400 and field in [error["field"] for error in answer.json()["errors"]], answer.json()
    assert not Observation.objects.exists()


def test_a_handle_that_was_never_given_out_is_404(api: Client) -> None:
    for path in ("sessions/987654", "sessions/987654/verdict"):
        assert api.get(f"{BASE}/{path}").status_code == 404
    for path in ("sessions/987654/observations", "sessions/987654/attribute"):
        assert post(api, path, {"observations": [XID]}).status_code == 404


def test_each_call_needs_its_scope(token: Callable[..., Client], ada: User) -> None:
    handle = opened(token("ingest"))
    assert token("ingest").get(f"{BASE}/sessions/{handle}/verdict").status_code == 403
    assert token("read").get(f"{BASE}/sessions/{handle}/verdict").status_code == 202
    assert post(token("read"), f"sessions/{handle}/observations", {"observations": [XID]}).status_code == 403
    assert post(token("read"), f"sessions/{handle}/attribute").status_code == 403
