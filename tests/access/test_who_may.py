"""A role x route table over all routes of the URL configuration: a new route without a rule fails here."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from tests.access.routes import Route, all_routes
from tests.access.world import Team
from triage.access.rights import rule_of
from triage.access.roles import Role
from triage.models import Person, Scope
from triage.services.tokens import create_token

METHODS = ("get", "post", "put", "patch", "delete")
NOT_MINE = (302, 401, 403)
"""What one is told who may not: sign in, no token, not with this role."""


def needed(route: Route, method: str) -> Role | str:
    """Who may call a route, by what its view says."""
    view = route.view
    if hasattr(view, "needs"):
        return view.needs[method != "get"]
    owner = getattr(view, "view_class", getattr(view, "cls", None))
    scopes = getattr(owner, "scopes", None)
    if scopes is None:
        return "all"
    wanted = scopes.get(method.upper(), ())
    return Role.VIEWER if not wanted or Scope.READ in wanted else Role.RESPONDER


def test_every_route_says_who_may_use_it() -> None:
    assert [route.name for route in all_routes() if not rule_of(route.view)] == []


def test_what_is_open_to_all_is_little_and_known() -> None:
    """Each of these decides for itself, or shows nothing of anybody's."""
    assert {route.name for route in all_routes() if rule_of(route.view) == "all"} == {
        "healthz", "readyz", "metrics", "api-schema", "api-docs", "shared", "followed", "sessions:healthz", "login",
        "logout", "openid_connect_login", "openid_connect_callback", "socialaccount_login_cancelled",
    }  # fmt: skip


@pytest.mark.parametrize("role", [None, *Role], ids=lambda role: str(role or "nobody"))
def test_each_role_may_what_is_said_and_nothing_else(role: Role | None, teams: tuple[Team, Team]) -> None:
    amber, _ = teams
    client = Client()
    if role is not None:
        client = amber.client(role)
    values = {
        **amber.values(),
        "attempt": 1,
        "incident": 1,
        "comment": 1,
        "ticket": 1,
        "share": 1,
        "view": 1,
        "followed": 1,
        "api token": 1,
    }
    wrong = []
    for route in all_routes():
        for method in METHODS:
            wanted = needed(route, method)
            if wanted == "all" or (route.name == "logout"):
                continue
            answer = getattr(client, method)(route.address(values))
            refused = (answer.status_code in NOT_MINE and "location" not in answer.headers) or _to_sign_in(answer)
            may = role is not None and role.covers(Role(wanted))
            if route.name.startswith("nvrx:"):
                may = False  # tokens only
            if refused == may and answer.status_code != 405:
                wrong.append((route.name, method, str(wanted), answer.status_code))
    assert wrong == []


def _to_sign_in(answer: Any) -> bool:
    return answer.status_code == 302 and answer.headers["Location"].startswith(reverse("login"))


@pytest.mark.parametrize("scope", Scope.values)
def test_a_token_never_may_more_than_its_user(scope: str, teams: tuple[Team, Team]) -> None:
    amber, _ = teams
    wrong = []
    for role in (Role.VIEWER, Role.RESPONDER):
        _, secret = create_token(amber.people[role], "t", [scope])
        client = Client(headers={"Authorization": f"Bearer {secret}"})
        for route in all_routes():
            owner = getattr(route.view, "view_class", None)
            for method, wanted in getattr(owner, "scopes", {}).items():
                status = getattr(client, method.lower())(route.address({**amber.values(), "attempt": 1})).status_code
                may = scope in wanted and (scope == Scope.READ or role == Role.RESPONDER)
                if (status == 403) == may:
                    wrong.append((role.value, route.name, method, status))
    assert wrong == []


def test_a_view_that_says_nothing_is_for_nobody(teams: tuple[Team, Team], monkeypatch: pytest.MonkeyPatch) -> None:
    amber, _ = teams
    boss = amber.client(Role.ADMIN)
    assert boss.get("/insights/").status_code == 200
    monkeypatch.setattr("triage.access.rights.rule_of", lambda view: "")
    assert boss.get("/insights/").status_code == 403


def test_the_admin_site_is_for_admins(teams: tuple[Team, Team]) -> None:
    amber, _ = teams
    for role in (Role.VIEWER, Role.RESPONDER, Role.RULE_AUTHOR):
        assert amber.client(role).get("/admin/triage/attempt/", follow=True).status_code == 403
    assert Client().get("/admin/", follow=True).redirect_chain[-1][0].startswith("/sign-in/")
    for address in ("/admin/", "/admin/triage/attempt/", "/admin/auth/user/", "/admin/auth/group/"):
        assert amber.client(Role.ADMIN).get(address).status_code == 200


def test_whoever_is_refused_is_told_which_role_it_needs(teams: tuple[Team, Team]) -> None:
    amber, _ = teams
    answer = amber.client(Role.VIEWER).get("/upload/")
    assert answer.status_code == 403
    assert "This needs the role responder or one above it; yours: viewer." in answer.content.decode()


def test_a_viewer_is_offered_nothing_that_they_may_not_do(teams: tuple[Team, Team]) -> None:
    amber, _ = teams
    client = amber.client(Role.VIEWER)
    values = amber.values()
    theirs = {
        "/preferences/",
        "/sign-out/",
        "/notifications/",
        "/tokens/",
        "/following/",
        "/views/save/",
        "/views/default/",
        "/undo/",
    }
    for address in (
        "/", f"/attempts/{values['attempt']}/", f"/incidents/{values['incident']}/", f"/nodes/{amber.node}/", "/views/",
        f"/attempts/{values['attempt']}/streams/{values['stream']}", "/notifications/", "/incidents/", "/insights/",
    ):  # fmt: skip
        page = client.get(address).content.decode()
        sent = {part.partition('"')[0] for part in page.split('method="post" action="')[1:]}
        assert sent <= theirs, address
        assert "/upload/" not in page and "/share/" not in page and "/correct/" not in page, address


def test_leaving_takes_effect_at_once(teams: tuple[Team, Team]) -> None:
    amber, _ = teams
    user = amber.people[Role.RESPONDER]
    client = amber.client(Role.RESPONDER)
    assert client.get("/upload/").status_code == 200
    Person.objects.filter(user=user).update(role=Role.VIEWER)
    assert client.get("/upload/").status_code == 403
    user.is_active = False
    user.save()
    assert client.get("/").status_code == 302
