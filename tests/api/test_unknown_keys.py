"""A body says what it says and nothing more: what is not known is refused by name, not written and not ignored."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.test import Client
from django.urls import get_resolver
from drf_spectacular.generators import SchemaGenerator
from rest_framework.serializers import Serializer

from triage.api.schemas import Strict
from triage.models import ApiToken, Attempt, AuditEntry, Comment, Incident, Person, Scope, Verdict
from triage.services.tokens import create_token

FORGED = (
    "id",
    "pk",
    "user_id",
    "by",
    "author",
    "role",
    "is_staff",
    "is_superuser",
    "verdict_status",
    "rule",
    "gpu_hours",
)


def calls() -> list[tuple[str, str, str]]:
    """(method, address, name of the schema) of every call with a JSON body, by the API's own document."""
    document = SchemaGenerator().get_schema(request=None, public=True)
    found = []
    for address, methods in document["paths"].items():
        for method, call in methods.items():
            body = call.get("requestBody", {}).get("content", {}).get("application/json")
            if body is not None:
                found.append((method, address, body["schema"]["$ref"].rpartition("/")[2]))
    return found


def test_there_are_such_calls_and_each_body_is_of_a_strict_schema() -> None:
    assert len(calls()) >= 6
    strict: set[str] = set()
    waiting: list[type[Serializer[Any]]] = [Strict]
    while waiting:
        one = waiting.pop()
        strict.add(one.__name__)
        waiting += one.__subclasses__()
    names = {name.removeprefix("Patched").removesuffix("Request") for _, _, name in calls()}
    assert names <= strict


def test_a_key_that_is_not_known_is_refused_by_name_and_changes_nothing(db: None, settings: Any) -> None:
    settings.FAULTLINE_API_RATE = 0
    user = User.objects.create_user("ada")
    _, secret = create_token(user, "t", Scope.values)
    client = Client(headers={"Authorization": f"Bearer {secret}"})
    facts = {"cluster": "c1", "scheduler": "slurm", "workload_id": "7", "number": 1, "state": "FAILED"}
    attempt = client.post("/api/v1/attempts", facts, "application/json").json()["id"]
    incident = Incident.objects.create(title="t", domain="hardware", sub_domain="gpu").pk
    valid: dict[str, dict[str, Any]] = {
        "NewAttempt": {**facts, "workload_id": "8"},
        "Facts": {"state": "CANCELLED"},
        "NewComment": {"text": "words"},
        "NewVerdict": {"kind": "confirmed", "diagnosis": 1, "seen": None},
        "IncidentChange": {"title": "other"},
    }
    models = (Attempt, Comment, Incident, Verdict, User, Person, ApiToken)
    before = {model: list(model.objects.order_by("pk").values()) for model in models}
    entries = AuditEntry.objects.count()
    for method, address, name in calls():
        name = name.removeprefix("Patched").removesuffix("Request")
        place = address.replace("{attempt_id}", str(attempt)).replace("{incident_id}", str(incident))
        for forged in FORGED:
            answer = getattr(client, method)(place, {**valid[name], forged: 1}, "application/json")
            assert answer.status_code == 400, (method, place, answer.content)
            assert [error["field"] for error in answer.json()["errors"]] == [forged], answer.content
    after = {model: list(model.objects.order_by("pk").values()) for model in models}
    for rows in (before, after):
        for row in rows[ApiToken]:
            row.pop("last_used_at")
    assert before == after and AuditEntry.objects.count() == entries


def test_every_route_of_the_api_is_in_the_document_or_takes_no_json() -> None:
    """So that none is left out above."""
    document = SchemaGenerator().get_schema(request=None, public=True)
    undocumented = set()
    for entry in get_resolver("triage.api.urls").url_patterns:
        view = getattr(entry.callback, "view_class", None)
        if entry.name == "fallback":
            continue
        for method in getattr(view, "scopes", {}):
            place = "/api/v1/" + str(entry.pattern).replace("<int:", "{").replace("<path:", "{").replace("<str:", "{")
            if method.lower() not in document["paths"].get(place.replace(">", "}"), {}):
                undocumented.add((method, place))
    assert undocumented == set()
