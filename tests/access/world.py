"""Two teams that share one cluster, with one of everything each. Whatever belongs to a team has its name in it, so that
a word of the other team's in an answer is a leak.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.apps import apps
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import Client
from django.urls import reverse

from tests.api.conftest import work
from tests.triage import cast
from triage.access.roles import Role
from triage.models import (
    ApiToken,
    Attempt,
    Cluster,
    Comment,
    Followed,
    Incident,
    Notification,
    Person,
    SavedView,
    ShareLink,
    TeamReach,
    Ticket,
)
from triage.services import comments, following, incidents, nodes, saved_views, sharing, verdicts
from triage.services.bundles import import_bundle
from triage.services.submissions import submit_attempt
from triage.services.tokens import create_token

SHARED = "shared"
MANIFEST = """\
schema: 1
workload: {id: "%(id)s", name: %(team)s-train, scheduler: slurm, cluster: %(cluster)s, user: %(team)s-user, queue: %(team)s-queue}
attempt:
  number: 1
  state: FAILED
  exit_code: "1:0"
  reason: %(team)s-reason
  started_at: 2026-11-03T02:00:00Z
  ended_at: 2026-11-03T04:22:31Z
  nodes: [%(team)s-01, %(team)s-02, both-03]
  gpus_per_node: 8
"""  # noqa: E501
SYSLOG = """\
Nov  3 04:11:16 %(team)s-02 kernel: NVRM: Xid (PCI:0000:61:00): 79, pid=1234, name=%(team)s, GPU has fallen off the bus.
Nov  3 04:22:29 %(team)s-02 systemd[1]: Starting %(team)s tool...
"""
APPLOG = """\
2026-11-03 04:11:54,433 rank 3 iteration 1525 | loss 2.1 %(team)s
[rank3]: Traceback (most recent call last):
[rank3]:   File "/home/%(team)s/train.py", line 12, in <module>
[rank3]: KeyError: '%(team)s'
"""


NO_ONES = {
    "channel": 1, "route": 1, "delivery": 1, "channel kind": "slack", "configured cluster": "c1",
    "configured source": "slurm", "provider": "sso",
}  # fmt: skip
"""Of the whole installation."""


@dataclass
class Team:
    """A team with its people and what they did. The first attempt ran on a cluster of its own, the second on both's."""

    name: str
    group: Group
    people: dict[Role, User] = field(default_factory=dict)
    attempts: list[Attempt] = field(default_factory=list)
    incident: Incident | None = None
    comment: Comment | None = None
    ticket: Ticket | None = None
    share: ShareLink | None = None
    view: SavedView | None = None
    notification: Notification | None = None
    followed: Followed | None = None
    api_token: ApiToken | None = None

    @property
    def attempt(self) -> Attempt:
        return self.attempts[0]

    @property
    def node(self) -> str:
        return f"{self.name}-02"

    def client(self, role: Role, **headers: str) -> Client:
        client = Client(headers=headers)
        client.force_login(self.people[role])
        return client

    def values(self) -> dict[str, Any]:
        """What the addresses of routes take, for what belongs to this team."""
        incident = self.incident
        assert incident and self.comment and self.ticket and self.share and self.view and self.notification
        assert self.followed and self.api_token
        return {
            "attempt": self.attempt.pk,
            "diagnosis": self.attempt.diagnosis_id,
            "incident": incident.pk,
            "comment": self.comment.pk,
            "ticket": self.ticket.pk,
            "share": self.share.pk,
            "token": sharing.share_token(self.share),
            "view": self.view.pk,
            "notification": self.notification.pk,
            "followed": self.followed.pk,
            "followed word": following.followed_word(self.followed),
            "api token": self.api_token.pk,
            "node": self.node,
            "stream": f"syslog/{self.node}.log",
            "evidence": "e1",
            "rule": "xid.79",
            **NO_ONES,
        }


def build(tmp_path: Path, names: tuple[str, ...] = ("amber", "birch")) -> list[Team]:
    """The teams, by name."""
    _begin_with_large_numbers()
    return [_team(name, tmp_path) for name in names]


def _begin_with_large_numbers() -> None:
    """So that a number in an answer is not something else by chance."""
    with connection.cursor() as cursor:
        for number, model in enumerate(apps.get_app_config("triage").get_models()):
            table = model._meta.db_table
            cursor.execute("SELECT setval(pg_get_serial_sequence(%s, 'id'), %s)", [table, 700_000 + 1_000 * number])


def _team(name: str, tmp_path: Path) -> Team:
    team = Team(name, Group.objects.create(name=name))
    shared, _ = Cluster.objects.get_or_create(name=SHARED)
    own, _ = Cluster.objects.get_or_create(name=f"{name}-cluster")
    TeamReach.objects.create(team=team.group, cluster=own)
    TeamReach.objects.create(team=team.group, cluster=shared, queue=f"{name}-*")
    for role in Role:
        if role != Role.ADMIN:
            team.people[role] = _person(f"{name}-{role}", role)
            team.people[role].groups.add(team.group)
    known = User.objects.filter(username="overseer").first()
    team.people[Role.ADMIN] = known or _person("overseer", Role.ADMIN)
    for number, cluster in enumerate((own.name, SHARED)):
        team.attempts.append(_attempt(name, cluster, f"{name}-{number}", tmp_path / f"{name}-{number}"))
    _say(team)
    return team


def _person(username: str, role: Role) -> User:
    user = User.objects.create_user(username, password="correct horse", first_name=username)
    Person.objects.create(user=user, role=role)
    return user


def _attempt(name: str, cluster: str, workload: str, folder: Path) -> Attempt:
    words = {"team": name, "cluster": cluster, "id": workload}
    files = {
        "attempt.yaml": MANIFEST % words,
        f"syslog/{name}-02.log": SYSLOG % words,
        "applog/train.log": APPLOG % words,
    }
    cast.folder(folder, {path: text.encode() for path, text in files.items()})
    attempt = work(import_bundle(folder).attempt.pk)
    assert attempt.rule == "xid.79" and attempt.blamed_nodes == [f"{name}-02"]
    return Attempt.objects.get(pk=attempt.pk)


def _say(team: Team) -> None:
    """One of everything that people do."""
    name, who, viewer = team.name, team.people[Role.RESPONDER], team.people[Role.VIEWER]
    attempt = team.attempt
    incident = team.incident = attempt.membership.incident
    incidents.rename(incident.pk, who, f"{name} title")
    incidents.assign(incident.pk, who, viewer.pk, seen=None)
    incidents.set_status(incident.pk, who, "investigating", seen="new", note=f"{name} looks")
    team.ticket = incidents.link_ticket(incident.pk, who, url=f"https://{name}.example/1", label=f"{name} ticket")
    team.comment = comments.add_comment(attempt, who, f"{name} said @{viewer.username}")
    comments.add_comment(incident, who, f"{name} said of the incident")
    team.notification = Notification.objects.filter(user=viewer).latest("pk")
    verdicts.correct(
        attempt.pk, who, diagnosis_id=attempt.diagnosis_id or 0, seen=None, kind="wrong_cause", reason=f"{name} knows",
        answer=verdicts.Answer(domain="hardware", sub_domain="gpu", title=f"{name} answer", nodes=[team.node]),
    )  # fmt: skip
    for cluster in Cluster.objects.filter(name__in=[f"{name}-cluster", SHARED]):
        nodes.add_note(cluster, "both-03", who, f"{name} noted")
        nodes.add_note(cluster, team.node, who, f"{name} noted")
        nodes.drain(cluster, team.node, who, f"{name} drained")
    team.share = sharing.make_share(incident, who, note=f"{name} vendor")
    team.view, _ = saved_views.save_view(who, f"{name} view", f"queue:{name}-queue", audience="all")
    team.followed = following.follow(who, "failures", f"q=queue:{name}-queue", note=f"{name} wiki")
    team.api_token, _ = create_token(who, f"{name} epilog", ["read"])
    saved_views.save_view(who, f"{name} team view", "", audience="team", team_id=team.group.pk)
    submit_attempt(
        cluster=f"{name}-cluster", scheduler="slurm", workload_id=f"{name}-sent", number=1,
        facts={"user": f"{name}-user", "queue": f"{name}-queue", "state": "FAILED"}, actor=who,
    )  # fmt: skip
    team.attempts = [Attempt.objects.get(pk=one.pk) for one in team.attempts]


def address_of(name: str, kwargs: dict[str, Any]) -> str:
    return reverse(name, kwargs=kwargs)
