"""Attempts by the API: what the pages show, as JSON; made known by programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from tests.api.conftest import new_attempt
from tests.triage import cast
from tests.triage.conftest import MakeAttempt
from triage.models import Attempt

pytestmark = pytest.mark.django_db


def test_the_list_has_the_answer_and_its_nodes(session: Client, diagnosed: MakeAttempt) -> None:
    attempt = diagnosed()
    (row,) = session.get("/api/v1/attempts").json()["attempts"]
    assert row["id"] == attempt.pk
    assert row["workload"] == {"id": "48213", "name": "llama-7b", "scheduler": "slurm", "user": "ada", "queue": "gpu"}
    assert (row["started_at"], row["triage"]["state"]) == ("2026-11-03T02:00:00.000000Z", "done")
    assert row["verdict"]["title"] == "GPU fell off the bus on gx-02 (Xid 79)"
    assert (row["verdict"]["nodes"], row["verdict"]["status"]) == (["gx-02"], "unconfirmed")


def test_the_list_is_filtered_and_paged_as_on_the_pages(session: Client, diagnosed: MakeAttempt) -> None:
    wanted = [diagnosed(str(n), facts={"ended_at": cast.END.timestamp() + n}).pk for n in range(5)][::-1]
    diagnosed("other", domain="network", sub_domain="dns")
    for query in ({"domain": "hardware"}, {"q": "domain:hardware -node:gx-99"}):
        seen, cursor = [], ""
        while cursor is not None:
            params = {**query, "limit": 2, **({"cursor": cursor} if cursor else {})}
            page = session.get("/api/v1/attempts", params).json()
            seen += [row["id"] for row in page["attempts"]]
            cursor = page["older"]
        assert seen == wanted


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=x",
        "limit=201",
        "limit=99999999999999999999",
        "limit=\u0661",
        "cursor=x",
        "order=x",
        "q=domain:x",
    ],
)
def test_a_wrong_parameter_is_named(session: Client, query: str) -> None:
    answer = session.get(f"/api/v1/attempts?{query}")
    assert (answer.status_code, answer["Content-Type"]) == (400, "application/problem+json")
    assert [error["field"] for error in answer.json()["errors"]] == [query.split("=")[0]]


def test_one_attempt_and_its_diagnosis(session: Client, diagnosed: MakeAttempt) -> None:
    attempt = diagnosed()
    detail = session.get(f"/api/v1/attempts/{attempt.pk}").json()
    assert detail["verdict"]["nodes"] == ["gx-02"]
    assert detail["streams"] == [] and detail["collections"] == []
    assert attempt.diagnosis is not None
    assert session.get(f"/api/v1/attempts/{attempt.pk}/diagnosis").json() == attempt.diagnosis.contract


@pytest.mark.parametrize(
    "path",
    ["attempts/999", "attempts/999/diagnosis", "attempts/999/evidence/e1", "attempts/99999999999999999999", "nonsense",
     "incidents/999", "rules/none.such"],
)  # fmt: skip
def test_what_isnt_there_is_a_problem(session: Client, path: str) -> None:
    answer = session.get(f"/api/v1/{path}")
    assert (answer.status_code, answer["Content-Type"]) == (404, "application/problem+json")
    assert answer.json()["status"] == 404


def test_an_attempt_is_made_once_and_then_gets_facts(api: Client) -> None:
    first = new_attempt(api)
    body = {"cluster": "c1", "scheduler": "slurm", "workload_id": "48213", "reason": "NodeFail"}
    again = api.post("/api/v1/attempts", body, content_type="application/json")
    assert (again.status_code, again.json()["id"], again.json()["reason"]) == (200, first, "NodeFail")
    assert again.json()["state"] == "FAILED"  # what is not said stays
    assert new_attempt(api, number=2) != first
    assert new_attempt(api, cluster="c2") != first
    assert Attempt.objects.count() == 3


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"workload_id": ""}, "workload_id"),
        ({"workload_id": None}, "workload_id"),
        ({"number": -1}, "number"),
        ({"number": True}, "number"),
        ({"scheduler": "pbs"}, "scheduler"),
        ({"started_at": "yesterday"}, "started_at"),
        ({"started_at": "0124-01-01T00:00:00Z"}, "started_at"),
        ({"ended_at": "2026-11-03T01:00:00Z"}, "ended_at"),
        ({"nodes": "gx-01"}, "nodes"),
        ({"nodes": ["ok", ""]}, "nodes.1"),
        ({"exit_cod": "1"}, "exit_cod"),
        ({"name": "a\u0000b"}, "name"),
    ],
)
def test_a_wrong_fact_is_named(api: Client, change: dict[str, Any], field: str) -> None:
    body = {"workload_id": "1", "started_at": "2026-11-03T02:00:00Z", **change}
    answer = api.post("/api/v1/attempts", body, content_type="application/json")
    assert answer.status_code == 400
    assert [error["field"] for error in answer.json()["errors"]] == [field]
    assert not Attempt.objects.exists()


def test_an_idempotency_key_is_for_one_call(api: Client) -> None:
    def send(number: int) -> Any:
        body = {"workload_id": "1", "number": number}
        return api.post("/api/v1/attempts", body, content_type="application/json", headers={"Idempotency-Key": "k"})

    first = send(1)
    again = send(1)
    assert (first.status_code, again.status_code) == (201, 201)
    assert again["Idempotency-Replayed"] == "true"
    assert again.json() == first.json()
    assert send(2).status_code == 422


def test_what_hasnt_changed_is_not_sent_again(session: Client, diagnosed: MakeAttempt) -> None:
    address = f"/api/v1/attempts/{diagnosed().pk}/diagnosis"
    first = session.get(address)
    again = session.get(address, headers={"If-None-Match": first["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert session.get(address, headers={"If-None-Match": '"other"'}).status_code == 200


def test_calls_are_counted_and_too_many_refused(api: Client, session: Client, settings: Any) -> None:
    settings.FAULTLINE_API_RATE = 3
    answers = [api.get("/api/v1/limits") for _ in range(5)]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert refused  # a minute of the clock may have begun in between
    assert int(refused[0]["Retry-After"]) <= 60
    assert (answers[0]["X-RateLimit-Limit"], refused[0]["X-RateLimit-Remaining"]) == ("3", "0")
    assert refused[0].json()["title"] == "Too Many Requests"
    assert session.get("/api/v1/limits").status_code == 200  # counted by itself


def upload(client: Client, tmp_path: Path, name: str = "a.tar.zst") -> Any:
    content = cast.archive(tmp_path / "a.tar.zst", cast.members()).read_bytes()
    return client.post("/api/v1/bundles", {"bundle": SimpleUploadedFile(name, content)})


def test_a_bundle_is_taken_and_the_same_again_is_known(session: Client, tmp_path: Path) -> None:
    first, again = upload(session, tmp_path), upload(session, tmp_path)
    attempt = Attempt.objects.get()
    assert (first.status_code, first.json()) == (202, {"attempt": attempt.pk, "created": True, "requested": True})
    assert (again.status_code, again.json()) == (200, {"attempt": attempt.pk, "created": False, "requested": False})
    assert attempt.events.filter(actor__username="ada").count() == 3
    waiting = session.get(f"/api/v1/attempts/{attempt.pk}/diagnosis")
    assert (waiting.status_code, waiting.json()["triage"]["state"]) == (202, "pending")


def test_a_bundle_can_be_the_body(api: Client, tmp_path: Path) -> None:
    content = cast.archive(tmp_path / "a.tar.zst", cast.members()).read_bytes()
    answer = api.post("/api/v1/bundles?name=a.tar.zst", content, content_type="application/zstd")
    assert (answer.status_code, answer.json()["created"]) == (202, True)


def test_a_bad_bundle_is_refused_with_the_reason(session: Client, tmp_path: Path) -> None:
    answer = upload(session, tmp_path, "notes.txt")
    assert answer.status_code == 400
    assert "notes.txt: not an archive" in answer.json()["errors"][0]["message"]
    assert session.post("/api/v1/bundles", {"bundle": "text"}).status_code == 400


def test_uploading_by_a_session_needs_the_csrf_token(tmp_path: Path, db: None) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.create_user("ada"))
    assert upload(client, tmp_path).status_code == 403
    assert Attempt.objects.count() == 0
