"""Names, addresses and parameters with line ends in them: none reaches a header or makes a line of the log."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.contrib.auth.models import User
from django.test import Client
from django.urls import NoReverseMatch

from tests.access.routes import Route, all_routes
from tests.access.world import NO_ONES, Team
from tests.triage.test_logs import written
from tests.web.conftest import MakeAttempt, make_attempt
from tests.web.test_hostile import hostile_story
from triage.access.roles import Role
from triage.services.incidents import rename
from triage.services.sharing import make_share, share_token

__all__ = ["make_attempt"]

EVIL = 'a"\r\nSet-Cookie: forged=1\r\n\r\n2026-01-01 00:00:00,000 ERROR root: forged;b=\u2028\u202e'
_NAMES = re.compile(r"""(?:GET|POST|query_params|headers)(?:\.get|\.getlist|\[)\(?\s*["']([A-Za-z0-9_-]+)["']""")
_FORM_NAMES = re.compile(r'name="([a-z_-]+)"')


def parameters() -> list[str]:
    """The names of everything that the code reads of a query, a form or a header, and that forms send."""
    base = Path(django_settings.BASE_DIR)
    found = {name for path in (base / "triage").rglob("*.py") for name in _NAMES.findall(path.read_text())}
    found |= {name for path in (base / "templates").rglob("*.html") for name in _FORM_NAMES.findall(path.read_text())}
    return sorted(found)


def is_clean(answer: Any) -> bool:
    """One that Django refused to send because of a line end would be a 500."""
    head = [*answer.headers.items(), *((key, cookie.OutputString()) for key, cookie in answer.cookies.items())]
    whole = answer.status_code in (*range(500), 503)  # readyz: no worker runs here
    return whole and "forged" not in answer.cookies and not any(set("\r\n\0") & {*key, *value} for key, value in head)


def addresses(route: Route, values: dict[str, Any]) -> list[str]:
    """With one of the texts in it replaced each time."""
    found = [route.address(values)]
    for kind in route.about:
        if isinstance(values[kind], str):
            try:
                found.append(route.address({**values, kind: EVIL}))
            except NoReverseMatch:
                continue
    return found


def test_the_names_that_the_code_reads_are_known_here() -> None:
    assert {"next", "q", "days", "seen", "Authorization", "X-Request-Id", "User-Agent", "text"} <= set(parameters())


@pytest.mark.parametrize("role", [None, Role.ADMIN], ids=str)
def test_what_is_sent_reaches_no_header_and_no_line_of_the_log(role: Role | None, teams: tuple[Team, Team]) -> None:
    amber, _ = teams
    client = amber.client(role) if role else Client()
    sent = dict.fromkeys(parameters(), EVIL)
    heads = {name: EVIL for name in sent if name[:1].isupper() and name != "Authorization"}
    values, wrong = {**amber.values(), **NO_ONES}, []
    with written("line") as out:
        console = logging.getLogger("told").handlers[-1]
        logging.getLogger().addHandler(console)
        try:
            for route in all_routes():
                if route.name == "logout":
                    continue
                for address in addresses(route, values):
                    for method in ("get", "post"):
                        answer = getattr(client, method)(address, sent, headers=heads)
                        if not is_clean(answer):
                            wrong.append((route.name, answer.status_code, dict(answer.headers)))
        finally:
            logging.getLogger().removeHandler(console)
    assert wrong == []
    lines = out.getvalue().splitlines()
    assert len(lines) > 100
    begin = re.compile(r"\d{4}-\d\d-\d\d [\d:,]+ [A-Z]+ (?!root: forged)[\w.]+: |    ")
    assert [line for line in lines if not begin.match(line)] == []


def test_what_jobs_and_people_are_called_reaches_no_header(
    client: Client, make_attempt: MakeAttempt, settings: Any
) -> None:
    settings.FAULTLINE_API_RATE = 0
    boss = User.objects.create_user("boss", is_staff=True, first_name=EVIL[:100])
    client.force_login(boss)
    attempt = make_attempt(
        hostile_story(), name=EVIL, user=EVIL[:60], id=EVIL, cluster=EVIL[:60], queue=EVIL[:60], state=EVIL[:60],
        nodes=(f"gx-02{EVIL}", "gx-01"),
    )  # fmt: skip
    incident = attempt.membership.incident
    rename(incident.pk, boss, EVIL)
    share = make_share(incident, boss, note=EVIL)
    stream = attempt.streams.first()
    values = {
        **NO_ONES, "attempt": attempt.pk, "incident": incident.pk, "share": share.pk, "token": share_token(share),
        "diagnosis": attempt.diagnosis_id, "node": f"gx-02{EVIL}", "stream": stream.name if stream else "syslog/x.log",
        "evidence": "e1", "rule": attempt.rule or "xid.149", "comment": 1, "ticket": 1, "view": 1, "notification": 1,
        "followed": 1, "followed word": "x", "api token": 1,
    }  # fmt: skip
    named = 0
    for route in all_routes():
        answer = client.get(route.address(values))
        assert is_clean(answer), (route.name, answer.status_code, answer.headers)
        place = answer.headers.get("Content-Disposition")
        if place is not None:
            named += 1
            assert re.fullmatch(r'attachment; filename="[A-Za-z0-9._=,@+-]+"', place), (route.name, place)
    assert named >= 8
