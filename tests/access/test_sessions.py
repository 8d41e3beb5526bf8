"""Sessions and cookies: none that somebody else knew stays in use, none is readable or kept where it need not be."""

from __future__ import annotations

import os
import subprocess
import sys
from http.cookies import Morsel
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tests.access.routes import all_routes
from tests.access.world import Team
from triage.access.roles import Role
from triage.services.tokens import create_token

PASSWORD = "correct horse"


@pytest.fixture
def ada(db: None) -> User:
    return User.objects.create_user("ada", password=PASSWORD)


def sign_in(client: Client, password: str = PASSWORD) -> str:
    """The session's key afterwards."""
    client.post("/sign-in/", {"username": "ada", "password": password})
    return client.cookies["sessionid"].value


def with_session(key: str) -> Client:
    client = Client()
    client.cookies["sessionid"] = key
    return client


def may_read(client: Client) -> bool:
    return client.get("/insights/").status_code == 200


def test_a_session_that_somebody_planted_is_not_the_one_that_is_signed_in(ada: User) -> None:
    attacker = Client()
    session = attacker.session
    session["anything"] = 1
    session.save()
    planted = str(session.session_key)
    victim = with_session(planted)
    key = sign_in(victim)
    assert key != planted and may_read(victim)
    assert not may_read(with_session(planted))
    invented = "a" * 32
    assert sign_in(with_session(invented)) != invented and not may_read(with_session(invented))


def test_signing_in_as_somebody_else_ends_the_session_before(ada: User) -> None:
    User.objects.create_user("grace", password=PASSWORD)
    client = Client()
    before = sign_in(client)
    client.post("/sign-out/")
    client.post("/sign-in/", {"username": "grace", "password": PASSWORD})
    assert client.cookies["sessionid"].value != before and not may_read(with_session(before))


def test_a_session_that_was_copied_ends_with_signing_out_and_with_a_new_password(ada: User) -> None:
    client = Client()
    copied = with_session(sign_in(client))
    assert may_read(copied)
    answer = client.post("/sign-out/")
    assert not may_read(copied) and answer["Clear-Site-Data"] == '"cache"'
    copied = with_session(sign_in(client))
    other = "a wholly other horse"
    client.post("/password/", {"old_password": PASSWORD, "new_password1": other, "new_password2": other})
    assert may_read(client) and not may_read(copied)


def cookies_of(answer: Any) -> list[Morsel[str]]:
    return [cookie for cookie in answer.cookies.values() if cookie["max-age"] != 0]


def test_every_cookie_is_for_this_site_https_and_no_script_and_no_answer_is_kept_on_its_way(
    teams: tuple[Team, Team], settings: Any
) -> None:
    """Of any route. Not even an answer that refuses is kept: it may say whether something is there."""
    settings.SESSION_COOKIE_SECURE = settings.CSRF_COOKIE_SECURE = True  # as FAULTLINE_HTTPS sets them
    amber, _ = teams
    values, seen, wrong = {**amber.values(), "attempt": 1}, set(), []
    for client in (Client(), amber.client(Role.ADMIN)):
        for route in all_routes():
            for method in ("get", "post"):
                if route.name == "logout":
                    continue
                sent = {"theme": "dark", "keys": "1", "zone": "UTC"} if route.name == "preferences" else {}
                answer = getattr(client, method)(route.address(values), sent, secure=True)
                for cookie in cookies_of(answer):
                    seen.add(cookie.key)
                    if not (cookie["secure"] and cookie["httponly"] and cookie["samesite"] == "Lax"):
                        wrong.append((route.name, cookie.OutputString()))
                if "private" not in answer.headers.get("Cache-Control", ""):
                    wrong.append((route.name, method))
    signing_in = Client().post("/sign-in/", {"username": "overseer", "password": PASSWORD}, secure=True)
    session = signing_in.cookies["sessionid"]
    assert session["secure"] and session["httponly"] and session["samesite"] == "Lax" and not session["domain"]
    assert wrong == []
    assert seen >= {"csrftoken", "faultline_theme", "faultline_keys", "faultline_zone"}


# --- what an answer's time tells --------------------------------------------------------------------------------------


class Counting(PBKDF2PasswordHasher):
    """Counts what takes long."""

    times, iterations = 0, 1

    def encode(self, password: str, salt: str, iterations: int | None = None) -> str:
        type(self).times += 1
        return super().encode(password, salt, iterations)


@pytest.mark.parametrize("who", ["ada", "nobody", "left", "without"])
def test_a_sign_in_that_fails_takes_one_hash_whoever_is_named(ada: User, settings: Any, who: str) -> None:
    settings.PASSWORD_HASHERS = [f"{__name__}.Counting"]
    ada.set_password(PASSWORD)
    ada.save()
    User.objects.create_user("left", password=PASSWORD, is_active=False)
    User.objects.create_user("without")  # signs in elsewhere
    Counting.times = 0
    assert Client().post("/sign-in/", {"username": who, "password": "wrong"}).status_code == 200
    assert Counting.times == 1


def test_no_secret_that_opens_something_is_looked_up_as_it_is(teams: tuple[Team, Team]) -> None:
    """The database compares hashes and numbers: neither its time nor its log tells of a secret."""
    amber, _ = teams
    values = amber.values()
    _, token = create_token(amber.people[Role.RESPONDER], "t", ["read", "write", "ingest"])
    secrets = {str(values["token"]), str(values["followed word"]), token}
    parts = {part for secret in secrets for part in (secret, secret.rpartition(".")[2], secret.removeprefix("flt_"))}
    client = Client(headers={"Authorization": f"Bearer {token}"})
    with CaptureQueriesContext(
        connection,
    ) as queries:
        for route in all_routes():
            if {"token", "followed word"} & set(route.about) or "scopes" in dir(
                getattr(route.view, "view_class", None)
            ):
                client.get(route.address(values))
    told = "\n".join(query["sql"] for query in queries.captured_queries)
    assert len(queries.captured_queries) > 20
    assert [part for part in parts if len(part) > 8 and part in told] == []


def test_https_ties_cookies_to_this_very_host() -> None:
    """So that another name below the same domain can't plant one."""
    code = "from triage import settings as s; print(s.SESSION_COOKIE_NAME, s.CSRF_COOKIE_NAME, s.SESSION_COOKIE_SECURE)"
    told = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "FAULTLINE_HTTPS": "1"}, cwd=django_settings.BASE_DIR,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert told.stdout.split() == ["__Host-sessionid", "__Host-csrftoken", "True"]
