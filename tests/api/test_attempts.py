"""The API: what the pages show, as JSON."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from tests.triage import cast
from tests.triage.conftest import MakeAttempt, data_dir, diagnosed
from triage.models import Attempt

__all__ = ["data_dir", "diagnosed"]

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada(client: Client) -> Client:
    client.force_login(User.objects.create_user("ada"))
    return client


@pytest.mark.parametrize("path", ["attempts", "attempts/1", "attempts/1/diagnosis", "bundles"])
def test_nothing_is_told_to_strangers(client: Client, path: str) -> None:
    assert client.get(f"/api/v1/{path}").status_code == 403
    assert client.post(f"/api/v1/{path}").status_code == 403


def test_the_list_has_the_verdict_and_its_nodes(ada: Client, diagnosed: MakeAttempt) -> None:
    attempt = diagnosed()
    (row,) = ada.get("/api/v1/attempts").json()["attempts"]
    assert row["id"] == attempt.pk
    assert row["workload"] == {"id": "48213", "name": "llama-7b", "scheduler": "slurm", "user": "ada", "queue": "gpu"}
    assert (row["started_at"], row["triage"]["state"]) == ("2026-11-03T02:00:00.000000Z", "done")
    assert row["verdict"]["title"] == "GPU fell off the bus on gx-02 (Xid 79)"
    assert row["verdict"]["nodes"] == ["gx-02"]


def test_the_list_is_filtered_and_paged_as_on_the_pages(ada: Client, diagnosed: MakeAttempt) -> None:
    wanted = [diagnosed(str(n), facts={"ended_at": cast.END.timestamp() + n}).pk for n in range(5)][::-1]
    diagnosed("other", domain="network", sub_domain="dns")
    seen, cursor = [], ""
    while cursor is not None:
        page = ada.get("/api/v1/attempts", {"domain": "hardware", "limit": 2, **({"cursor": cursor} if cursor else {})})
        seen += [row["id"] for row in page.json()["attempts"]]
        cursor = page.json()["older"]
    assert seen == wanted


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=x", "limit=201", "limit=99999999999999999999", "limit=\u0661", "cursor=x"]
)
def test_a_wrong_parameter_is_named(ada: Client, query: str) -> None:
    answer = ada.get(f"/api/v1/attempts?{query}")
    assert answer.status_code == 400
    assert set(answer.json()) == {query.split("=")[0]}


def test_one_attempt_and_its_diagnosis(ada: Client, diagnosed: MakeAttempt) -> None:
    attempt = diagnosed()
    detail = ada.get(f"/api/v1/attempts/{attempt.pk}").json()
    assert detail["verdict"]["nodes"] == ["gx-02"]
    assert detail["streams"] == [] and detail["collections"] == []
    assert attempt.diagnosis is not None
    assert ada.get(f"/api/v1/attempts/{attempt.pk}/diagnosis").json() == attempt.diagnosis.contract


def test_what_isnt_there_is_404(ada: Client, tmp_path: Path) -> None:
    assert ada.get("/api/v1/attempts/999").status_code == 404
    assert ada.get("/api/v1/attempts/999/diagnosis").status_code == 404
    upload(ada, tmp_path)
    waiting = Attempt.objects.get()
    assert ada.get(f"/api/v1/attempts/{waiting.pk}").json()["verdict"] is None
    assert ada.get(f"/api/v1/attempts/{waiting.pk}/diagnosis").status_code == 404


def upload(client: Client, tmp_path: Path, name: str = "a.tar.zst") -> object:
    content = cast.archive(tmp_path / "a.tar.zst", cast.members()).read_bytes()
    return client.post("/api/v1/bundles", {"bundle": SimpleUploadedFile(name, content)})


def test_a_bundle_is_taken_and_the_same_again_is_known(ada: Client, tmp_path: Path) -> None:
    first, again = upload(ada, tmp_path), upload(ada, tmp_path)
    attempt = Attempt.objects.get()
    assert (first.status_code, first.json()) == (202, {"attempt": attempt.pk, "created": True, "requested": True})
    assert (again.status_code, again.json()) == (200, {"attempt": attempt.pk, "created": False, "requested": False})
    assert attempt.events.filter(actor__username="ada").count() == 3


def test_a_bad_bundle_is_refused_with_the_reason(ada: Client, tmp_path: Path) -> None:
    answer = upload(ada, tmp_path, "notes.txt")
    assert answer.status_code == 400
    assert "notes.txt: not an archive" in answer.json()["bundle"]
    assert ada.post("/api/v1/bundles", {"bundle": "text"}).status_code == 400
    assert ada.post("/api/v1/bundles", "{}", content_type="application/json").status_code == 415


def test_uploading_by_a_session_needs_the_csrf_token(tmp_path: Path, db: None) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.create_user("ada"))
    assert upload(client, tmp_path).status_code == 403
    assert Attempt.objects.count() == 0
