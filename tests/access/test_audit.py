"""Every change is written down with who made it, and nobody can rewrite that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, User
from django.db import IntegrityError, connection, transaction
from django.test import Client
from django.urls import reverse

from tests.access.world import Team
from triage.access.roles import Role
from triage.models import AuditEntry, Person
from triage.services.tokens import create_token

Teams = tuple[Team, Team]
BY_EVENTS = {
    "attempt", "workload", "observation", "verdict", "incident", "membership", "ticket", "notthesame", "comment",
    "commentrevision", "timelineevent",
}  # fmt: skip
"""People change these through services that write an event in their name, which is audited."""
NOBODYS = {
    "announcement", "attemptnode", "auditentry", "clustercheck", "collection", "defaultview", "delivery", "diagnosis",
    "diagnosisnode", "discovery", "gpu", "idempotentcall", "incidentkey", "notification", "recollection",
    "runningattempt", "shareopening", "sightedobject", "sourcecheck", "stream", "submittedcycle", "submittedlog",
}  # fmt: skip
"""Written by the system, or of no concern to anybody else: what was read, what opens one's own list."""


@pytest.mark.django_db
def test_every_model_is_audited_or_it_is_said_why_not() -> None:
    models = {str(model._meta.model_name) for model in apps.get_app_config("triage").get_models()}
    with connection.cursor() as cursor:
        cursor.execute("SELECT tgrelid::regclass::text FROM pg_trigger WHERE tgname = 'row_is_audited'")
        by_rows = {table.removeprefix("triage_") for (table,) in cursor.fetchall() if table.startswith("triage_")}
    assert models == by_rows | BY_EVENTS | NOBODYS
    assert not by_rows & BY_EVENTS


@pytest.mark.django_db
def test_the_database_refuses_to_rewrite_it() -> None:
    entry = AuditEntry.objects.create(action="changed", subject="user")
    for change in (
        lambda: AuditEntry.objects.filter(pk=entry.pk).update(action="nothing"),
        lambda: entry.delete(),
        lambda: AuditEntry.objects.all().delete(),
    ):
        with pytest.raises(IntegrityError, match="never rewritten"), transaction.atomic():
            change()
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("ALTER TABLE triage_auditentry ENABLE TRIGGER audit_is_never_emptied")  # tests switch it off
        with pytest.raises(IntegrityError, match="never rewritten"), transaction.atomic():
            cursor.execute("TRUNCATE triage_auditentry")
        transaction.set_rollback(True)
    assert AuditEntry.objects.filter(pk=entry.pk).exists()


def test_what_people_do_is_written_down_in_their_name(teams: Teams) -> None:
    amber, _ = teams
    values = amber.values()
    page = {"incident": f"/incidents/{values['incident']}/", "attempt": f"/attempts/{amber.attempts[1].pk}/"}
    diagnosis = amber.attempts[1].diagnosis_id
    calls: list[tuple[str, Callable[[Client], Any]]] = [
        ("verdict.confirmed", lambda c: c.post(page["attempt"] + "confirm/", {"diagnosis": diagnosis, "seen": ""})),
        ("comment.added", lambda c: c.post(page["attempt"] + "comment/", {"text": "seen"})),
        ("comment.edited", lambda c: c.post(
            f"/comments/{values['comment']}/edit/", {"text": "b", "seen": amber.comment.text})),
        ("triage.requested", lambda c: c.post(page["attempt"] + "retry/")),
        ("incident.status", lambda c: c.post(page["incident"] + "state/", {
            "status": "mitigated", "was_status": "investigating", "was_assignee": amber.people[Role.VIEWER].pk,
            "assignee": amber.people[Role.VIEWER].pk, "was_severity": "", "severity": "", "was_title": "amber title",
            "title": "amber title"})),
        ("ticket.linked", lambda c: c.post(page["incident"] + "tickets/", {"url": "https://t.example/9"})),
        ("node.noted", lambda c: c.post(f"/nodes/{amber.node}/", {"text": "cable", "action": "note"})),
        ("share.made", lambda c: c.post(page["attempt"] + "share/", {"days": "7"})),
        ("share.revoked", lambda c: c.post(f"/shares/{values['share']}/revoke/")),
        ("created", lambda c: c.post("/views/save/", {"name": "mine", "search": "q=xid:79"})),
        ("attempt.changed", lambda c: c.patch(
            f"/api/v1/attempts/{amber.attempt.pk}", {"state": "TIMEOUT"}, content_type="application/json")),
    ]  # fmt: skip
    client = amber.client(Role.RESPONDER)
    for action, call in calls:
        last = AuditEntry.objects.latest("id").pk
        answer = call(client)
        assert answer.status_code < 400, (action, answer.status_code)
        entries = AuditEntry.objects.filter(pk__gt=last)
        found = entries.filter(action=action).first()
        assert found is not None, (action, list(entries))
        assert (found.actor_name, found.address) == ("amber-responder", "127.0.0.1"), action
        assert set(entries.values_list("actor_name", flat=True)) == {"amber-responder"}, action


def test_a_share_link_that_is_opened_is_written_down_with_where_from(teams: Teams) -> None:
    amber, _ = teams
    address = f"/s/{amber.values()['token']}/"
    for _ in range(2):
        assert Client().get(address, REMOTE_ADDR="192.0.2.7").status_code == 200
    entry = AuditEntry.objects.get(action="share.opened")
    assert (entry.actor, entry.address, entry.subject) == (None, "192.0.2.7", "incident")
    page = amber.client(Role.ADMIN).get(f"{reverse('audit')}?action=share.opened").content.decode()
    assert "Share link opened" in page and "192.0.2.7" in page


def test_a_token_is_named_beside_its_user(teams: Teams) -> None:
    amber, _ = teams
    token, secret = create_token(amber.people[Role.RESPONDER], "ci", ["write"])
    client = Client(headers={"Authorization": f"Bearer {secret}"})
    answer = client.post(
        f"/api/v1/attempts/{amber.attempt.pk}/comments", {"text": "from a program"}, content_type="application/json"
    )
    assert answer.status_code == 201
    entry = AuditEntry.objects.filter(action="comment.added").latest("id")
    assert (entry.actor_name, entry.token, entry.subject_id) == ("amber-responder", token.pk, str(amber.attempt.pk))
    made = AuditEntry.objects.get(subject="apitoken", subject_id=str(token.pk))
    assert made.action == "created" and secret not in str(made.changes) and token.digest not in str(made.changes)


def test_the_name_is_taken_back_after_the_request(teams: Teams) -> None:
    amber, _ = teams
    amber.client(Role.RESPONDER).post(f"/attempts/{amber.attempt.pk}/comment/", {"text": "x"})
    Group.objects.create(name="made by a command")
    entry = AuditEntry.objects.latest("id")
    assert (entry.action, entry.actor_name, entry.address) == ("created", "", None)


def test_accounts_roles_and_teams_tell_before_and_after_and_no_secret(teams: Teams) -> None:
    amber, _ = teams
    boss = amber.client(Role.ADMIN)
    viewer = amber.people[Role.VIEWER]
    form = {
        "username": viewer.username, "first_name": "Vi", "is_active": "on", "groups": [amber.group.pk],
        "date_joined_0": "2026-01-01", "date_joined_1": "00:00:00",
        "person-TOTAL_FORMS": "1", "person-INITIAL_FORMS": "1", "person-MIN_NUM_FORMS": "0",
        "person-MAX_NUM_FORMS": "1",
        "person-0-id": viewer.person.pk, "person-0-user": viewer.pk, "person-0-role": "admin",
    }  # fmt: skip
    answer = boss.post(f"/admin/auth/user/{viewer.pk}/change/", form)
    assert answer.status_code == 302, answer.content.decode()[:3000]
    entry = AuditEntry.objects.filter(subject="person").latest("id")
    assert (entry.actor_name, entry.action, entry.changes) == ("overseer", "changed", {"role": ["viewer", "admin"]})
    viewer.set_password("another horse")
    viewer.save()
    entry = AuditEntry.objects.filter(subject="user").latest("id")
    assert entry.changes["password"] == ["...", "..."]
    assert not AuditEntry.objects.filter(changes__icontains="pbkdf2").exists()


@pytest.mark.django_db
def test_who_signs_in_out_or_tries_is_written_down() -> None:
    User.objects.create_user("ada", password="correct horse")
    client = Client()
    client.post("/sign-in/", {"username": "ada", "password": "wrong"})
    client.post("/sign-in/", {"username": "ada", "password": "correct horse"})
    client.post("/sign-out/")
    told = list(AuditEntry.objects.filter(subject="user").order_by("id").values_list("action", "name", "address"))
    assert told[-3:] == [(action, "ada", "127.0.0.1") for action in ("sign-in failed", "signed in", "signed out")]


def test_admins_read_it_by_person_action_and_thing(teams: Teams) -> None:
    amber, _ = teams
    boss = amber.client(Role.ADMIN)
    address = reverse("audit")
    page = boss.get(address).content.decode()
    assert "amber-responder" in page and "birch-responder" in page and "Set the status" in page
    narrowed = boss.get(f"{address}?who=amber-responder&action=node.drained").content.decode()
    assert "amber-02" in narrowed and "birch-02" not in narrowed
    assert "No entry fits" in boss.get(f"{address}?who=nobody").content.decode()
    assert boss.get(f"{address}?before=x&number=%00&action=%27").status_code == 200
    for role in (Role.VIEWER, Role.RESPONDER, Role.RULE_AUTHOR):
        assert amber.client(role).get(address).status_code == 403


def test_pages_of_the_audit_follow_each_other_without_gaps(teams: Teams) -> None:
    amber, _ = teams
    AuditEntry.objects.bulk_create([AuditEntry(action="changed", subject="user", name=f"n{i}") for i in range(230)])
    boss, seen, address = amber.client(Role.ADMIN), [], reverse("audit")
    for _ in range(9):
        answer = boss.get(address)
        seen += [row.entry.pk for row in answer.context["page"].rows]
        older = answer.context["page"].older
        if older is None:
            break
        address = f"{reverse('audit')}?before={older}"
    assert seen == list(AuditEntry.objects.order_by("-id").values_list("pk", flat=True))


def test_a_role_that_was_given_by_a_command_is_the_systems(teams: Teams) -> None:
    amber, _ = teams
    Person.objects.filter(user=amber.people[Role.VIEWER]).update(role=Role.ADMIN)
    entry = AuditEntry.objects.latest("id")
    assert (entry.subject, entry.actor, entry.changes) == ("person", None, {"role": ["viewer", "admin"]})
