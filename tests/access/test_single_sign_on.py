"""Sign-in by OpenID Connect, against a real provider: Canaille, in an environment of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx
import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from tests.peers import leave_out
from triage import env
from triage.access.roles import Role
from triage.access.viewer import role_of
from triage.models import Person
from triage.supervisor.ports import free_port

PACKAGE = "canaille[front,oidc]==0.3.6"
SERVER = Path(__file__).parents[1] / "peers" / "oidc_provider.py"
CALLBACK = "http://testserver/oidc/sso/login/callback/"
PASSWORD = "correct horse battery"
PEOPLE = {
    "ada": {"name": "Ada Moreau", "groups": ["gpu-oncall", "ml-pretrain"]},
    "root": {"name": "Rosa Root", "groups": ["gpu-oncall", "gpu-admins"]},
    "eve": {"name": "Eve Else", "groups": ["sales"]},
}


@pytest.fixture(scope="session")
def canaille(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python that has it. CANAILLE_PYTHON names one that was set up before. Without the package these tests are
    skipped; in CI that is an error.
    """
    known = os.environ.get("CANAILLE_PYTHON")
    if known:
        return Path(known)
    folder = tmp_path_factory.mktemp("canaille")
    made = [
        [sys.executable, "-m", "venv", str(folder)],
        [str(folder / "bin/pip"), "install", "--quiet", "--disable-pip-version-check", PACKAGE],
    ]
    for words in made:
        done = subprocess.run(words, capture_output=True, text=True, timeout=400, check=False)
        if done.returncode:
            leave_out(f"{PACKAGE} can't be had: {done.stderr[-500:]}")
    return folder / "bin/python"


@pytest.fixture(scope="session")
def provider(canaille: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address while it runs."""
    port = free_port()
    log = tmp_path_factory.mktemp("provider") / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [str(canaille), str(SERVER), str(port), CALLBACK], stdin=subprocess.PIPE, stdout=out, stderr=out
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(PEOPLE).encode())
        process.stdin.close()
        address = f"http://127.0.0.1:{port}"
        try:
            _wait_for(f"{address}/.well-known/openid-configuration", process, log)
            yield address
        finally:
            process.terminate()
            process.wait(timeout=20)


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(url, timeout=5).status_code == 200:
                return
        except httpx.HTTPError:
            time.sleep(0.3)
    pytest.fail(f"the provider did not start: {log.read_text()[-2000:]}")


@pytest.fixture
def configured(provider: str, settings: Any, monkeypatch: pytest.MonkeyPatch, db: None) -> Any:
    """Settings as the environment gives them."""
    for name, value in {
        "FAULTLINE_OIDC_URL": provider,
        "FAULTLINE_OIDC_CLIENT_ID": "faultline",
        "FAULTLINE_OIDC_CLIENT_SECRET": "not secret here",
        "FAULTLINE_OIDC_TOKEN_AUTH": "client_secret_basic",
        "FAULTLINE_OIDC_ROLES": "gpu-oncall=responder, gpu-admins=admin",
        "FAULTLINE_OIDC_TEAMS": "ml-pretrain=pretrain, ml-vision=vision",
    }.items():
        monkeypatch.setenv(name, value)
    settings.FAULTLINE_OIDC_URL = provider
    settings.FAULTLINE_OIDC_NAME = "Example ID"
    settings.FAULTLINE_OIDC_ROLES = env.pairs("FAULTLINE_OIDC_ROLES", settings.ROLES)
    settings.FAULTLINE_OIDC_TEAMS = env.pairs("FAULTLINE_OIDC_TEAMS")
    settings.SOCIALACCOUNT_PROVIDERS = {"openid_connect": {"OAUTH_PKCE_ENABLED": True, "APPS": env.oidc_apps()}}
    return settings


def sign_in(client: Client, name: str, back_to: str = "/rules/") -> Any:
    """As a browser does it: from the sign-in page to the provider, through its forms, and back. The last answer."""
    page = client.get(f"/sign-in/?next={back_to}").content.decode()
    link = re.search(r'href="(/oidc/[^"]+)">Sign in with Example ID', page)
    assert link, "the sign-in page offers it"
    there = client.get(link[1].replace("&amp;", "&"))
    assert there.status_code == 302 and "code_challenge=" in there["Location"]
    with httpx.Client(follow_redirects=False, timeout=30) as browser:
        answer = browser.get(there["Location"])
        for _ in range(20):
            where = answer.headers.get("Location", "")
            if urljoin(str(answer.url), where).startswith(CALLBACK):
                back = urlsplit(where)
                return client.get(f"{back.path}?{back.query}")
            if where:
                answer = browser.get(urljoin(str(answer.url), where))
                continue
            answer = browser.post(str(answer.url), data=_filled(answer.text, name))
    pytest.fail(f"the provider did not send the browser back: {answer.url} {answer.text[:500]}")


def account_of(name: str) -> User:
    """The account that somebody's sign-in made."""
    return User.objects.get(socialaccount__extra_data__userinfo__email=f"{name}@example.org")


def _filled(page: str, name: str) -> dict[str, str]:
    """The provider's form: hidden fields as they are, name and password, and yes to what it asks."""
    fields = {}
    for tag in re.findall(r"<input[^>]*>", page):
        facts = dict(re.findall(r'(\w+)="([^"]*)"', tag))
        if facts.get("type") == "hidden" and "name" in facts:
            fields[facts["name"]] = facts.get("value", "")
    if 'name="login"' in page:
        fields["login"] = name
    if 'name="password"' in page:
        fields["password"] = PASSWORD
    if 'value="accept"' in page:
        fields["answer"] = "accept"
    return fields


def test_whoever_the_provider_vouches_for_comes_in_with_role_and_teams_of_their_groups(
    client: Client, configured: Any
) -> None:
    answer = sign_in(client, "ada")
    assert answer.status_code == 302 and answer["Location"] == "/rules/"
    user = account_of("ada")
    assert role_of(user) == Role.RESPONDER and not user.has_usable_password()
    assert [group.name for group in user.groups.all()] == ["pretrain"]
    assert client.get("/upload/").status_code == 200
    assert client.get("/channels/").status_code == 403
    page = client.get("/rules/").content.decode()
    assert "Ada Moreau" in page


def test_the_highest_role_of_the_groups_counts(client: Client, configured: Any) -> None:
    sign_in(client, "root")
    assert role_of(account_of("root")) == Role.ADMIN
    assert client.get("/channels/").status_code == 200


def test_who_is_in_no_group_with_a_role_is_not_let_in(client: Client, configured: Any) -> None:
    answer = sign_in(client, "eve")
    assert answer.status_code == 403 and "None of your groups has a role" in answer.content.decode()
    assert not User.objects.exists() and client.get("/").status_code == 302


def test_unless_there_is_a_role_for_everybody_else(client: Client, configured: Any) -> None:
    configured.FAULTLINE_OIDC_ROLE = "viewer"
    assert sign_in(client, "eve").status_code == 302
    assert role_of(account_of("eve")) == Role.VIEWER


def test_each_sign_in_renews_role_and_teams_and_leaves_what_people_set(client: Client, configured: Any) -> None:
    sign_in(client, "ada")
    user = account_of("ada")
    Person.objects.filter(user=user).update(role=Role.ADMIN)
    user.groups.set([Group.objects.create(name="vision"), Group.objects.create(name="friends")])
    sign_in(Client(), "ada")
    user = account_of("ada")
    assert role_of(user) == Role.RESPONDER
    assert sorted(group.name for group in user.groups.all()) == ["friends", "pretrain"]


def test_a_local_account_of_the_same_name_and_address_stays_its_own(client: Client, configured: Any) -> None:
    local = User.objects.create_superuser("ada", "ada@example.org", "correct horse")
    sign_in(client, "ada")
    mine = account_of("ada")
    assert mine != local and mine.username != "ada" and role_of(mine) == Role.RESPONDER
    assert client.get("/channels/").status_code == 403


def test_a_closed_account_is_told_so(client: Client, configured: Any) -> None:
    sign_in(client, "ada")
    User.objects.update(is_active=False)
    assert client.get("/rules/").status_code == 302, "at once, also where one is signed in"
    answer = sign_in(Client(), "ada")
    assert answer.status_code == 403 and "Your account is closed" in answer.content.decode()


def test_an_answer_that_nobody_asked_for_or_that_is_made_up_signs_nobody_in(client: Client, configured: Any) -> None:
    for query in ("", "?code=abc&state=xyz", "?error=access_denied&state=xyz"):
        answer = client.get(f"/oidc/sso/login/callback/{query}", follow=True)
        assert answer.status_code in (200, 403, 502) and "_auth_user_id" not in client.session
    assert not User.objects.exists()
    assert client.get("/oidc/other/login/").status_code == 404


def test_a_provider_that_does_not_answer_is_said_in_a_sentence(client: Client, configured: Any) -> None:
    app = configured.SOCIALACCOUNT_PROVIDERS["openid_connect"]["APPS"][0]
    app["settings"]["server_url"] = "http://127.0.0.1:9"
    answer = client.get("/oidc/sso/login/")
    assert answer.status_code == 502 and "be reached at the moment" in answer.content.decode()


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("FAULTLINE_OIDC_URL", "http://id.example.org", "begins with https://"),
        ("FAULTLINE_OIDC_CLIENT_ID", "", "needs FAULTLINE_OIDC_CLIENT_ID"),
    ],
)
def test_a_wrong_configuration_is_refused_at_the_start(
    name: str, value: str, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAULTLINE_OIDC_URL", "https://id.example.org")
    monkeypatch.setenv("FAULTLINE_OIDC_CLIENT_ID", "x")
    monkeypatch.setenv("FAULTLINE_OIDC_CLIENT_SECRET", "y")
    monkeypatch.setenv(name, value)
    with pytest.raises(env.SettingError, match=error):
        env.oidc_apps()
    monkeypatch.setenv("FAULTLINE_OIDC_ROLES", "a=boss")
    with pytest.raises(env.SettingError, match="'boss' of 'a' is not one of"):
        env.pairs("FAULTLINE_OIDC_ROLES", [role.value for role in Role])


def test_a_session_that_somebody_planted_is_not_the_one_that_is_signed_in(configured: Any) -> None:
    planted, victim = Client(), Client()
    session = planted.session
    session["anything"] = 1
    session.save()
    victim.cookies["sessionid"] = planted.cookies["sessionid"] = session.session_key
    sign_in(victim, "ada")
    assert victim.cookies["sessionid"].value != session.session_key
    assert victim.get("/insights/").status_code == 200
    planted.cookies["sessionid"] = session.session_key
    assert planted.get("/insights/").status_code == 302


def test_signing_in_as_somebody_else_ends_the_session_before(client: Client, configured: Any) -> None:
    sign_in(client, "ada")
    before = Client()
    before.cookies["sessionid"] = client.cookies["sessionid"].value
    assert before.get("/insights/").status_code == 200
    client.post("/sign-out/")
    sign_in(client, "root")
    assert before.get("/insights/").status_code == 302 and client.get("/channels/").status_code == 200


def test_an_answer_of_the_provider_to_somebody_else_signs_nobody_in(client: Client, configured: Any) -> None:
    """Else an attacker's link makes whoever opens it work in the attacker's account."""
    asked: list[str] = []

    class Attacker(Client):
        def get(self, path: str, *args: Any, **more: Any) -> Any:
            if path.startswith("/oidc/sso/login/callback/"):
                asked.append(path)
                return None
            return super().get(path, *args, **more)

    sign_in(Attacker(), "root")
    client.get("/sign-in/")
    client.get(asked[0], follow=True)
    assert client.get("/insights/").status_code == 302
