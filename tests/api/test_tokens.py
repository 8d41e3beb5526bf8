"""Tokens: what each scope may do, on every endpoint; made, used, expired, revoked."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import timedelta
from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import URLPattern
from django.utils import timezone

from tests.triage.conftest import MakeAttempt
from triage.api import urls
from triage.models import ApiToken
from triage.services.tokens import TokenRefused, create_token, find_token

pytestmark = pytest.mark.django_db
READ, INGEST, WRITE = {"read"}, {"ingest"}, {"write"}
TABLE: dict[str, dict[str, set[str]]] = {
    "attempts": {"GET": READ, "POST": INGEST},
    "attempts/{id}": {"GET": READ, "PATCH": INGEST},
    "attempts/{id}/observations": {"GET": READ | INGEST, "POST": INGEST},
    "attempts/{id}/observations/applog/a.log": {"GET": READ | INGEST, "PUT": INGEST},
    "attempts/{id}/diagnosis": {"GET": READ, "POST": INGEST},
    "attempts/{id}/diagnoses": {"GET": READ},
    "attempts/{id}/diagnoses/1": {"GET": READ},
    "attempts/{id}/evidence": {"GET": READ},
    "attempts/{id}/evidence/e1": {"GET": READ},
    "attempts/{id}/coverage": {"GET": READ},
    "attempts/{id}/recommendation": {"GET": READ},
    "attempts/{id}/verdicts": {"GET": READ, "POST": WRITE, "DELETE": WRITE},
    "attempts/{id}/comments": {"GET": READ, "POST": WRITE},
    "incidents": {"GET": READ},
    "incidents/1": {"GET": READ, "PATCH": WRITE},
    "incidents/1/comments": {"GET": READ, "POST": WRITE},
    "bundles": {"POST": INGEST},
    "nodes": {"GET": READ},
    "rules": {"GET": READ},
    "rules/xid.79": {"GET": READ},
    "limits": {"GET": READ | INGEST},
}
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
REFUSED = (401, 403)


def test_the_table_has_every_endpoint() -> None:
    """So that a new one without a rule here fails."""
    routes = [pattern for pattern in urls.urlpatterns if isinstance(pattern, URLPattern) and pattern.name != "fallback"]
    assert len(routes) == len(TABLE)
    for pattern in routes:
        assert any(pattern.resolve(path.replace("{id}", "1")) for path in TABLE), pattern


@pytest.mark.parametrize("path", TABLE)
def test_each_scope_reaches_what_it_is_for_and_nothing_else(
    token: Callable[..., Client], diagnosed: MakeAttempt, path: str
) -> None:
    address = f"/api/v1/{path.replace('{id}', str(diagnosed().pk))}"
    for scope in ("read", "ingest", "write"):
        client = token(scope)
        for method in METHODS:
            status = client.generic(method, address, "{}", content_type="application/json").status_code
            wanted = TABLE[path].get(method)
            if wanted is None:
                assert status == 405, (scope, method, status)
            elif scope in wanted:
                assert status not in (*REFUSED, 405) and status < 500, (scope, method, status)
            else:
                assert status == 403, (scope, method, status)


@pytest.mark.parametrize("path", TABLE)
def test_nothing_is_told_to_strangers(client: Client, path: str) -> None:
    for method in TABLE[path]:
        for headers in ({}, {"Authorization": "Bearer flt_nonsense"}, {"Authorization": "Bearer "}):
            answer = client.generic(method, f"/api/v1/{path.replace('{id}', '1')}", "{}", headers=headers)
            assert answer.status_code == 401
            assert answer["WWW-Authenticate"].startswith("Bearer")


def test_only_its_hash_is_kept(ada: User) -> None:
    made, secret = create_token(ada, "ci", ["read"])
    assert secret.startswith("flt_") and len(secret) > 40
    assert secret not in str(ApiToken.objects.values().get())
    assert find_token(secret) == made
    used = ApiToken.objects.get().last_used_at
    assert used is not None and timezone.now() - used < timedelta(seconds=10)


def test_an_expired_a_revoked_and_a_leaver_s_token_are_worth_nothing(ada: User, client: Client) -> None:
    made, secret = create_token(ada, "ci", ["read"], expires_at=timezone.now() + timedelta(days=1))
    headers = {"Authorization": f"Bearer {secret}"}
    assert client.get("/api/v1/attempts", headers=headers).status_code == 200
    ApiToken.objects.update(expires_at=timezone.now())
    assert client.get("/api/v1/attempts", headers=headers).status_code == 401
    ApiToken.objects.update(expires_at=None)
    User.objects.update(is_active=False)
    assert client.get("/api/v1/attempts", headers=headers).status_code == 401
    User.objects.update(is_active=True)
    call_command("api_token", "revoke", str(made.pk))
    assert client.get("/api/v1/attempts", headers=headers).status_code == 401


def test_the_token_may_be_the_password_of_an_address(ada: User, client: Client) -> None:
    _, secret = create_token(ada, "ci", ["read"])
    word = base64.b64encode(f"token:{secret}".encode()).decode()
    assert client.get("/api/v1/attempts", headers={"Authorization": f"Basic {word}"}).status_code == 200


def test_the_command_makes_lists_and_revokes(ada: User) -> None:
    out = StringIO()
    call_command("api_token", "create", "ada", "slurm prolog", "--scope", "ingest", "--days", "30", stdout=out)
    made = find_token(out.getvalue().strip())
    assert made is not None and made.scopes == ["ingest"]
    assert made.expires_at is not None and 29 <= (made.expires_at - timezone.now()).days <= 30
    listed = StringIO()
    call_command("api_token", "list", stdout=listed)
    assert "slurm prolog" in listed.getvalue() and out.getvalue().strip() not in listed.getvalue()
    call_command("api_token", "revoke", str(made.pk))
    with pytest.raises(CommandError, match="no valid token"):
        call_command("api_token", "revoke", str(made.pk))
    with pytest.raises(CommandError, match="no active user 'bob'"):
        call_command("api_token", "create", "bob", "x")


@pytest.mark.parametrize(
    ("scopes", "message"), [([], "at least one scope"), (["admin"], "scope 'admin' is not one of")]
)
def test_a_token_without_a_known_scope_is_refused(ada: User, scopes: list[str], message: str) -> None:
    with pytest.raises(TokenRefused, match=message):
        create_token(ada, "x", scopes)
