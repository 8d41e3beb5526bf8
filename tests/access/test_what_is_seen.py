"""Nothing of another team's by page, API, share link, export, search, suggestion or error text."""

from __future__ import annotations

import json
import re
from difflib import unified_diff
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.test import Client

from tests.access.routes import Route, all_routes
from tests.access.world import NO_ONES, SHARED, Team
from triage.access.roles import Role
from triage.access.sight import seeing
from triage.access.viewer import viewer_of
from triage.access.visible import RULES
from triage.models import Attempt, Incident, Membership, SavedView
from triage.services.incidents import IncidentRefused, add_attempts, merge, split
from triage.services.sharing import make_share, share_token
from triage.services.sources import forget_configuration
from triage.tasks.discovery import discover_source

Teams = tuple[Team, Team]
MADE_UP = {
    "attempt": 987654, "diagnosis": 987654, "incident": 987654, "comment": 987654, "ticket": 987654, "share": 987654,
    "view": 987654, "notification": 987654, "node": "cedar-02", "stream": "syslog/cedar-02.log", "evidence": "e1",
    "rule": "xid.79", "token": "1." + "A" * 32, "followed": 987654,
    "followed word": "1." + "A" * 32, "api token": 987654, **NO_ONES,
}  # fmt: skip
HTMX = {"HX-Request": "true"}
NO_TEAMS = {"rule", "token", "followed word", "provider"}
ABOUT_A_TEAM = [route for route in all_routes() if set(route.about) - NO_TEAMS]
OTHERS = [route for route in all_routes() if not set(route.about) - NO_TEAMS]


def text_of(answer: object) -> str:
    body = b"".join(answer) if getattr(answer, "streaming", False) else answer.content  # type: ignore[attr-defined, call-overload]
    headers = " ".join(f"{name}: {value}" for name, value in answer.headers.items())  # type: ignore[attr-defined]
    return f"{headers}\n{body.decode(errors='replace')}"


def plain(answer: object, *named: object) -> str:
    """An answer without what the address itself named, the reader's secrets and the time."""
    text = text_of(answer)
    text = re.sub(
        r'csrfmiddlewaretoken" value="\w+"|ETag: \S+|X-Request-Id: \S+|X-RateLimit-\S+ \d+|Content-Length: \d+',
        "",
        text,
    )
    text = re.sub(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?|\d\d:\d\d UTC", "", text)
    for word in sorted(map(str, named), key=len, reverse=True):
        text = text.replace(word, "*")
    return text


@pytest.mark.django_db
def test_every_model_has_a_rule_or_is_the_systems() -> None:
    systems = {
        "auditentry", "channel", "route", "runningattempt", "sightedobject", "submittedlog", "submittedcycle",
        "configuredcluster", "configuredsource", "clustercheck", "sourcecheck",
    }  # fmt: skip
    personal = {"apitoken", "defaultview", "followed", "idempotentcall", "person", "savedview", "teamreach"}
    models = {model._meta.model_name for model in apps.get_app_config("triage").get_models()}
    assert models - set(RULES) == systems | personal


def test_what_belongs_to_another_team_is_answered_like_what_was_never_there(teams: Teams) -> None:
    amber, birch = teams
    told = []
    for role, calls in (
        (Role.VIEWER, [("get", {}), ("get", HTMX), ("post", {})]),
        (Role.RULE_AUTHOR, [("get", {}), ("post", {}), ("delete", {}), ("patch", {})]),
    ):
        client = amber.client(role)
        for route in ABOUT_A_TEAM:
            for method, headers in calls:
                theirs, nobodys = (
                    _answer(client, method, route, values, headers) for values in (birch.values(), MADE_UP)
                )
                if theirs != nobodys or theirs[0] < 300 or "birch" in theirs[1]:
                    told.append(f"{role} {method} {route.name}: {_difference(theirs, nobodys)}")
    assert told == []


def _answer(client: Client, method: str, route: Route, values: dict[str, Any], headers: Any) -> tuple[int, str]:
    """Status and text; what was said after a redirect is on the page that it leads to."""
    answer = getattr(client, method)(route.address(values), headers=headers, follow=True)
    status = 302 if answer.redirect_chain else answer.status_code
    return status, plain(answer, *(values[kind] for kind in route.about))


def _difference(theirs: tuple[int, str], nobodys: tuple[int, str]) -> str:
    lines = unified_diff(nobodys[1].splitlines(), theirs[1].splitlines(), "nobody's", "theirs", n=0, lineterm="")
    return f"{theirs[0]} {nobodys[0]}\n" + "\n".join(lines)


def test_ones_own_is_there(teams: Teams) -> None:
    """So that the test above does not pass because nothing is."""
    amber, _ = teams
    client, values = amber.client(Role.VIEWER), amber.values()
    missing = []
    for route in ABOUT_A_TEAM:
        for headers in ({}, HTMX):
            status = client.get(route.address(values), headers=headers).status_code
            if status in (404, 500):
                missing.append((route.name, status))
    expected_missing = {"api:observation"}  # this one was sent as a bundle
    assert {name for name, _ in missing} <= expected_missing


def test_lists_searches_exports_and_suggestions_hold_only_ones_own(teams: Teams) -> None:
    amber, birch = teams
    client = amber.client(Role.VIEWER)
    queries = {
        "failures": [
            "",
            "?q=bir",
            "?q=on:both-03",
            f"?q=incident:{birch.incident.pk}",
            "?q=cluster:shared",
            "?q=-assignee:none",
        ],
        "failures-news": ["?top=0", f"?top={birch.attempt.pk}&rows={birch.attempt.pk}:pending"],
        "failures-suggest": [
            f"?q={field}:bir" for field in ("node", "user", "cluster", "queue", "workload", "assignee", "on")
        ]
        + [f"?q={field}:" for field in ("node", "user", "cluster", "queue", "workload", "assignee", "is", "incident")],
        "failures-csv": ["", "?q=cluster:shared"],
        "failures-json": ["", "?q=cluster:shared"],
        "nodes": ["", "?q=bir", f"?cluster={SHARED}", "?name=both-03"],
        "insights": ["", "?weeks=52", f"?cluster={SHARED}&weeks=52"],
        "insights-csv": ["?weeks=52"],
        "incidents": ["", "?state=all", "?state=resolved"],
        "failures-feed": ["", "?q=bir", "?q=cluster:shared", f"?q=incident:{birch.incident.pk}"],
        "incidents-feed": ["", "?q=bir", "?view=resolved"],
        "rules": ["", "?q=xid"],
        "api:attempts": ["", "?q=cluster:shared", "?q=on:both-03"],
        "api:nodes": ["", "?q=cluster:shared"],
    }
    for route in OTHERS:
        if set(route.about) & {"token", "followed word"}:
            continue
        address = route.address(MADE_UP)
        for query in queries.get(route.name, [""]):
            for headers in ({}, HTMX):
                answer = client.get(address + query, headers=headers)
                assert answer.status_code < 500 or route.name == "readyz", (address + query, answer.status_code)
                assert "birch" not in text_of(answer).lower(), address + query


def test_what_is_counted_is_what_is_seen(teams: Teams) -> None:
    amber, birch = teams
    client = amber.client(Role.VIEWER)
    assert len(client.get("/api/v1/attempts").json()["attempts"]) == 3
    assert len(client.get("/api/v1/attempts?q=cluster:shared").json()["attempts"]) == 1
    assert [row["node"] for row in client.get("/api/v1/nodes").json()["nodes"]] == ["amber-02", "amber-02"]
    node = client.get("/nodes/both-03/?cluster=shared").content.decode()
    assert "1 attempt" in node and "amber noted" not in node, "notes are for who sees the cluster whole"
    assert "amber noted" in client.get("/nodes/both-03/?cluster=amber-cluster").content.decode()
    assert len(json.loads(client.get("/failures/export.json").getvalue())) == 3
    everybody = birch.client(Role.ADMIN)
    assert len(everybody.get("/api/v1/attempts").json()["attempts"]) == 6


def test_an_incident_is_seen_by_who_sees_all_that_ever_was_in_it(teams: Teams) -> None:
    amber, birch = teams
    ours, theirs = amber.incident, birch.incident
    assert ours and theirs and ours.pk != theirs.pk, "the same failure, and yet not one incident"
    client = amber.client(Role.RESPONDER)
    assert client.get(f"/incidents/{ours.pk}/").status_code == 200
    merge(theirs.pk, ours.pk, amber.people[Role.ADMIN])
    for address in (f"/incidents/{ours.pk}/", f"/incidents/{theirs.pk}/", f"/api/v1/incidents/{ours.pk}"):
        assert client.get(address).status_code == 404
    page = client.get(f"/attempts/{amber.attempt.pk}/").content.decode()
    assert ours.name not in page and theirs.name not in page
    assert "birch" not in page
    assert amber.client(Role.ADMIN).get(f"/incidents/{ours.pk}/").status_code == 200
    with seeing(viewer_of(amber.people[Role.VIEWER]).sight):
        assert not Incident.objects.exists()


def test_an_attempt_in_an_incident_that_is_not_seen_stays_there(teams: Teams) -> None:
    amber, birch = teams
    assert amber.incident is not None
    overseer, responder = amber.people[Role.ADMIN], amber.people[Role.RESPONDER]
    mixed = split(amber.incident.pk, [amber.attempts[1].pk], overseer)
    add_attempts(mixed.pk, [birch.attempts[1].pk], overseer)
    with seeing(viewer_of(responder).sight), pytest.raises(IncidentRefused, match="attempts of other teams"):
        add_attempts(amber.incident.pk, [amber.attempts[1].pk], responder)
    assert Membership.objects.get(attempt=amber.attempts[1]).incident_id == mixed.pk


def test_an_attempt_that_moves_to_another_queue_takes_its_incident_along(teams: Teams) -> None:
    _, birch = teams
    second = birch.attempts[1]
    Attempt.objects.filter(pk=second.pk).update(queue="amber-queue")
    client = birch.client(Role.VIEWER)
    assert client.get(f"/attempts/{second.pk}/").status_code == 404
    assert client.get(f"/incidents/{birch.incident.pk}/").status_code == 404


def test_a_share_link_shows_what_its_maker_sees_now(teams: Teams) -> None:
    amber, birch = teams
    maker = amber.people[Role.RESPONDER]
    address = f"/s/{share_token(make_share(amber.attempt, maker))}/"
    assert Client().get(address).status_code == 200
    maker.groups.clear()
    gone = Client().get(address)
    assert gone.status_code == 404 and "amber" not in text_of(gone)
    stranger = Client().get(f"/s/{share_token(birch.share)}/")
    assert stranger.status_code == 200, "who has the address of a link needs no team"


def test_a_token_sees_what_its_user_sees(teams: Teams) -> None:
    from triage.services.tokens import create_token

    amber, birch = teams
    _, secret = create_token(amber.people[Role.RESPONDER], "t", ["read", "ingest", "write"])
    client = Client(headers={"Authorization": f"Bearer {secret}"})
    assert client.get(f"/api/v1/attempts/{amber.attempt.pk}").status_code == 200
    assert client.get(f"/api/v1/attempts/{birch.attempt.pk}").status_code == 404
    assert client.get("/compat/nvrx/jobs").status_code == 403


@pytest.mark.parametrize("identity", ["birch-0", "never-was"])
def test_sending_for_a_cluster_that_is_not_seen_whole_tells_nothing(identity: str, teams: Teams) -> None:
    amber, _ = teams
    client = amber.client(Role.RESPONDER)
    before = Attempt.objects.count()
    for cluster, queue in (("birch-cluster", "birch-queue"), (SHARED, "amber-queue"), (SHARED, ""), ("new", "")):
        body = {"cluster": cluster, "scheduler": "slurm", "workload_id": identity, "queue": queue, "state": "FAILED"}
        answer = client.post("/api/v1/attempts", body, content_type="application/json")
        assert answer.status_code == 400
        assert answer.json()["detail"] == (
            "cluster: your teams don't see this cluster whole, so nothing new can be sent for it"
        )
    assert Attempt.objects.count() == before


def test_an_attempt_cannot_be_moved_out_of_what_one_sees(teams: Teams) -> None:
    amber, _ = teams
    second = amber.attempts[1]
    answer = amber.client(Role.RESPONDER).patch(
        f"/api/v1/attempts/{second.pk}", {"queue": "birch-queue"}, content_type="application/json"
    )
    assert answer.status_code == 400 and Attempt.objects.get(pk=second.pk).queue == "amber-queue"


def test_sources_are_seen_by_who_sees_the_whole_cluster(
    teams: Teams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    amber, _ = teams
    file = tmp_path / "faultline.toml"
    names = ("amber-cluster", "birch-cluster", SHARED)
    tables = [f'[clusters.{name}.sources.slurm]\ncommand_prefix = ["/nonexistent/{name}"]\n' for name in names]
    file.write_text("".join(tables) + "[clusters.birch-cluster.sources.nonsense]\nx = 1\n")
    monkeypatch.setenv("FAULTLINE_CONFIG", str(file))
    forget_configuration()
    for name in names:
        discover_source(f"{name}/slurm")
    client, admin = amber.client(Role.RESPONDER), amber.client(Role.ADMIN)
    for address in ("/sources/", "/?q="):
        page = client.get(address).content.decode()
        assert "/nonexistent/amber-cluster" in page and "birch-cluster" not in page
        assert f"/nonexistent/{SHARED}" not in page, "what it says may name any job"
    assert "birch-cluster" in admin.get("/sources/").content.decode()
    refused = client.post("/sources/search/", {"source": "birch-cluster/slurm"}, follow=True).content.decode()
    assert "is not configured" in refused
    monkeypatch.undo()
    forget_configuration()


def test_without_teams_everybody_sees_everything(teams: Teams) -> None:
    amber, birch = teams
    for team in teams:
        team.group.delete()
    client = amber.client(Role.VIEWER)
    assert len(client.get("/api/v1/attempts").json()["attempts"]) == 6
    assert client.get(f"/incidents/{birch.incident.pk}/").status_code == 200


def test_who_is_in_no_team_sees_nothing_once_there_are_teams(teams: Teams) -> None:
    amber, _ = teams
    user = amber.people[Role.RESPONDER]
    user.groups.clear()
    client = amber.client(Role.RESPONDER)
    assert client.get("/api/v1/attempts").json()["attempts"] == []
    assert client.get("/").status_code == 200
    assert client.get("/insights/").status_code == 200 and client.get("/nodes/").status_code == 200
    SavedView.objects.all().delete()
