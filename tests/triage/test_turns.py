"""Whose turn it is: no cluster starves another, what is newest and largest comes first, and everything comes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from connectors.base import CollectionReport
from tests.triage import cast
from tests.triage.test_verdicts import at_once
from triage.models import Attempt
from triage.services.attempts import record_attempt
from triage.services.collecting import add_collection, finish_collection
from triage.services.diagnoses import record_diagnosis
from triage.services.triage import request_triage
from triage.services.turns import Turn, follow_turn, take_turn

Wait = Callable[..., Attempt]
OK = [CollectionReport(source="applog", status="ok", streams=1)]


@pytest.fixture
def wait(db: None) -> Wait:
    """An attempt that waits for a worker: `wait("48213", cluster="c1", nodes=("gx-01",))`."""

    def make(workload: str, *, asked_ago: float = 0, sources: int = 1, **facts: Any) -> Attempt:
        attempt, _ = record_attempt(cast.facts(workload, **facts))
        for number in range(sources):
            add_collection(attempt, "files", f"watch:{workload}-{number}")
        with pytest.MonkeyPatch.context() as past:
            then = timezone.now() - timedelta(seconds=asked_ago)
            past.setattr("triage.services.triage.database_now", lambda: then)
            assert request_triage(attempt.pk)
        return attempt

    return make


@pytest.fixture
def best_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triage.services.turns.OTHER_END", 0.0)


def end(turn: Turn | None) -> Attempt:
    """Does a turn and what follows for the same attempt."""
    assert turn is not None
    attempt_id = turn.attempt_id
    while turn is not None:
        if turn.collection is not None:
            assert finish_collection(turn.collection, [], OK)
        elif turn.diagnosis is not None:
            assert record_diagnosis(turn.diagnosis, cast.contract(), f"evidence of {attempt_id}") is not None
        turn = follow_turn(attempt_id)
    return Attempt.objects.select_related("workload", "cluster").get(pk=attempt_id)


def all_ended() -> list[Attempt]:
    done = []
    while turn := take_turn():
        done.append(end(turn))
    return done


def test_a_cluster_of_which_nothing_is_at_work_comes_before_one_with_hundreds_that_wait(wait: Wait) -> None:
    for number in range(200):
        wait(f"noisy-{number}", cluster="noisy", nodes=tuple(f"gx-{n}" for n in range(64)))
    first = take_turn()
    quiet = wait("quiet", cluster="quiet", asked_ago=60)
    second = take_turn()
    assert first is not None and second is not None
    assert second.attempt_id == quiet.pk
    assert end(second).triage_state == "done"
    assert end(first).cluster.name == "noisy"


def test_one_worker_serves_clusters_in_turn_however_much_waits_of_one(wait: Wait) -> None:
    for number in range(90):
        wait(f"noisy-{number}", cluster="noisy")
    for number in range(10):
        wait(f"quiet-{number}", cluster="quiet")
    order = [attempt.cluster.name for attempt in all_ended()]
    assert len(order) == 100
    assert order[:60].count("quiet") == 10  # chance leaves one of the ten behind sixty turns once in 10^7 times


def test_the_newest_comes_first_and_what_is_asked_for_anew_is_new(wait: Wait, best_first: None) -> None:
    hour_ago = wait("hour-ago", asked_ago=3600)
    for name, ago in (("two-hours-ago", 7200), ("now", 0), ("a-minute-ago", 60)):
        wait(name, asked_ago=ago)
    assert end(take_turn()).workload.workload_id == "now"
    Attempt.objects.filter(pk=hour_ago.pk).update(triage_requested_at=None)
    assert request_triage(hour_ago.pk)
    names = [attempt.workload.workload_id for attempt in all_ended()]
    assert names == ["hour-ago", "a-minute-ago", "two-hours-ago"]


def test_a_large_job_comes_before_small_ones_that_are_a_little_newer(wait: Wait, best_first: None) -> None:
    wait("large", asked_ago=1800, nodes=tuple(f"gx-{n}" for n in range(512)))
    wait("small", asked_ago=0, nodes=("gx-1",))
    wait("large-of-yesterday", asked_ago=86_400, nodes=tuple(f"gx-{n}" for n in range(512)))
    assert [attempt.workload.workload_id for attempt in all_ended()] == ["large", "small", "large-of-yesterday"]


def test_the_oldest_comes_first_where_that_is_the_policy(wait: Wait, best_first: None, settings: Any) -> None:
    settings.FAULTLINE_TRIAGE_ORDER = "oldest"
    for name, ago in (("now", 0), ("day-ago", 86_400), ("hour-ago", 3600)):
        wait(name, asked_ago=ago)
    assert [attempt.workload.workload_id for attempt in all_ended()] == ["day-ago", "hour-ago", "now"]


def test_the_oldest_has_its_turn_though_newer_ones_never_end(wait: Wait) -> None:
    oldest = wait("oldest", asked_ago=86_400)
    for number in range(100):
        wait(f"new-{number}")
        if end(take_turn()) == oldest:
            return
    pytest.fail("it waited for a hundred newer ones")  # by chance alone once in 10^12 times


def test_what_was_begun_is_ended_before_something_else_is_begun(wait: Wait) -> None:
    many = wait("many-sources", sources=3)
    turn = take_turn()
    wait("new")
    others = [take_turn(), take_turn()]
    assert {one.attempt_id for one in (turn, *others) if one is not None} == {many.pk}
    for one in (turn, *others):
        assert one is not None and one.collection is not None and finish_collection(one.collection, [], OK)
    diagnosis = take_turn()
    assert diagnosis is not None and diagnosis.diagnosis is not None and diagnosis.attempt_id == many.pk


@pytest.mark.django_db(transaction=True)
def test_no_two_workers_have_the_same_turn(wait: Wait) -> None:
    for number in range(40):
        wait(f"job-{number}", cluster=f"c{number % 3}")
    taken: list[int] = []

    def worker() -> None:
        while turn := take_turn():
            taken.append(turn.attempt_id)

    assert at_once([worker] * 4) == [None] * 4
    while turn := take_turn():  # a worker that found a row locked may have left before it was free
        taken.append(turn.attempt_id)
    assert Counter(taken) == Counter(Attempt.objects.values_list("pk", flat=True))
