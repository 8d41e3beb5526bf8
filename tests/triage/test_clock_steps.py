"""A machine's clock is stepped, or wrong: leases, what waits and what is due are as the database's clock says."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from tests.triage import cast
from triage.models import Attempt, Channel, Collection, Delivery, IdempotentCall, TimelineEvent
from triage.services.bundles import import_bundle
from triage.services.clock import database_now
from triage.services.collecting import lease_collection, postpone_collection
from triage.services.delivering import due_deliveries, lease_delivery, send_trial
from triage.services.once import StillAtWork, answer_once
from triage.services.triage import begin_triage, lease_diagnosis
from triage.services.turns import is_anything_due

pytestmark = pytest.mark.django_db


@pytest.fixture
def attempt(tmp_path: Path) -> Attempt:
    return import_bundle(cast.archive(tmp_path / "a.tar.zst", cast.members())).attempt


@pytest.fixture(params=[400, -400], ids=["days ahead", "days behind"])
def step(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From its call on, the clock of this process is wrong."""
    right, days = timezone.now, timedelta(days=request.param)
    return lambda: monkeypatch.setattr("django.utils.timezone.now", lambda: right() + days)


@pytest.fixture
def stepped(step: Callable[[], None]) -> None:
    step()


def test_a_wrong_clock_takes_over_nothing_that_another_worker_does(attempt: Attempt, step: Callable[[], None]) -> None:
    begin_triage(attempt.pk)
    collection = attempt.collections.get().pk
    assert lease_collection(collection) is not None
    step()
    assert lease_collection(collection) is None and not is_anything_due()
    Collection.objects.update(state="done")
    Attempt.objects.update(triage_state="diagnosing")
    assert lease_diagnosis(attempt.pk) is not None
    assert lease_diagnosis(attempt.pk) is None and not is_anything_due()


def test_a_wrong_clock_takes_over_what_a_dead_worker_left(attempt: Attempt, stepped: None) -> None:
    long_ago = database_now() - timedelta(hours=1)
    begin_triage(attempt.pk)
    collection = attempt.collections.get().pk
    assert lease_collection(collection) is not None
    Collection.objects.update(heartbeat_at=long_ago)
    assert is_anything_due() and lease_collection(collection) is not None
    Collection.objects.update(state="done")
    Attempt.objects.update(triage_state="diagnosing", triage_queued_at=long_ago)
    assert lease_diagnosis(attempt.pk) is not None
    Attempt.objects.update(triage_heartbeat_at=long_ago)
    assert is_anything_due() and lease_diagnosis(attempt.pk) is not None


def test_what_waits_waits_as_long_as_it_should(attempt: Attempt, stepped: None) -> None:
    begin_triage(attempt.pk)
    lease = lease_collection(attempt.collections.get().pk)
    assert lease is not None and postpone_collection(lease, 60)
    again = Collection.objects.get().queued_at
    assert again is not None and timedelta(seconds=50) < again - database_now() <= timedelta(seconds=60)
    assert not is_anything_due()


def test_a_message_goes_out_once_and_at_its_time(stepped: None) -> None:
    ada = User.objects.create_user("ada")
    channel = Channel.objects.create(name="c", kind="webhook", config={"url": "https://hooks.example.org/in"})
    delivery = send_trial(channel, ada)
    assert due_deliveries() == [delivery.pk]
    assert lease_delivery(delivery.pk) is not None
    assert lease_delivery(delivery.pk) is None and due_deliveries() == []
    Delivery.objects.update(leased_until=database_now() - timedelta(seconds=1))
    assert due_deliveries() == [delivery.pk]


def test_a_call_with_a_key_is_not_done_twice_while_it_is_at_work(
    stepped: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, done = User.objects.create_user("ada"), []

    def work() -> tuple[int, str]:
        with monkeypatch.context() as right:
            right.undo()  # the same call by another web server, whose clock is right
            with pytest.raises(StillAtWork):
                answer_once(ada, "k", "call", work)
        done.append(1)
        return 200, "ok"

    assert answer_once(ada, "k", "call", work) == (200, "ok", False)
    assert done == [1] and IdempotentCall.objects.get().status == 200


def test_the_record_tells_things_in_the_order_in_which_they_happened(
    attempt: Attempt, step: Callable[[], None]
) -> None:
    step()
    begin_triage(attempt.pk)
    events = TimelineEvent.objects.filter(attempt=attempt)
    assert list(events.order_by("happened_at", "pk")) == list(events.order_by("pk"))
