"""How triage moves on: every step once, whoever asks and whatever dies on the way."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from connectors.base import CollectionReport
from tests.triage import cast
from tests.triage.conftest import MakeAttempt
from triage.models import Attempt, Collection, CollectionState, Diagnosis, TimelineEvent, TriageState
from triage.services.bundles import import_bundle
from triage.services.collecting import (
    add_collection,
    finish_collection,
    lease_collection,
    postpone_collection,
    renew_collection,
)
from triage.services.diagnoses import evidence_hash, record_diagnosis
from triage.services.triage import (
    MAX_TRIES,
    begin_triage,
    fail_triage,
    lease_diagnosis,
    renew_diagnosis,
    request_triage,
)
from triage.services.turns import call_up, follow_turn, is_anything_due, take_turn
from triage.tasks.sweeping import sweep

pytestmark = pytest.mark.django_db
OK = [CollectionReport(source="applog", status="ok", streams=1)]


@pytest.fixture
def attempt(tmp_path: Path) -> Attempt:
    return import_bundle(cast.archive(tmp_path / "a.tar.zst", cast.members())).attempt


def state(attempt: Attempt) -> str:
    attempt.refresh_from_db()
    return attempt.triage_state


def silence(attempt: Attempt, seconds: int = 3600) -> None:
    """As if nothing had been heard for so long."""
    then = timezone.now() - timedelta(seconds=seconds)
    Attempt.objects.filter(pk=attempt.pk).update(triage_heartbeat_at=then, triage_queued_at=then)
    Collection.objects.filter(attempt=attempt).update(heartbeat_at=then, queued_at=then)


def collected(attempt: Attempt) -> None:
    begin_triage(attempt.pk)
    for collection in attempt.collections.all():
        lease = lease_collection(collection.pk)
        assert lease is not None
        assert finish_collection(lease, [], OK)


def test_an_attempt_is_collected_then_diagnosed_then_done(attempt: Attempt) -> None:
    assert state(attempt) == TriageState.PENDING
    begin_triage(attempt.pk)
    assert state(attempt) == TriageState.COLLECTING
    lease = lease_collection(attempt.collections.get().pk)
    assert lease is not None
    assert finish_collection(lease, [], OK)
    assert state(attempt) == TriageState.DIAGNOSING
    held = lease_diagnosis(attempt.pk)
    assert held is not None
    diagnosis = record_diagnosis(held, cast.contract(), "e")
    assert state(attempt) == TriageState.DONE
    assert attempt.diagnosis == diagnosis
    assert (attempt.outcome, attempt.domain, attempt.sub_domain) == ("failed", "hardware", "gpu")
    assert attempt.triage_finished_at is not None


def test_a_second_message_for_the_same_step_does_nothing(attempt: Attempt) -> None:
    begin_triage(attempt.pk)
    begin_triage(attempt.pk)
    collection = attempt.collections.get()
    lease = lease_collection(collection.pk)
    assert lease is not None and lease_collection(collection.pk) is None
    assert finish_collection(lease, [], OK)
    assert lease_collection(collection.pk) is None
    held = lease_diagnosis(attempt.pk)
    assert held is not None and lease_diagnosis(attempt.pk) is None
    assert record_diagnosis(held, cast.contract(), "e") is not None
    assert lease_diagnosis(attempt.pk) is None
    assert record_diagnosis(held, cast.contract(), "e") is None
    assert Diagnosis.objects.count() == 1
    assert TimelineEvent.objects.filter(kind="triage.started").count() == 1


def test_a_silent_worker_loses_its_lease_and_what_it_brings_late_is_dropped(attempt: Attempt) -> None:
    begin_triage(attempt.pk)
    collection = attempt.collections.get()
    dead = lease_collection(collection.pk)
    assert dead is not None
    silence(attempt)
    alive = lease_collection(collection.pk)
    assert alive is not None
    assert not renew_collection(dead, streams_done=1, bytes_done=1)
    assert not finish_collection(dead, [], OK)
    assert renew_collection(alive, streams_done=1, bytes_done=1)
    assert finish_collection(alive, [], OK)

    dead_diagnosis = lease_diagnosis(attempt.pk)
    assert dead_diagnosis is not None
    silence(attempt)
    alive_diagnosis = lease_diagnosis(attempt.pk)
    assert alive_diagnosis is not None
    assert not renew_diagnosis(dead_diagnosis)
    assert record_diagnosis(dead_diagnosis, cast.contract(title="late"), "e") is None
    assert record_diagnosis(alive_diagnosis, cast.contract(), "e") is not None


def test_a_new_request_while_diagnosing_starts_over_and_drops_the_old_answer(attempt: Attempt) -> None:
    collected(attempt)
    old = lease_diagnosis(attempt.pk)
    assert old is not None
    assert request_triage(attempt.pk)
    assert not renew_diagnosis(old)
    assert record_diagnosis(old, cast.contract(), "e") is None
    assert state(attempt) == TriageState.PENDING
    begin_triage(attempt.pk)
    assert state(attempt) == TriageState.DIAGNOSING  # nothing is collected twice


def test_asking_twice_while_it_waits_is_asking_once(attempt: Attempt) -> None:
    assert not request_triage(attempt.pk)
    assert TimelineEvent.objects.filter(kind="triage.requested").count() == 1


def test_a_worker_that_always_dies_ends_in_a_failure_with_a_reason(attempt: Attempt) -> None:
    collected(attempt)
    for _ in range(MAX_TRIES):
        assert lease_diagnosis(attempt.pk) is not None
        silence(attempt)
    assert lease_diagnosis(attempt.pk) is None
    assert state(attempt) == TriageState.FAILED
    assert "gave up after 5 tries" in attempt.triage_reason
    assert request_triage(attempt.pk)
    begin_triage(attempt.pk)
    assert lease_diagnosis(attempt.pk) is not None


def test_a_source_that_always_kills_its_worker_is_a_report_and_the_attempt_is_still_diagnosed(attempt: Attempt) -> None:
    begin_triage(attempt.pk)
    collection = attempt.collections.get()
    for _ in range(MAX_TRIES):
        assert lease_collection(collection.pk) is not None
        silence(attempt)
    assert lease_collection(collection.pk) is None
    collection.refresh_from_db()
    assert collection.reports[0]["status"] == "error"
    assert state(attempt) == TriageState.DIAGNOSING


def test_a_failed_triage_says_why_in_one_line_and_can_be_asked_for_again(attempt: Attempt) -> None:
    collected(attempt)
    fail_triage(attempt.pk, "rule pack x.yaml:\n  broken")
    assert state(attempt) == TriageState.FAILED
    assert attempt.triage_reason == "rule pack x.yaml: broken"
    assert request_triage(attempt.pk)
    assert state(attempt) == TriageState.PENDING
    assert attempt.triage_reason == ""


# --- the same input is answered once ----------------------------------------------------------------------------------


def test_the_same_evidence_under_the_same_rules_is_one_diagnosis(diagnosed: MakeAttempt) -> None:
    first = diagnosed("48213")
    again = diagnosed("48213")
    assert first == again
    assert Diagnosis.objects.count() == 1
    assert again.diagnosis == first.diagnosis


def test_other_rules_give_a_diagnosis_that_supersedes_and_leaves_the_old_one(diagnosed: MakeAttempt) -> None:
    first = diagnosed("48213")
    again = diagnosed("48213", domain="network", sub_domain="infiniband", ruleset="sha256:two")
    assert Diagnosis.objects.count() == 2
    assert again.diagnosis is not None and again.diagnosis.supersedes == first.diagnosis
    assert again.domain == "network"
    assert again.events.filter(kind="diagnosis.superseded").count() == 1


def test_evidence_is_the_same_in_any_order_and_another_when_anything_changes(attempt: Attempt) -> None:
    streams = [
        attempt.streams.model(name=name, source="applog", node=None, rank=None, sha256=name * 8, size=1, lines=1)
        for name in "abc"
    ]
    facts = cast.facts()
    reports = [CollectionReport(source=name, status="error").for_engine() for name in ("x", "y")]
    same = {evidence_hash(facts, order, reports[::step]) for order in (streams, streams[::-1]) for step in (1, -1)}
    assert len(same) == 1
    others = {
        evidence_hash(facts, streams[:2], reports),
        evidence_hash(facts, streams, reports[:1]),
        evidence_hash(cast.facts(state="TIMEOUT"), streams, reports),
    }
    assert len(others | same) == 4


def test_the_database_refuses_to_change_a_diagnosis_or_the_timeline(diagnosed: MakeAttempt) -> None:
    attempt = diagnosed()
    for change in (
        lambda: Diagnosis.objects.update(title="another"),
        lambda: Diagnosis.objects.update(contract={}),
        lambda: TimelineEvent.objects.update(kind="x"),
    ):
        with pytest.raises(IntegrityError, match="never edited"), transaction.atomic():
            change()
    event = attempt.events.first()
    assert event is not None
    with pytest.raises(TypeError, match="append-only"):
        event.save()


def test_text_that_postgres_refuses_is_kept_readable(attempt: Attempt) -> None:
    collected(attempt)
    held = lease_diagnosis(attempt.pk)
    assert held is not None
    diagnosis = record_diagnosis(held, cast.contract(title="a\x00b\ud800c"), "e")
    assert diagnosis is not None
    diagnosis.refresh_from_db()
    assert diagnosis.title == diagnosis.contract["title"] == "a\ufffdb\ufffdc"


# --- what is lost is found again --------------------------------------------------------------------------------------


def test_what_is_being_worked_on_is_nobody_elses_turn(attempt: Attempt) -> None:
    turn = take_turn()
    assert turn is not None and turn.collection is not None
    assert take_turn() is None and not is_anything_due()
    assert finish_collection(turn.collection, [], OK)
    turn = follow_turn(attempt.pk)
    assert turn is not None and turn.diagnosis is not None
    assert take_turn() is None and not is_anything_due()


def test_what_a_worker_left_behind_is_taken_by_the_next_at_every_step(attempt: Attempt) -> None:
    assert take_turn() is not None
    silence(attempt)
    turn = take_turn()
    assert turn is not None and turn.collection is not None
    assert finish_collection(turn.collection, [], OK)
    assert take_turn() is not None
    silence(attempt)
    turn = take_turn()
    assert turn is not None and turn.diagnosis is not None and turn.attempt_id == attempt.pk
    attempt.refresh_from_db()
    assert attempt.triage_tries == 2


def test_a_source_that_is_asked_again_later_is_nobodys_turn_until_then(attempt: Attempt) -> None:
    turn = take_turn()
    assert turn is not None and turn.collection is not None
    assert postpone_collection(turn.collection, 60)
    assert take_turn() is None
    Collection.objects.update(queued_at=timezone.now() - timedelta(seconds=1))
    assert take_turn() is not None


def test_an_attempt_whose_last_step_was_committed_but_not_followed_moves_on(attempt: Attempt) -> None:
    begin_triage(attempt.pk)
    Collection.objects.update(state=CollectionState.DONE)
    assert take_turn() is None
    assert call_up() == 1
    assert state(attempt) == TriageState.DIAGNOSING
    assert call_up() == 0


def test_what_a_version_without_ranks_asked_for_has_its_turn_with_the_next_sweep(attempt: Attempt) -> None:
    Attempt.objects.update(triage_rank=None)
    assert take_turn() is None
    sweep()
    assert take_turn() is not None


def test_a_changed_source_is_collected_again_and_an_unchanged_one_is_not(attempt: Attempt) -> None:
    _, news = add_collection(attempt, "files", "watch:a", content_key="1")
    assert news
    _, news = add_collection(attempt, "files", "watch:a", content_key="1")
    assert not news
    collection, news = add_collection(attempt, "files", "watch:a", content_key="2")
    assert news and collection.state == CollectionState.PENDING


def test_leftovers_in_the_spool_go_after_a_day_and_what_is_still_needed_stays(attempt: Attempt, data_dir: Path) -> None:
    (needed,) = (data_dir / "spool").iterdir()
    for name in (".draft-cut-off", "f" * 64 + ".tar", "new.tar"):
        (data_dir / "spool" / name).write_bytes(b"x")
    for path in (data_dir / "spool").iterdir():
        if path.name != "new.tar":
            os.utime(path, (0, 0))
    sweep()
    assert {path.name for path in (data_dir / "spool").iterdir()} == {needed.name, "new.tar"}


def test_what_a_killed_worker_left_half_written_goes_after_a_day(data_dir: Path) -> None:
    drafts = data_dir / "blobs" / "drafts"
    drafts.mkdir(parents=True, exist_ok=True)
    for name in ("of-yesterday", "being-written"):
        (drafts / name).write_bytes(b"half")
    os.utime(drafts / "of-yesterday", (0, 0))
    sweep()
    assert [path.name for path in drafts.iterdir()] == ["being-written"]
