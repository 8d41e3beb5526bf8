"""What people say, said by programs in their name."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from tests.triage.conftest import MakeAttempt
from triage.models import Incident

pytestmark = pytest.mark.django_db


def post(client: Client, path: str, body: dict[str, Any], **headers: str) -> Any:
    return client.post(f"/api/v1/{path}", body, content_type="application/json", headers=headers)


def test_a_diagnosis_is_confirmed_corrected_and_the_word_taken_back(api: Client, diagnosed: MakeAttempt) -> None:
    attempt = diagnosed()
    path = f"attempts/{attempt.pk}/verdicts"
    said = post(api, path, {"kind": "confirmed", "diagnosis": attempt.diagnosis_id})
    assert (said.status_code, said.json()["status"]) == (201, "confirmed")
    standing = said.json()["verdicts"][0]["id"]
    unseen = {
        "kind": "wrong_cause",
        "diagnosis": attempt.diagnosis_id,
        "domain": "network",
        "sub_domain": "dns",
        "reason": "x",
    }
    refused = post(api, path, unseen)
    assert (refused.status_code, refused.json()["standing"]) == (409, standing)
    corrected = post(api, path, {**unseen, "seen": standing, "title": "DNS was down"})
    assert corrected.json()["status"] == "corrected"
    assert api.get(f"/api/v1/attempts/{attempt.pk}").json()["verdict"]["title"] == "DNS was down"
    newest = corrected.json()["verdicts"][0]["id"]
    assert api.delete(f"/api/v1/{path}?verdict={newest}").json()["status"] == "unconfirmed"
    assert api.delete(f"/api/v1/{path}?verdict={newest}").status_code == 409


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"domain": None}, "domain"),
        ({"sub_domain": "nonsense"}, "sub_domain"),
        ({"reason": ""}, "reason"),
        ({"kind": "x"}, "kind"),
    ],
)
def test_a_correction_that_says_too_little_is_named(
    api: Client, diagnosed: MakeAttempt, change: Any, field: str
) -> None:
    attempt = diagnosed()
    body = {
        "kind": "wrong_cause",
        "diagnosis": attempt.diagnosis_id,
        "domain": "network",
        "sub_domain": "dns",
        "reason": "x",
    }
    refused = post(
        api, f"attempts/{attempt.pk}/verdicts", {k: v for k, v in {**body, **change}.items() if v is not None}
    )
    assert refused.status_code == 400
    assert field in [error["field"] for error in refused.json()["errors"]]


def test_comments_on_attempts_and_incidents(api: Client, diagnosed: MakeAttempt) -> None:
    attempt = diagnosed()
    incident = Incident.objects.get()
    for path in (f"attempts/{attempt.pk}/comments", f"incidents/{incident.pk}/comments"):
        first = post(api, path, {"text": "the cable again"}, **{"Idempotency-Key": path.replace("/", "-")})
        post(api, path, {"text": "the cable again"}, **{"Idempotency-Key": path.replace("/", "-")})
        assert first.status_code == 201
        assert [row["text"] for row in api.get(f"/api/v1/{path}").json()["comments"]] == ["the cable again"]
    refused = post(api, f"attempts/{attempt.pk}/comments", {"text": "x", "quotes": ["no lines"]})
    assert refused.json()["errors"][0]["field"] == "quotes"


def test_incidents_are_listed_read_and_moved_on(api: Client, diagnosed: MakeAttempt) -> None:
    attempt = diagnosed()
    (row,) = api.get("/api/v1/incidents").json()["incidents"]
    detail = api.get(f"/api/v1/incidents/{row['id']}").json()
    assert detail["newest_attempts"] == [attempt.pk]
    assert detail["nodes"][0]["node"] == "gx-02"
    address = f"/api/v1/incidents/{row['id']}"
    change = {"status": "resolved", "seen_status": "new"}
    assert api.patch(address, change, content_type="application/json").json()["status"] == "resolved"
    conflict = api.patch(address, {**change, "status": "mitigated"}, content_type="application/json")
    assert conflict.status_code == 409
    assert api.get("/api/v1/incidents").json()["incidents"] == []
    assert api.get("/api/v1/incidents?state=x").json()["errors"][0]["field"] == "state"


def test_nodes_and_rules(api: Client, diagnosed: MakeAttempt) -> None:
    diagnosed("1")
    diagnosed("2")
    assert api.get("/api/v1/nodes").json()["nodes"][0] | {"last_at": ""} == {
        "node": "gx-02", "cluster": "c1", "blamed": 2, "last_at": "",
    }  # fmt: skip
    assert api.get("/api/v1/nodes?domain=network").json()["nodes"] == []
    rules = api.get("/api/v1/rules?domain=hardware").json()
    assert rules["ruleset"].startswith("sha256:") and len(rules["rules"]) > 10
    assert api.get("/api/v1/rules/xid.79").json()["id"] == "xid.79"
