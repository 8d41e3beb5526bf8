"""Many attempts that ended before Faultline looked: found and triaged in one go, each once, whatever dies on the
way. `make bench` runs it with 2,000.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from django.db.models import Count

from tests.fakes.kubernetes import FakeKubernetes
from tests.triage.conftest import Broker, Fleet, wait_until
from tests.triage.jobs import fail
from triage.models import Attempt, Collection, Diagnosis, TimelineEvent, TriageState

ONCE = ("attempt.recorded", "triage.requested", "diagnosis.recorded")


@pytest.mark.parametrize("count", [60, pytest.param(2000, marks=pytest.mark.bench)])
def test_each_is_triaged_once_though_a_worker_is_killed_and_the_broker_forgets_everything(
    transactional_db: None,
    kubernetes: FakeKubernetes,
    configured: Callable[..., Path],
    own_broker: Broker,
    data_dir: Path,
    tmp_path: Path,
    count: int,
) -> None:
    for number in range(count):
        fail(kubernetes, f"job-{number:04}")
    fleet = Fleet(data_dir, tmp_path, REDIS_URL=own_broker.url)
    began = time.monotonic()
    try:
        first = fleet.worker()
        fleet.worker()
        fleet.beat()
        wait_until(lambda: Attempt.objects.count() >= count // 4, seconds=120 + count, say=fleet.logs)
        assert Collection.objects.exclude(state="done").exists()
        first.kill()
        wait_until(lambda: done() >= count // 3, seconds=120 + 2 * count, every=0.2, say=fleet.logs)
        own_broker.kill()
        assert done() < count, "the broker was killed too late for this test to mean anything"
        time.sleep(2)
        own_broker.start()
        fleet.worker()
        wait_until(lambda: done() == count, seconds=120 + 2 * count, every=0.5, say=fleet.logs)
        took = time.monotonic() - began
        time.sleep(2.5)  # two more searches and sweeps
    finally:
        fleet.stop()
    print(f"\n{count} attempts found and triaged in {took:.0f} s, {count / took:.1f} a second")
    names = Counter(Attempt.objects.values_list("workload__name", flat=True))
    assert names == Counter(f"job-{number:04}" for number in range(count))
    assert set(Attempt.objects.values_list("triage_state", "triage_run", "domain")) == {("done", 1, "software")}
    assert Diagnosis.objects.count() == count
    for kind in ONCE:
        said = TimelineEvent.objects.filter(kind=kind).values("attempt").annotate(times=Count("pk"))
        assert set(said.values_list("times", flat=True)) == {1} and len(said) == count, kind
    sources = Collection.objects.values_list("connector", "state").annotate(times=Count("pk"))
    assert set(sources) == {("k2/kueue", "done", count), ("k2/pods", "done", count)}


def done() -> int:
    return Attempt.objects.filter(triage_state=TriageState.DONE).count()
