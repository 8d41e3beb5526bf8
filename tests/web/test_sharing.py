"""Share links as strangers see them, and the page that makes them."""

from __future__ import annotations

import re
import secrets
import time
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tests.web import stories
from tests.web.conftest import MakeAttempt
from triage import rates
from triage.models import Attempt, Incident, ShareLink, ShareOpening, TimelineEvent
from triage.services.comments import add_comment
from triage.services.sharing import make_share, share_token
from triage.services.verdicts import confirm


@pytest.fixture
def stranger() -> Client:
    return Client()


def address(share: ShareLink) -> str:
    return reverse("shared", args=[share_token(share)])


def test_a_link_is_made_listed_opened_and_revoked(
    signed_in: Client, stranger: Client, make_attempt: MakeAttempt
) -> None:
    attempt = make_attempt()
    page = reverse("attempt-share", args=[attempt.pk])
    signed_in.post(page, {"days": "7", "note": "vendor"})
    share = ShareLink.objects.get()
    listed = signed_in.get(page).content.decode()
    assert f"http://testserver{address(share)}" in listed and "vendor" in listed and "Not opened yet" in listed
    answer = stranger.get(address(share), headers={"User-Agent": "Firefox"})
    assert answer.status_code == 200 and "NVLink signal-integrity fault on gx-02 (Xid 149)" in answer.content.decode()
    stranger.get(address(share), headers={"User-Agent": "Firefox"})
    assert "Opened 2 times by 1 reader" in signed_in.get(page).content.decode()
    event = TimelineEvent.objects.get(kind="share.opened")
    assert event.attempt == attempt and event.payload["address"] == "127.0.0.1" and event.actor is None
    signed_in.post(reverse("share-revoke", args=[share.pk]))
    ended = stranger.get(address(share))
    assert ended.status_code == 410 and "This link was revoked" in ended.content.decode()
    assert "NVLink" not in ended.content.decode()


def test_strangers_see_no_names_no_secrets_no_way_in_and_no_log_text_in_previews(
    stranger: Client, signed_in: Client, make_attempt: MakeAttempt
) -> None:
    secret = "hf_abcdefghij0123456789klmnop"
    story = stories.nvlink()
    line = stories.evidence(
        "e1", "xid.149", "syslog/gx-02.log", 125, f"Xid 149 for /home/jun/train.py HF_TOKEN={secret}", node="gx-02"
    )
    story = stories._changed(story, evidence=(line, *story.evidence[1:]), title="Xid 149 in /home/jun/train.py")
    attempt, ada = make_attempt(story, user="jun"), User.objects.get()
    add_comment(attempt, ada, "internal gossip")
    confirm(attempt.pk, ada, diagnosis_id=attempt.diagnosis_id)
    answer = stranger.get(address(make_share(attempt, ada)))
    page = answer.content.decode()
    assert "/home/●●●/train.py" in page and "HF_TOKEN=****" in page and "Confirmed" in page
    for hidden in (secret, "jun", "internal gossip", "Confirmed by", "/attempts/", "/incidents/", 'aria-label="Main"'):
        assert hidden not in page, hidden
    assert re.findall(r'href="(/(?!static)[^"]*)"', page) == ["/sign-in/"]
    head = page[: page.index("</head>")]
    assert 'property="og:title"' in head and "gx-02" in head
    assert "/home" not in head and "NETIR" not in head, "no log text in what a chat shows"
    assert 'name="robots" content="noindex' in head and 'content="no-referrer"' in head
    assert answer["Referrer-Policy"] == "no-referrer" and "noindex" in answer["X-Robots-Tag"]
    assert "no-store" in answer["Cache-Control"] and "script-src 'self'" in answer["Content-Security-Policy"]


def test_a_link_shows_its_own_subject_alone(stranger: Client, signed_in: Client, make_attempt: MakeAttempt) -> None:
    make_attempt(user="jun")
    incident, ada = Incident.objects.get(), User.objects.get()
    add_comment(incident, ada, "internal gossip")
    page = stranger.get(address(make_share(incident, ada))).content.decode()
    assert f"{incident.name}: NVLink signal-integrity fault (Xid 149)" in page and "76.0" in page
    for hidden in ("jun", "internal gossip", "/attempts/", "/incidents/"):
        assert hidden not in page, hidden
    assert f'og:title" content="{incident.name}:' in page
    assert TimelineEvent.objects.get(kind="share.opened").incident == incident


def test_links_that_ended_or_never_were_show_nothing(stranger: Client, make_attempt: MakeAttempt, ada: User) -> None:
    share = make_share(make_attempt(), ada)
    good = address(share)
    for wrong in (good[:-3] + "xx/", "/s/1.aaaa/", "/s/%00/", "/s/'; drop table/", f"/s/{'9' * 300}.{'a' * 32}/"):
        answer = stranger.get(wrong)
        assert answer.status_code == 404 and "NVLink" not in answer.content.decode(), wrong
    ShareLink.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    answer = stranger.get(good)
    assert answer.status_code == 410 and "This link has ended" in answer.content.decode()
    assert stranger.post(good).status_code == 405
    assert not ShareOpening.objects.exists()


def test_behind_a_proxy_nonsense_in_its_header_is_no_address(
    stranger: Client, make_attempt: MakeAttempt, ada: User, settings: object
) -> None:
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")  # type: ignore[attr-defined]
    share = make_share(make_attempt(), ada)
    assert stranger.get(address(share), headers={"X-Forwarded-For": "1.2.3.4, 192.0.2.9"}).status_code == 200
    assert stranger.get(address(share), headers={"X-Forwarded-For": "'; --"}).status_code == 200
    assert set(ShareOpening.objects.values_list("address", flat=True)) == {"192.0.2.9", None}


def test_the_summary_for_a_chat_says_what_to_do(signed_in: Client, make_attempt: MakeAttempt) -> None:
    attempt = make_attempt()
    page = signed_in.get(reverse("attempt-share", args=[attempt.pk])).content.decode()
    summary = re.search(r'<textarea id="summary"[^>]*>(.*?)</textarea>', page, re.DOTALL)
    assert summary is not None
    for words in (
        "**NVLink signal-integrity fault on gx-02 (Xid 149)**",
        "Do next: Restart without gx-02",
        "76.0 GPU-hours",
        "line 125",
        f"http://testserver/attempts/{attempt.pk}/",
    ):
        assert words in summary[1], words
    incident = Incident.objects.get()
    assert f"**{incident.name}: " in signed_in.get(reverse("incident-share", args=[incident.pk])).content.decode()


def test_only_people_who_signed_in_make_and_revoke(stranger: Client, make_attempt: MakeAttempt, ada: User) -> None:
    attempt: Attempt = make_attempt()
    share = make_share(attempt, ada)
    for url in (reverse("attempt-share", args=[attempt.pk]), reverse("share-revoke", args=[share.pk])):
        assert "/sign-in/" in stranger.post(url)["Location"]
    assert ShareLink.objects.filter(revoked_at=None).count() == 1


def test_who_opens_shared_pages_too_often_waits_a_minute_and_others_do_not(
    stranger: Client, make_attempt: MakeAttempt, ada: User, settings: Any
) -> None:
    settings.FAULTLINE_SHARE_RATE = 3
    share = make_share(make_attempt(), ada)
    here, there = f"198.51.100.{secrets.randbelow(250)}", f"203.0.113.{secrets.randbelow(250)}"
    wait_for_a_fresh_minute()
    statuses = [stranger.get(address(share), REMOTE_ADDR=here).status_code for _ in range(3)]
    assert statuses == [200, 200, 200]
    refused = stranger.get(address(share), REMOTE_ADDR=here)
    assert refused.status_code == 429 and 0 < int(refused["Retry-After"]) <= 60
    assert "Too many openings" in refused.content.decode() and "NVLink" not in refused.content.decode()
    assert "noindex" in refused["X-Robots-Tag"]
    assert stranger.get("/s/1.aaaa/", REMOTE_ADDR=here).status_code == 429, "guessing waits too"
    assert stranger.get(address(share), REMOTE_ADDR=there).status_code == 200
    subscriber = f"2001:db8:{secrets.randbelow(9999)}:{secrets.randbelow(9999)}"
    answers = [stranger.get("/s/1.aaaa/", REMOTE_ADDR=f"{subscriber}::{n:x}") for n in range(4)]
    assert [answer.status_code for answer in answers] == [404, 404, 404, 429], "a network of IPv6 is one subscriber"
    assert sum(ShareOpening.objects.values_list("times", flat=True)) == 4, "what was refused was not opened"


def test_one_link_has_a_limit_of_its_own_whoever_opens_it(
    stranger: Client, make_attempt: MakeAttempt, ada: User, settings: Any
) -> None:
    settings.FAULTLINE_SHARE_RATE = 1
    attempt = make_attempt()
    share, other = make_share(attempt, ada), make_share(attempt, ada)
    network = f"10.{secrets.randbelow(250)}.{secrets.randbelow(250)}"
    wait_for_a_fresh_minute()
    statuses = [stranger.get(address(share), REMOTE_ADDR=f"{network}.{n}").status_code for n in range(12)]
    assert statuses == [200] * 10 + [429] * 2
    assert stranger.get(address(other), REMOTE_ADDR=f"{network}.99").status_code == 200


def test_without_the_broker_nobody_is_kept_out(
    stranger: Client, make_attempt: MakeAttempt, ada: User, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.FAULTLINE_SHARE_RATE = 1
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    monkeypatch.setattr(rates, "quick_broker", rates.quick_broker.__wrapped__)
    share = make_share(make_attempt(), ada)
    assert [stranger.get(address(share)).status_code for _ in range(3)] == [200, 200, 200]


def wait_for_a_fresh_minute() -> None:
    """Near the end of a minute of the clock the count would begin again in the middle of a test."""
    left = 60 - time.time() % 60
    if left < 10:
        time.sleep(left + 0.1)
