"""Feeds and badges: by token, by session, and under addresses of their own that end when their maker says so."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from django.contrib.auth.models import User
from django.test import Client
from msgspec import structs

from tests.web.conftest import NVLINK, MakeAttempt
from triage.models import Attempt, Followed
from triage.services import following
from triage.services.tokens import create_token
from triage.services.verdicts import Answer, correct
from triage.web.badge import badge, verdict_in_short

pytestmark = pytest.mark.django_db
ATOM = "{http://www.w3.org/2005/Atom}"


def entries(answer: object) -> list[ElementTree.Element]:
    assert answer.status_code == 200, answer.content  # type: ignore[attr-defined]
    assert answer["Content-Type"] == "application/atom+xml; charset=utf-8"  # type: ignore[index]
    return ElementTree.fromstring(answer.content).findall(f"{ATOM}entry")  # type: ignore[attr-defined]


def text(entry: ElementTree.Element, name: str) -> str:
    found = entry.find(f"{ATOM}{name}")
    assert found is not None
    return found.text or ""


def word_of(page: str) -> str:
    found = re.search(r"http://testserver(/f/[^<]+/)", page)
    assert found, page
    return found[1]


def test_failures_are_a_feed_with_the_filters_of_the_page(signed_in: Client, make_attempt: MakeAttempt) -> None:
    attempt = make_attempt()
    (entry,) = entries(signed_in.get("/failures.atom"))
    assert text(entry, "title") == attempt.title
    assert text(entry, "id").startswith("tag:testserver,") and f"/attempts/{attempt.pk}/" in text(entry, "id")
    assert "gx-02" in text(entry, "summary") and "llama" in text(entry, "summary")
    assert entries(signed_in.get("/failures.atom?q=domain:software")) == []
    assert len(entries(signed_in.get("/failures.atom?q=domain:hardware"))) == 1
    wrong = signed_in.get("/failures.atom?q=domian:hardware")
    assert wrong.status_code == 400 and "Did you mean domain" in wrong.json()["detail"]


def test_incidents_are_a_feed_too(signed_in: Client, make_attempt: MakeAttempt) -> None:
    incident = make_attempt().membership.incident
    (entry,) = entries(signed_in.get("/incidents.atom"))
    assert text(entry, "title") == f"{incident.name}: {incident.title}"
    assert entries(signed_in.get("/incidents.atom?view=resolved")) == []


def test_what_did_not_change_is_not_sent_again(signed_in: Client, make_attempt: MakeAttempt) -> None:
    attempt = make_attempt()
    for address in ("/failures.atom", "/incidents.atom", f"/attempts/{attempt.pk}/badge.svg"):
        first = signed_in.get(address)
        again = signed_in.get(address, headers={"If-None-Match": first["ETag"]})
        assert (again.status_code, again.content) == (304, b""), address


def test_a_token_that_may_read_is_enough_and_without_one_nothing_is_told(
    client: Client, make_attempt: MakeAttempt
) -> None:
    attempt = make_attempt()
    user = User.objects.create_user("reader")
    _, read = create_token(user, "reader", ["read"])
    _, ingest = create_token(user, "sender", ["ingest"])
    for address in ("/failures.atom", "/incidents.atom", f"/attempts/{attempt.pk}/badge.svg"):
        assert client.get(address).status_code == 401
        assert client.get(address, headers={"Authorization": f"Bearer {read}"}).status_code == 200
        assert client.get(address, headers={"Authorization": f"Bearer {ingest}"}).status_code == 403


def test_an_address_of_ones_own_shows_the_feed_without_a_sign_in_until_it_is_ended(
    signed_in: Client, make_attempt: MakeAttempt
) -> None:
    attempt = make_attempt()
    page = signed_in.post("/following/", {"kind": "failures", "about": "domain:hardware", "note": "wiki"}, follow=True)
    address = word_of(page.content.decode())
    (entry,) = entries(Client().get(address))
    assert text(entry, "title") == attempt.title
    assert Client().head(address).status_code == 200
    assert Client().get(address)["X-Robots-Tag"].startswith("noindex")
    assert Followed.objects.get().last_used_at is not None
    assert "wiki" in signed_in.get("/following/").content.decode()
    signed_in.post(f"/following/{Followed.objects.get().pk}/end/")
    gone = Client().get(address)
    assert gone.status_code == 410 and attempt.title not in gone.content.decode()


def test_nobody_ends_an_address_of_somebody_else(signed_in: Client, make_attempt: MakeAttempt) -> None:
    make_attempt()
    other = following.follow(User.objects.create_user("bob"), "failures")
    assert f"/f/{following.followed_word(other)}/" not in signed_in.get("/following/").content.decode()
    signed_in.post(f"/following/{other.pk}/end/")
    assert Client().get(f"/f/{following.followed_word(other)}/").status_code == 200


def test_an_address_ends_with_the_account_and_can_not_be_guessed(make_attempt: MakeAttempt, settings: object) -> None:
    make_attempt()
    user = User.objects.create_user("bob")
    word = following.followed_word(following.follow(user, "failures"))
    assert Client().get(f"/f/{word}/").status_code == 200
    for wrong in (word[:-1] + ("A" if word[-1] != "A" else "B"), "1." + "A" * 32, "x", word.replace(".", "..", 1)):
        assert Client().get(f"/f/{wrong}/").status_code == 404
    User.objects.filter(pk=user.pk).update(is_active=False)
    assert Client().get(f"/f/{word}/").status_code == 410


def test_who_guesses_waits(client: Client, settings: object) -> None:
    settings.FAULTLINE_SHARE_RATE = 3  # type: ignore[attr-defined]
    statuses = [client.get("/f/1." + "A" * 32 + "/", REMOTE_ADDR="192.0.2.99").status_code for _ in range(5)]
    assert statuses[:3] == [404] * 3 and statuses[-1] == 429


def test_a_badge_says_what_stands_and_names_nothing(signed_in: Client, make_attempt: MakeAttempt, ada: User) -> None:
    attempt = make_attempt()
    picture = signed_in.get(f"/attempts/{attempt.pk}/badge.svg")
    assert picture["Content-Type"].startswith("image/svg+xml")
    svg = picture.content.decode()
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    assert "hardware: NVLink" in svg and "gx-02" not in svg and "script" not in svg
    correct(
        attempt.pk, ada, diagnosis_id=attempt.diagnosis_id or 0, seen=None, kind="wrong_cause", reason="cable",
        answer=Answer(domain="network", sub_domain="infiniband", title="A cable", nodes=[]),
    )  # fmt: skip
    assert "network: InfiniBand" in signed_in.get(f"/attempts/{attempt.pk}/badge.svg").content.decode()


def test_a_workloads_badge_follows_its_newest_attempt(signed_in: Client, make_attempt: MakeAttempt) -> None:
    attempt = make_attempt()
    word = following.followed_word(following.follow(User.objects.get(username="ada"), "workload", str(attempt.pk)))
    assert "hardware: NVLink" in Client().get(f"/f/{word}/").content.decode()
    newer = Attempt.objects.create(workload=attempt.workload, cluster=attempt.cluster, number=attempt.number + 1)
    for answer in (Client().get(f"/f/{word}/"), signed_in.get(f"/attempts/{attempt.pk}/badge.svg?of=workload")):
        assert f"attempt {newer.number}" in answer.content.decode() and "in triage" in answer.content.decode()
    assert signed_in.get(f"/attempts/{attempt.pk}/badge.svg?of=x").status_code == 400


@pytest.mark.parametrize(
    ("kind", "about", "said"),
    [
        ("attempt", "987654", "There is no attempt of this number"),
        ("attempt", "", "There is no attempt of this number"),
        ("workload", "x" * 50, "There is no attempt of this number"),
        ("failures", "domian:hardware", "Did you mean domain"),
        ("failures", "\u00fc" * 1500, "too long"),
        ("nonsense", "", "Choose what the address shows"),
    ],
)
def test_what_can_not_be_followed_is_said(signed_in: Client, kind: str, about: str, said: str) -> None:
    answer = signed_in.post("/following/", {"kind": kind, "about": about})
    assert answer.status_code == 400 and said in answer.content.decode()
    assert not Followed.objects.exists()


def test_nothing_out_of_a_log_breaks_a_feed_or_a_badge(signed_in: Client, make_attempt: MakeAttempt) -> None:
    make_attempt(structs.replace(NVLINK, title="<b>\x1b[31m\x08\u202e]]>&amp;"))
    (entry,) = entries(signed_in.get("/failures.atom"))
    assert "<b>" in text(entry, "title") and "\x1b" not in text(entry, "title") and "\u202e" not in text(entry, "title")
    ElementTree.fromstring(badge('<"&>', "\u4e2d'", "#000"))


def test_every_outcome_has_a_word_on_a_badge(make_attempt: MakeAttempt) -> None:
    attempt = make_attempt()
    for outcome, domain, said in (
        ("succeeded", "unattributed", "succeeded"), ("cancelled", "scheduler", "cancelled"),
        ("failed", "unattributed", "failed, cause unknown"), ("hung", "software", "software: NVLink"),
    ):  # fmt: skip
        attempt.outcome, attempt.domain = outcome, domain
        assert verdict_in_short(attempt)[0] == said
    attempt.sub_domain = "ambiguous"
    assert verdict_in_short(attempt)[0] == "software"


def test_what_nobody_types_is_answered_too(signed_in: Client, make_attempt: MakeAttempt, ada: User) -> None:
    make_attempt()
    huge = "9" * 30
    ada.is_superuser = True
    ada.save()
    for address in (
        f"/attempts/{huge}/badge.svg", "/failures.atom?q=%00", "/failures.atom?q=%FF&sort=x&cursor=zzz",
        f"/incidents.atom?severity={huge}&assignee={huge}&q=%00", "/incidents.atom?view=%00&sort=%00",
        "/following/?kind=%00&about=%00&note=%00", f"/f/{'z' * 13}.{'A' * 32}/", f"/f/{'0' * 13}.{'A' * 32}/",
        f"/audit/?before={huge}&number=%00&who=%00", "/audit/?before=-1", f"/compat/attribution/v2/sessions/{huge}",
        f"/compat/attribution/v2/sessions/{huge}/verdict?wait=99999",
    ):  # fmt: skip
        assert signed_in.get(address).status_code < 500, address
    for address, form in (
        ("/following/", {"kind": "failures", "about": "\x00", "note": "\x00" * 9}),
        ("/following/", {"kind": "attempt", "about": "\u0661"}),
        ("/following/", {"kind": "attempt", "about": huge}),
        (f"/following/{huge}/end/", {}),
        (f"/tokens/{huge}/revoke/", {}),
        ("/tokens/", {"name": "\x00 a \ud800".encode("utf-8", "replace"), "scope": ["read", "read"], "days": "90"}),
        ("/tokens/", {"name": "n" * 5000, "scope": ["read\x00"], "days": huge}),
    ):
        assert signed_in.post(address, form).status_code < 500, (address, form)
