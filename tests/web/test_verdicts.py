"""Confirming and correcting on the pages."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from tests.web import stories
from tests.web.conftest import MakeAttempt, diagnose_with
from tests.web.test_evidence import Collected, collected
from triage.models import Attempt, Verdict, VerdictStatus
from triage.services.verdicts import confirm

__all__ = ["collected"]


@pytest.fixture
def owen(db: None) -> User:
    return User.objects.create_user("owen", first_name="Owen", last_name="Achebe")


def band(client: Client, attempt: Attempt) -> str:
    page = client.get(reverse("attempt", args=[attempt.pk])).content.decode()
    return page[page.index('<article class="verdict"') : page.index("</article>")]


def send(client: Client, name: str, attempt: Attempt, **values: object) -> int:
    fresh = Attempt.objects.get(pk=attempt.pk)
    seen = {"seen": fresh.verdict_id} if fresh.verdict_id else {}
    data = {"diagnosis": fresh.diagnosis_id, **seen, **values}
    return client.post(reverse(name, args=[attempt.pk]), data).status_code


def correction(**changes: object) -> dict[str, object]:
    return {
        "kind": "wrong_cause",
        "cause": "hardware/nvswitch",
        "node": ["gx-03"],
        "evidence": ["e2"],
        "reason": "The tray took its ports down <b>first</b>.",
        **changes,
    }


def test_a_diagnosis_is_confirmed_and_taken_back(signed_in: Client, make_attempt: MakeAttempt) -> None:
    attempt = make_attempt()
    before = band(signed_in, attempt)
    assert "Unconfirmed" in before and 'data-key="c"' in before and "Correct" in before
    assert send(signed_in, "verdict-confirm", attempt) == 302
    confirmed = band(signed_in, attempt)
    assert "Confirmed by Ada Moreau" in confirmed and "Undo" in confirmed and 'data-key="c"' not in confirmed
    assert send(signed_in, "verdict-withdraw", attempt) == 302
    assert "Unconfirmed" in band(signed_in, attempt)


def test_a_correction_stands_with_the_machines_answer_beside_it(signed_in: Client, make_attempt: MakeAttempt) -> None:
    attempt = make_attempt()
    assert send(signed_in, "verdict-correct", attempt, **correction()) == 302
    shown = band(signed_in, attempt)
    assert '<h1 id="v">NVSwitch on gx-03</h1>' in shown and "Corrected by Ada Moreau" in shown
    assert "The engine had said" in shown and "NVLink signal-integrity fault on gx-02 (Xid 149)" in shown
    assert "Wrong cause. Reason given: The tray took its ports down &lt;b&gt;first&lt;/b&gt;." in shown
    assert "Restart without gx-03" in shown and 'data-copy="--exclude=gx-03"' in shown
    assert f"/attempts/{attempt.pk}/evidence/e2/" in shown
    listed = signed_in.get("/").content.decode()
    assert "NVSwitch on gx-03" in listed and 'data-s="corrected"' in listed
    assert "NVSwitch on gx-03" in signed_in.get("/?node=gx-03&domain=hardware").content.decode()


def test_what_is_missing_in_a_correction_is_said_at_its_place_and_nothing_is_lost(
    signed_in: Client, make_attempt: MakeAttempt
) -> None:
    attempt = make_attempt()
    address = reverse("verdict-correct", args=[attempt.pk])
    data = correction(diagnosis=attempt.diagnosis_id, reason=" ", title="Tray 4", lines="nowhere:1")
    answer = signed_in.post(address, data)
    assert answer.status_code == 422
    page = answer.content.decode()
    assert "There is no stream" in page and 'value="Tray 4"' in page and "nowhere:1" in page
    data["lines"] = ""
    page = signed_in.post(address, data).content.decode()
    assert 'id="whye">Say why in a sentence' in page and 'aria-invalid="true"' in page
    assert re.search(r'value="hardware/nvswitch" selected', page) and re.search(r'value="gx-03" checked', page)
    assert not Verdict.objects.exists()


def test_the_form_shows_what_the_engine_says_and_the_whole_taxonomy(
    signed_in: Client, make_attempt: MakeAttempt
) -> None:
    page = signed_in.get(reverse("verdict-correct", args=[make_attempt().pk])).content.decode()
    assert "The engine says" in page and "Counts against <code>xid.149</code>" in page
    assert page.count("<optgroup") == 7 and 'value="network/roce"' in page and 'value="unattributed/none"' in page
    assert 'value="hardware/nvlink" selected' in page and 'value="gx-02" checked' in page
    assert 'value="e1" checked' in page and 'value="e4"' in page


def test_a_newer_diagnosis_says_that_it_disagrees_and_people_decide(
    signed_in: Client, make_attempt: MakeAttempt, owen: User
) -> None:
    attempt = make_attempt()
    confirm(attempt.pk, owen, diagnosis_id=attempt.diagnosis_id)
    diagnose_with_another(attempt)
    shown = band(signed_in, attempt)
    assert "Engine now disagrees" in shown and "Owen Achebe confirmed this" in shown
    assert '<h1 id="v">NVLink signal-integrity fault on gx-02 (Xid 149)</h1>' in shown
    assert "would say" in shown and "KeyError: &#x27;input_ids&#x27; in collate_fn" in shown
    assert "Decide between the two" in shown and "Keep Owen Achebe’s word" in shown and "Accept the engine’s" in shown
    assert 'data-s="disagrees"' in signed_in.get("/").content.decode()
    assert send(signed_in, "verdict-keep", attempt) == 302
    kept = band(signed_in, attempt)
    assert "Corrected by Ada Moreau" in kept and "The engine had said" in kept
    assert send(signed_in, "verdict-confirm", attempt) == 302
    assert "KeyError" in re.search(r'<h1 id="v">(.*?)</h1>', band(signed_in, attempt))[1]  # type: ignore[index]


def diagnose_with_another(attempt: Attempt) -> None:
    from triage.services.triage import request_triage

    request_triage(attempt.pk)
    diagnose_with(attempt, stories.key_error())


def test_two_people_at_once_the_second_learns_of_the_first(
    signed_in: Client, make_attempt: MakeAttempt, owen: User
) -> None:
    attempt = make_attempt()
    confirm(attempt.pk, owen, diagnosis_id=attempt.diagnosis_id)
    answer = signed_in.post(reverse("verdict-correct", args=[attempt.pk]), correction(diagnosis=attempt.diagnosis_id))
    assert answer.status_code == 422 and "Owen Achebe said it first" in answer.content.decode()
    attempt.refresh_from_db()
    assert attempt.verdict_status == VerdictStatus.CONFIRMED
    answer = signed_in.post(
        reverse("verdict-confirm", args=[attempt.pk]), {"diagnosis": attempt.diagnosis_id}, follow=True
    )
    assert "It was confirmed already." in answer.content.decode()
    stale = signed_in.post(reverse("verdict-confirm", args=[attempt.pk]), {"diagnosis": 1}, follow=True)
    assert "A newer diagnosis came" in stale.content.decode()


def test_without_a_cause_one_can_say_that_one_knows_it(signed_in: Client, make_attempt: MakeAttempt) -> None:
    attempt = make_attempt(stories.no_cause())
    assert "I know the cause" in band(signed_in, attempt)
    data = correction(cause="network/infiniband", node=[], more_nodes="", evidence=[], title="Rail 3 at a quarter")
    assert send(signed_in, "verdict-correct", attempt, **data) == 302
    shown = band(signed_in, attempt)
    assert "Rail 3 at a quarter" in shown and "none to blame" in shown and "No cause in the evidence" in shown


@pytest.mark.parametrize("name", ["verdict-confirm", "verdict-correct", "verdict-keep", "verdict-withdraw"])
def test_nobody_says_anything_without_signing_in(name: str, client: Client, make_attempt: MakeAttempt) -> None:
    attempt = make_attempt()
    answer = client.post(
        reverse(name, args=[attempt.pk]), {"diagnosis": attempt.diagnosis_id},
        headers={"Referer": f"http://testserver/attempts/{attempt.pk}/"},
    )  # fmt: skip
    assert answer.status_code == 302 and answer["Location"] == f"/sign-in/?next=/attempts/{attempt.pk}/"
    assert not Verdict.objects.exists()


@pytest.mark.parametrize("name", ["verdict-confirm", "verdict-keep", "verdict-withdraw"])
def test_a_link_alone_says_nothing(name: str, signed_in: Client, make_attempt: MakeAttempt) -> None:
    assert signed_in.get(reverse(name, args=[make_attempt().pk])).status_code == 405
    assert signed_in.post(reverse(name, args=[999])).status_code == 404


def test_lines_that_a_log_brings_stand_in_the_form_once_and_those_of_a_correction_stay(
    signed_in: Client, collected: Collected
) -> None:
    attempt = collected(
        {"syslog/gx-02.log": b"".join(b"Oct  5 04:11:%02d gx-02 line %d\n" % (n, n) for n in range(60))}
    )
    diagnose_with(attempt, stories.nvlink())
    address = reverse("verdict-correct", args=[attempt.pk])
    page = signed_in.get(address + "?quote=syslog/gx-02.log:3-5&quote=syslog/gx-02.log:L3-L5").content.decode()
    assert page.count('name="quote"') == 1 and "line 3" in page and "line 4" in page
    data = correction(diagnosis=Attempt.objects.get().diagnosis_id, quote=[f"{attempt.pk}:syslog/gx-02.log:3-5"])
    assert signed_in.post(address, data | {"lines": "syslog/gx-02.log:9"}).status_code == 302
    assert [(q["first"], q["last"]) for q in Verdict.objects.get().lines] == [(3, 5), (9, 9)]
    again = signed_in.get(address).content.decode()
    assert again.count('name="quote"') == 2, "a further correction begins with the lines of the one that stands"
    wrong = signed_in.get(address + "?quote=syslog/gx-02.log:900").content.decode()
    assert "has 60 lines" in wrong


def test_answers_wait_in_the_session_while_lines_are_picked_and_can_be_dropped(
    signed_in: Client, make_attempt: MakeAttempt
) -> None:
    attempt = make_attempt()
    address = reverse("verdict-correct", args=[attempt.pk])
    data = correction(diagnosis=attempt.diagnosis_id, title="Tray <4>", do="pick")
    answer = signed_in.post(address, data)
    assert answer["Location"] == f"/attempts/{attempt.pk}/evidence/?for=correction" and not Verdict.objects.exists()
    kept = signed_in.get(address).content.decode()
    assert 'value="Tray &lt;4&gt;"' in kept and "as you left them" in kept
    assert (
        "as you left them" not in signed_in.get(reverse("verdict-correct", args=[make_attempt().pk])).content.decode()
    )
    assert signed_in.get(address + "?new=1")["Location"] == address
    assert "Tray" not in signed_in.get(address).content.decode()
