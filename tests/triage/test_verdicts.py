"""A person's word on a diagnosis."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, connection, transaction

from tests.triage import cast
from tests.triage.conftest import MakeAttempt
from triage.models import Attempt, TimelineEvent, Verdict, VerdictStatus
from triage.selectors.attempts import AttemptFilter, list_attempts
from triage.services.diagnoses import record_diagnosis
from triage.services.triage import begin_triage, lease_diagnosis, request_triage
from triage.services.verdicts import Answer, VerdictConflict, VerdictRefused, confirm, correct, keep, withdraw


@pytest.fixture
def maren(db: None) -> User:
    return User.objects.create_user("maren", first_name="Maren", last_name="Vogt")


@pytest.fixture
def owen(db: None) -> User:
    return User.objects.create_user("owen")


def diagnose_again(attempt: Attempt, **changes: Any) -> Attempt:
    """What happens when a new ruleset is tried on a known attempt."""
    request_triage(attempt.pk)
    begin_triage(attempt.pk)
    lease = lease_diagnosis(attempt.pk)
    assert lease is not None
    contract = cast.contract(ruleset=f"sha256:{len(changes)}{attempt.diagnoses.count()}", **changes)
    assert record_diagnosis(lease, contract, evidence="again") is not None
    return Attempt.objects.get(pk=attempt.pk)


def wrong_cause(attempt: Attempt, actor: User, seen: int | None = None, **changes: Any) -> Verdict:
    answer = {
        "domain": "hardware",
        "sub_domain": "nvswitch",
        "title": "A switch took its ports down",
        "nodes": ["gx-01"],
    }
    values: dict[str, Any] = {"kind": "wrong_cause", "reason": "The tray went first.", **changes}
    answer |= values.pop("answer", {})
    return correct(attempt.pk, actor, diagnosis_id=attempt.diagnosis_id, seen=seen, answer=Answer(**answer), **values)


def events(attempt: Attempt, prefix: str = "verdict.") -> list[str]:
    return list(attempt.events.filter(kind__startswith=prefix).values_list("kind", flat=True))


def test_confirming_keeps_the_answer_and_who_gave_it(diagnosed: MakeAttempt, maren: User) -> None:
    attempt = diagnosed()
    verdict = confirm(attempt.pk, maren, diagnosis_id=attempt.diagnosis_id)
    attempt.refresh_from_db()
    assert attempt.verdict_status == VerdictStatus.CONFIRMED and attempt.verdict == verdict
    assert (verdict.domain, verdict.sub_domain, verdict.nodes) == ("hardware", "gpu", ["gx-02"])
    assert verdict.rule == "xid.79", "so that it counts for the rule"
    event = TimelineEvent.objects.get(kind="verdict.confirmed")
    assert event.actor == maren and event.attempt == attempt and event.payload["title"] == attempt.diagnosis.title


def test_confirming_twice_is_kept_once_also_by_two_people(diagnosed: MakeAttempt, maren: User, owen: User) -> None:
    attempt = diagnosed()
    first = confirm(attempt.pk, maren, diagnosis_id=attempt.diagnosis_id)
    assert confirm(attempt.pk, maren, diagnosis_id=attempt.diagnosis_id) == first
    assert confirm(attempt.pk, owen, diagnosis_id=attempt.diagnosis_id).by == maren, "nothing to add to what was said"
    assert Verdict.objects.count() == 1 and events(attempt) == ["verdict.confirmed"]


def test_a_correction_is_the_answer_that_lists_filter_on(diagnosed: MakeAttempt, maren: User) -> None:
    attempt = diagnosed()
    wrong_cause(attempt, maren)
    attempt.refresh_from_db()
    assert attempt.verdict_status == VerdictStatus.CORRECTED
    assert (attempt.domain, attempt.sub_domain, attempt.blamed_nodes) == ("hardware", "nvswitch", ["gx-01"])
    assert attempt.title == "A switch took its ports down"
    assert attempt.diagnosis.title == "GPU fell off the bus on gx-02 (Xid 79)", "the machine's answer stays as it was"
    for found in ({"sub_domain": ("nvswitch",)}, {"node": ("gx-01",)}, {"text": "ports down"}):
        assert [row.pk for row in list_attempts(AttemptFilter(**found)).attempts] == [attempt.pk]
    assert not list_attempts(AttemptFilter(node=("gx-02",))).attempts


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"reason": "  "}, "reason"),
        ({"kind": "confirmed"}, "kind"),
        ({"answer": {"sub_domain": "dns"}}, "cause"),
        ({"answer": {"domain": "weather"}}, "cause"),
        ({"answer": {"sub_domain": "gpu", "title": ""}}, "cause"),
        ({"kind": "wrong_node", "answer": {"nodes": ["gx-02"]}}, "nodes"),
        ({"answer": {"evidence": ["e9"]}}, "evidence"),
    ],
)
def test_a_correction_that_says_nothing_is_refused_with_its_field(
    changes: dict[str, Any], field: str, diagnosed: MakeAttempt, maren: User
) -> None:
    attempt = diagnosed()
    with pytest.raises(VerdictRefused) as refused:
        wrong_cause(attempt, maren, **changes)
    assert refused.value.field == field
    assert not Verdict.objects.exists() and not events(attempt)


def test_the_database_itself_wants_a_reason_and_one_standing_verdict(diagnosed: MakeAttempt, maren: User) -> None:
    attempt = diagnosed()
    confirm(attempt.pk, maren, diagnosis_id=attempt.diagnosis_id)
    common = {"attempt": attempt, "diagnosis": attempt.diagnosis, "by": maren, "title": "x", "domain": "y"}
    for values in ({"kind": "wrong_node"}, {"kind": "confirmed"}):
        with pytest.raises(IntegrityError), transaction.atomic():
            Verdict.objects.create(**common, **values)


def test_a_newer_diagnosis_never_overwrites_a_persons_word(diagnosed: MakeAttempt, maren: User) -> None:
    attempt = diagnosed()
    verdict = confirm(attempt.pk, maren, diagnosis_id=attempt.diagnosis_id)
    attempt = diagnose_again(attempt, domain="network", sub_domain="ethernet", title="A link flapped", nodes={})
    assert attempt.verdict == verdict and attempt.verdict_status == VerdictStatus.DISAGREES
    assert (attempt.domain, attempt.blamed_nodes) == ("hardware", ["gx-02"]), "the person's answer"
    assert attempt.diagnosis.domain == "network", "the engine's"
    assert events(attempt)[-1] == "verdict.disagrees"
    attempt = diagnose_again(attempt)
    assert attempt.verdict_status == VerdictStatus.CONFIRMED and events(attempt)[-1] == "verdict.agrees"


def test_the_answer_that_was_overruled_is_no_news_when_it_comes_again(diagnosed: MakeAttempt, maren: User) -> None:
    attempt = diagnosed()
    wrong_cause(attempt, maren)
    assert diagnose_again(attempt, title="GPU fell off the bus").verdict_status == VerdictStatus.CORRECTED
    agrees = diagnose_again(attempt, sub_domain="nvswitch", nodes={"gx-01": "cause"}, title="Switch down")
    assert agrees.verdict_status == VerdictStatus.CORRECTED, "the engine has come round"
    other = diagnose_again(attempt, domain="storage", sub_domain="capacity", nodes={}, title="Full")
    assert other.verdict_status == VerdictStatus.DISAGREES


def test_a_person_settles_the_disagreement_either_way(diagnosed: MakeAttempt, maren: User, owen: User) -> None:
    attempt = diagnosed()
    first = confirm(attempt.pk, maren, diagnosis_id=attempt.diagnosis_id)
    attempt = diagnose_again(attempt, domain="network", sub_domain="ethernet", title="A link flapped", nodes={})
    kept = keep(attempt.pk, owen, diagnosis_id=attempt.diagnosis_id, verdict_id=first.pk)
    attempt.refresh_from_db()
    assert attempt.verdict_status == VerdictStatus.CORRECTED and kept.kind == "wrong_cause"
    assert (kept.domain, kept.title) == ("hardware", first.title), "what Maren had said"
    assert keep(attempt.pk, owen, diagnosis_id=attempt.diagnosis_id, verdict_id=first.pk) == kept, "sent twice"
    confirm(attempt.pk, maren, diagnosis_id=attempt.diagnosis_id, seen=kept.pk)
    attempt.refresh_from_db()
    assert attempt.verdict_status == VerdictStatus.CONFIRMED and attempt.domain == "network"
    assert Verdict.objects.filter(attempt=attempt, ended_at__isnull=False).count() == 2, "the history stays"


def test_withdrawing_gives_the_machines_answer_back(diagnosed: MakeAttempt, maren: User) -> None:
    attempt = diagnosed()
    verdict = wrong_cause(attempt, maren)
    assert withdraw(attempt.pk, maren, verdict_id=verdict.pk)
    assert not withdraw(attempt.pk, maren, verdict_id=verdict.pk), "a second time there is nothing to take back"
    attempt.refresh_from_db()
    assert attempt.verdict is None and attempt.verdict_status == VerdictStatus.UNCONFIRMED
    assert (attempt.sub_domain, attempt.blamed_nodes) == ("gpu", ["gx-02"])
    assert events(attempt) == ["verdict.corrected", "verdict.withdrawn"]


def test_what_somebody_else_said_meanwhile_is_not_swept_aside(diagnosed: MakeAttempt, maren: User, owen: User) -> None:
    attempt = diagnosed()
    standing = confirm(attempt.pk, maren, diagnosis_id=attempt.diagnosis_id)
    with pytest.raises(VerdictConflict, match="Maren Vogt said it first") as conflict:
        wrong_cause(attempt, owen, seen=None)
    assert conflict.value.standing == standing
    assert wrong_cause(attempt, owen, seen=standing.pk).by == owen, "having seen it, one may"


def test_a_word_on_a_diagnosis_that_is_no_longer_current_is_refused(diagnosed: MakeAttempt, maren: User) -> None:
    attempt = diagnosed()
    old = attempt.diagnosis_id
    diagnose_again(attempt, title="Another")
    with pytest.raises(VerdictConflict, match="newer diagnosis"):
        confirm(attempt.pk, maren, diagnosis_id=old)


@pytest.mark.django_db(transaction=True)
def test_two_people_who_press_at_the_same_moment_leave_one_verdict(diagnosed: MakeAttempt) -> None:
    people = [User.objects.create_user(name) for name in ("maren", "owen", "ada", "jun")]
    attempt = diagnosed()
    confirming = [partial(confirm, attempt.pk, user, diagnosis_id=attempt.diagnosis_id) for user in people[:2]]
    outcomes = at_once([*confirming, *[partial(wrong_cause, attempt, user) for user in people[2:]]])
    assert Verdict.objects.filter(attempt=attempt, ended_at__isnull=True).count() == 1
    assert all(isinstance(outcome, Verdict | VerdictConflict) for outcome in outcomes)
    assert TimelineEvent.objects.filter(attempt=attempt, kind__startswith="verdict.").count() == Verdict.objects.count()


def at_once(calls: list[Callable[[], Any]]) -> list[Any]:
    """Runs calls in threads that start together; what each returned or raised."""
    barrier = threading.Barrier(len(calls))
    outcomes: list[Any] = [None] * len(calls)

    def run(index: int) -> None:
        barrier.wait()
        try:
            outcomes[index] = calls[index]()
        except Exception as error:
            outcomes[index] = error
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes
