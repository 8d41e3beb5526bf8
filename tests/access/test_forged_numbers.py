"""Numbers and words in forms and bodies that stand for what another team has: nothing changes, nothing is told."""

from __future__ import annotations

import itertools
from typing import Any

from django.apps import apps
from django.db.models import Model
from django.test import Client

from tests.access.routes import Route, all_routes
from tests.access.test_forged_names import parameters
from tests.access.world import Team
from triage.access.managers import Seen
from triage.access.roles import Role
from triage.access.sight import all_seeing
from triage.services.tokens import create_token


@all_seeing
def rows_of(team: Team) -> dict[str, Any]:
    """Everything of the database that has the team's name in it, or belongs to what has: row by row."""
    found: dict[str, Any] = {}
    incident = team.incident
    assert incident is not None
    numbers = {
        "attempt_id": {attempt.pk for attempt in team.attempts}, "incident_id": {incident.pk},
        "user_id": {user.pk for role, user in team.people.items() if role != Role.ADMIN}, "team_id": {team.group.pk},
    }  # fmt: skip
    own = {"Attempt": numbers["attempt_id"], "Incident": numbers["incident_id"]}
    for model in apps.get_app_config("triage").get_models():
        for row in rows(model):
            mine = row["id"] in own.get(model.__name__, ()) or any(row.get(key) in pks for key, pks in numbers.items())
            if mine and model.__name__ not in ("AuditEntry", "TimelineEvent"):
                found[f"{model.__name__} {row['id']}"] = {k: v for k, v in row.items() if not k.startswith("last_")}
    return found


def rows(model: type[Model]) -> list[dict[str, Any]]:
    manager = getattr(model, "objects", None)
    return list((manager if isinstance(manager, Seen) else model._base_manager).values())


def bodies(theirs: Team) -> list[dict[str, Any]]:
    """Every parameter that the code reads, with what it may stand for of the other team's."""
    values = theirs.values()
    attempt, incident = theirs.attempt, values["incident"]
    things: dict[str, Any] = {
        "other": f"INC-{incident}", "incident": f"INC-{incident}", "attempt": attempt.pk, "pick": attempt.pk,
        "assignee": theirs.people[Role.VIEWER].pk, "view": values["view"], "audience": f"team:{theirs.group.pk}",
        "diagnosis": attempt.diagnosis_id, "seen": attempt.verdict_id, "verdict": attempt.verdict_id, "action": "add",
        "quote": f"{attempt.pk}:e1", "quotes": [f"{attempt.pk}:e1"], "source": f"{theirs.name}-cluster/slurm",
        "cluster": f"{theirs.name}-cluster", "stream": values["stream"], "nodes": theirs.node, "node": theirs.node,
        "workload_id": attempt.workload.workload_id, "scheduler": "slurm", "number": 1, "state": "FAILED",
        "kind": "wrong_cause", "domain": "hardware", "text": "birch says so", "name": "birch view", "days": 7,
        "reason": "birch thinks so", "title": "birch title",
    }  # fmt: skip
    every = {name: incident for name in parameters() if not name[:1].isupper()}
    plain = {
        key: value for key, value in {**every, **things}.items() if key not in ("quote", "quotes", "do", "form_key")
    }
    return [plain, {**every, **things, "action": "assign", "do": "quote", "other": incident}]


def posts(route: Route) -> bool:
    return route.name not in ("logout", "login", "password", "preferences") and not route.name.startswith("nvrx:")


def test_what_another_team_has_can_not_be_reached_through_what_one_sends(teams: tuple[Team, Team]) -> None:
    amber, birch = teams
    before = rows_of(amber)
    assert len(before) > 20
    client = birch.client(Role.RESPONDER)
    _, secret = create_token(birch.people[Role.RESPONDER], "t", ["read", "write", "ingest"])
    program = Client(headers={"Authorization": f"Bearer {secret}"})
    leaks, wrong = [], []
    values = birch.values()
    for route, body in itertools.product(filter(posts, all_routes()), bodies(amber)):
        if not hasattr(getattr(route.view, "view_class", None), "scopes") and "POST" not in methods(
            client, route, values
        ):
            continue
        by_program = ":" in route.name
        asked, kind = (program, {"content_type": "application/json"}) if by_program else (client, {})
        answer = asked.post(route.address(values), body, **kind)
        if answer.status_code >= 500:
            wrong.append((route.name, answer.status_code))
        text = b"".join(answer.streaming_content) if answer.streaming else answer.content
        told = text.decode(errors="replace")
        for thing in map(str, body.values()):
            told = told.replace(thing, "")  # what was sent may be shown again
        if "amber" in told:
            leaks.append((route.name, told[max(told.index("amber") - 60, 0) :][:140]))
    assert (wrong, leaks) == ([], [])
    after = rows_of(amber)
    assert {key: (before.get(key), row) for key, row in after.items() if before.get(key) != row} == {}
    assert set(before) <= set(after)
    amber.client(Role.RESPONDER).post(f"/attempts/{amber.attempt.pk}/comment/", {"text": "more"})
    assert set(rows_of(amber)) > set(after), "what their own people send does change something"


_METHODS: dict[str, str] = {}


def methods(client: Client, route: Route, values: dict[str, Any]) -> str:
    """What a route says that it takes."""
    if route.name not in _METHODS:
        answer = client.post(route.address(values), {})
        _METHODS[route.name] = answer.headers.get("Allow", "POST") if answer.status_code == 405 else "POST"
    return _METHODS[route.name]
