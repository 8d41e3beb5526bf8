"""How many queries each page takes, as a baseline in query_counts.json; rows don't add any.

After a wanted change: `UPDATE_QUERY_COUNTS=1 pytest tests/web/test_query_counts.py`; the difference shows in review.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from tests.web import stories
from tests.web.conftest import MakeAttempt
from triage.models import Attempt
from triage.services.channels import RouteFields, save_channel, save_route
from triage.services.clusters import save_cluster
from triage.services.comments import add_comment
from triage.services.delivering import send_trial
from triage.services.following import follow
from triage.services.saved_views import save_view
from triage.services.sharing import make_share
from triage.services.sources import forget_configuration
from triage.services.tokens import create_token
from triage.services.verdicts import confirm

BASELINE = Path(__file__).with_name("query_counts.json")


@pytest.fixture(autouse=True)
def no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No faultline.toml of anybody's."""
    (tmp_path / "faultline.toml").touch()
    monkeypatch.setenv("FAULTLINE_CONFIG", str(tmp_path / "faultline.toml"))
    forget_configuration()
    yield
    monkeypatch.undo()
    forget_configuration()


def queries(client: Client, url: str, **headers: str) -> int:
    with CaptureQueriesContext(connection) as seen:
        assert client.get(url, headers=headers).status_code in (200, 204, 304)
    return len(seen)


def urls(attempt: Attempt) -> dict[str, tuple[str, dict[str, str]]]:
    htmx = {"HX-Request": "true"}
    return {
        "failures": ("/", {}),
        "failures, filtered": ("/?domain=hardware&node=gx-02&text=nvlink", {}),
        "failures, poll": (reverse("failures-news") + f"?top={attempt.pk}&rows={attempt.pk}:pending", htmx),
        "attempt": (reverse("attempt", args=[attempt.pk]), {}),
        "attempt, progress": (reverse("attempt-progress", args=[attempt.pk]), htmx),
        "attempt, timeline": (reverse("attempt-timeline", args=[attempt.pk]) + "?by=rank", htmx),
        "evidence": (reverse("evidence", args=[attempt.pk, "e1"]), {}),
        "lanes": (reverse("lanes", args=[attempt.pk]), {}),
        "compare": (reverse("compare", args=[attempt.pk]), {}),
        "metrics": (reverse("attempt-metrics", args=[attempt.pk]), {}),
        "upload": ("/upload/", {}),
        "incidents": (reverse("incidents"), {}),
        "incident": (reverse("incident", args=[attempt.membership.incident_id]), {}),
        "incident, timeline": (reverse("incident-timeline", args=[attempt.membership.incident_id]), htmx),
        "incident, report": (reverse("incident-report", args=[attempt.membership.incident_id]), {}),
        "failures, by loss": ("/?q=is:unconfirmed+ended:52w&sort=lost&cols=ran", {}),
        "suggestions": (reverse("failures-suggest") + "?q=domain:hardware+node:", htmx),
        "views": (reverse("saved-views"), {}),
        "sources": (reverse("sources"), {}),
        "nodes": (reverse("nodes"), {}),
        "node": (reverse("node", args=["gx-02"]), {}),
        "insights": (reverse("insights") + "?weeks=52", {}),
        "rules": (reverse("rules"), {}),
        "rule": (reverse("rule", args=["xid.149"]), {}),
        "cases": (reverse("cases"), {}),
        "correct": (reverse("verdict-correct", args=[attempt.pk]), {}),
        "suggestions, xid": (reverse("failures-suggest") + "?q=xid:", htmx),
        "attempt, share": (reverse("attempt-share", args=[attempt.pk]), {}),
        "incident, share": (reverse("incident-share", args=[attempt.membership.incident_id]), {}),
        "notifications": (reverse("notifications"), {}),
        "following": (reverse("following"), {}),
        "tokens": (reverse("tokens"), {}),
        "channels": (reverse("channels"), {}),
        "channels, log": (reverse("deliveries"), {}),
        "clusters": (reverse("clusters"), {}),
        "audit": (reverse("audit"), {}),
    }


def keep_busy(attempt: Attempt, ada: User, number: int) -> None:
    """What an administrator has: shares, mentions, tokens, channels with their routes and messages, clusters."""
    ada.is_staff = True
    ada.save()
    other = User.objects.create_user("jun")
    for index in range(number):
        make_share(attempt, ada, note=f"share {index}")
        make_share(attempt.membership.incident, ada, note=f"share {index}")
        add_comment(attempt, other, f"@ada look, {index}")
        save_view(ada, f"view {index}", f"user:user-{index}", audience="all")
        follow(ada, "failures", f"q=user:user-{index}")
        create_token(ada, f"token {index}", ["read"])
        secret = "env:FAULTLINE_CHANNEL_SECRET"
        channel = save_channel(f"hook {index}", "webhook", {"url": "https://hooks.example.org/in", "secret": secret})
        save_route(RouteFields(name=f"route {index}", channel_id=channel.pk, news=["opened"]))
        send_trial(channel, ada)
        save_cluster(f"cluster-{index}", {}, ada, new=True)


def many(make_attempt: MakeAttempt, number: int) -> Attempt:
    for index in range(number):
        story = (stories.nvlink, stories.key_error, stories.no_cause)[index % 3]()
        make_attempt(
            story, ended_at=stories.END + timedelta(minutes=index), id="900", number=index + 2, user=f"user-{index}"
        )
    attempt = make_attempt(id="900", number=1)
    ada = User.objects.get(username="ada")
    for other in Attempt.objects.exclude(diagnosis=None):
        confirm(other.pk, ada, diagnosis_id=other.diagnosis_id)
    for index in range(number):
        add_comment(attempt, ada, f"comment {index}")
        add_comment(attempt.membership.incident, ada, f"comment {index}")
    keep_busy(attempt, ada, number)
    return attempt


def test_each_page_takes_the_number_of_queries_that_is_written_down(
    signed_in: Client, make_attempt: MakeAttempt
) -> None:
    attempt = many(make_attempt, 3)
    counted = {name: queries(signed_in, url, **headers) for name, (url, headers) in urls(attempt).items()}
    if os.environ.get("UPDATE_QUERY_COUNTS"):
        BASELINE.write_text(json.dumps(counted, indent=1) + "\n")
    assert counted == json.loads(BASELINE.read_text())


@pytest.mark.parametrize("name", list(json.loads(BASELINE.read_text())))
def test_more_rows_take_no_more_queries(name: str, signed_in: Client, make_attempt: MakeAttempt) -> None:
    attempt = many(make_attempt, 30)
    url, headers = urls(attempt)[name]
    assert queries(signed_in, url, **headers) == json.loads(BASELINE.read_text())[name]
