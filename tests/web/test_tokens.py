"""The page of one's own API tokens."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from triage.access.roles import Role
from triage.models import ApiToken, Person
from triage.services.tokens import MAX_TOKENS, create_token

pytestmark = pytest.mark.django_db
FORM = {"name": "slurm epilog", "scope": ["ingest", "read"], "days": "90"}


def secret_in(page: str) -> str:
    found = re.search(r"<code>(flt_[\w-]{40,})</code>", page)
    return found[1] if found else ""


def test_a_token_is_shown_once_and_gets_in(signed_in: Client) -> None:
    answer = signed_in.post("/tokens/", FORM)
    secret = secret_in(answer.content.decode())
    assert secret and "no-store" in answer["Cache-Control"]
    page = signed_in.get("/tokens/").content.decode()
    assert "slurm epilog" in page and "never" in page and secret not in page and not secret_in(page)
    made = ApiToken.objects.get()
    assert made.scopes == ["ingest", "read"]
    assert made.expires_at is not None and 89 <= (made.expires_at - timezone.now()).days <= 90
    assert Client().get("/api/v1/limits", headers={"Authorization": f"Bearer {secret}"}).status_code == 200
    assert "never" not in re.sub(r".*<h2", "", signed_in.get("/tokens/").content.decode(), flags=re.S)
    signed_in.post(f"/tokens/{made.pk}/revoke/")
    assert Client().get("/api/v1/limits", headers={"Authorization": f"Bearer {secret}"}).status_code == 401
    assert "revoked" in signed_in.get("/tokens/").content.decode()


def test_it_is_valid_for_ninety_days_unless_one_says_otherwise(signed_in: Client) -> None:
    page = signed_in.get("/tokens/").content.decode()
    assert re.search(r'name="days" value="90" checked', page)
    assert re.search(r'name="scope" value="read" checked', page) and not re.search(r'value="write" checked', page)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"scope": []}, "At least one scope"),
        ({"scope": ["admin"]}, "is not one of"),
        ({"name": "  "}, "A name is needed"),
        ({"days": "0"}, "Choose how long"),
        ({"days": "36500"}, "Choose how long"),
        ({"days": "x"}, "Choose how long"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_made(signed_in: Client, changed: dict[str, object], said: str) -> None:
    answer = signed_in.post("/tokens/", {**FORM, **changed})
    assert answer.status_code == 400 and said in answer.content.decode()
    assert not ApiToken.objects.exists()


def test_nobody_sees_or_ends_the_tokens_of_others(signed_in: Client) -> None:
    theirs, secret = create_token(User.objects.create_user("bob"), "bobs own", ["read"])
    assert "bobs own" not in signed_in.get("/tokens/").content.decode()
    signed_in.post(f"/tokens/{theirs.pk}/revoke/")
    assert Client().get("/api/v1/limits", headers={"Authorization": f"Bearer {secret}"}).status_code == 200


def test_a_viewer_is_offered_and_given_only_tokens_that_read(signed_in: Client, ada: User) -> None:
    Person.objects.create(user=ada, role=Role.VIEWER)
    page = signed_in.get("/tokens/").content.decode()
    assert 'value="read"' in page and 'value="ingest"' not in page and 'value="write"' not in page
    answer = signed_in.post("/tokens/", FORM)
    assert answer.status_code == 400 and "needs the role responder" in answer.content.decode()
    assert signed_in.post("/tokens/", {**FORM, "scope": ["read"]}).status_code == 200


def test_there_is_an_end_to_how_many_one_has(signed_in: Client, ada: User) -> None:
    for number in range(MAX_TOKENS):
        create_token(ada, str(number), ["read"], expires_at=timezone.now() + timedelta(days=1))
    answer = signed_in.post("/tokens/", FORM)
    assert answer.status_code == 400 and "revoke one first" in answer.content.decode()
    ApiToken.objects.filter(name="7").update(expires_at=timezone.now())
    assert signed_in.post("/tokens/", FORM).status_code == 200
