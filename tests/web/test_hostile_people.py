"""What people, jobs and logs are called shows harmlessly on the pages where people work."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.web.conftest import MakeAttempt
from tests.web.test_hostile import FORBIDDEN, NASTY, SCRIPT, hostile_story, tags_of
from triage.services.comments import add_comment, edit_comment
from triage.services.incidents import assign, link_ticket, rename, set_status
from triage.services.sharing import make_share, share_token
from triage.services.verdicts import Answer, correct


@pytest.mark.parametrize(
    "name",
    [
        "attempt", "correct", "incidents", "incident", "system", "report", "share attempt", "share incident",
        "shared attempt", "shared incident", "notifications", "edit",
    ],
)  # fmt: skip
def test_nothing_hostile_reaches_a_page_raw(name: str, signed_in: Client, make_attempt: MakeAttempt) -> None:
    attempt = make_attempt(
        hostile_story(),
        name=f"job{SCRIPT}",
        user="jun'\"<b>",
        id="a/../b?c#d%00",
        state=f"FAILED {SCRIPT}",
        nodes=(f"gx-02{NASTY}", "gx-01"),
    )
    ada = User.objects.get(username="ada")
    evil = User.objects.create_user("evil", first_name=f"<b>{SCRIPT}", last_name="\u202e\"'")
    incident = attempt.membership.incident
    correct(
        attempt.pk,
        evil,
        diagnosis_id=attempt.diagnosis_id,
        seen=None,
        kind="wrong_cause",
        reason=f"because {NASTY}",
        answer=Answer("network", "dns", f"DNS {NASTY}", [f"gx-02{NASTY}"], ["e1"]),
    )
    comment = add_comment(attempt, ada, f"before {NASTY}")
    edit_comment(comment.pk, ada, f"after {NASTY} @evil", seen=comment.text)
    add_comment(incident, evil, f"@ada {NASTY}")
    set_status(incident.pk, evil, "mitigated", seen="new", note=f"note {NASTY}")
    assign(incident.pk, evil, evil.pk, seen=None)
    rename(incident.pk, evil, f"title {NASTY}")
    link_ticket(incident.pk, evil, url="https://t.example.org/?<script>", label=f"label {NASTY}", note=NASTY)
    share, shared = make_share(attempt, evil, note=NASTY), make_share(incident, evil, note=NASTY)
    url = {
        "attempt": f"/attempts/{attempt.pk}/",
        "correct": f"/attempts/{attempt.pk}/correct/",
        "incidents": "/incidents/",
        "incident": f"/incidents/{incident.pk}/",
        "system": f"/incidents/{incident.pk}/?kind=system",
        "report": f"/incidents/{incident.pk}/report/",
        "share attempt": f"/attempts/{attempt.pk}/share/",
        "share incident": f"/incidents/{incident.pk}/share/",
        "shared attempt": f"/s/{share_token(share)}/",
        "shared incident": f"/s/{share_token(shared)}/",
        "notifications": "/notifications/",
        "edit": f"/comments/{comment.pk}/edit/",
    }[name]
    answer = signed_in.get(url)
    assert answer.status_code == 200
    page = answer.content.decode()
    assert SCRIPT not in page and "<img" not in page and "alert(1)</script>" not in page
    for tag, attributes in tags_of(page):
        assert tag != "style" and not any(key.startswith("on") or key == "style" for key in attributes), attributes
        assert tag != "script" or attributes.get("src", "").startswith("/static/")
        assert not attributes.get("href", "").strip().lower().startswith(("javascript:", "data:"))
    assert not FORBIDDEN.search(page), page[FORBIDDEN.search(page).start() - 200 :][:300]  # type: ignore[union-attr]
    policy = answer["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "script-src 'self'" in policy and "unsafe" not in policy
