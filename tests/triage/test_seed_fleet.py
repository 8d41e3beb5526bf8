"""The made-up fleet: real contracts, the same for the same seed, in the columns that the services fill."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from django.core.management import CommandError, call_command

from engine import model as engine
from engine.ruleset import load_ruleset
from triage.models import Attempt, Diagnosis, Incident, Membership, Verdict
from triage.seeding.stories import Storyteller
from triage.seeding.world import World
from triage.services.diagnoses import missing_sources, named_rules
from triage.services.verdicts import apply_answer

pytestmark = pytest.mark.django_db(transaction=True)
END = "2026-11-03T06:42:00+00:00"


@pytest.fixture
def fleet() -> None:
    call_command("seed_fleet", attempts=600, nodes=60, days=60, end=END, verbosity=0)


def test_a_seeded_fleet_is_what_the_services_would_have_written(fleet: None) -> None:
    assert Attempt.objects.count() == 600 and Diagnosis.objects.count() == 600
    outcomes = set(Attempt.objects.values_list("outcome", flat=True))
    assert {"succeeded", "failed"} <= outcomes and Attempt.objects.exclude(outcome="succeeded").count() > 120
    for attempt in Attempt.objects.select_related("diagnosis", "workload", "verdict__diagnosis")[:200]:
        diagnosis = attempt.diagnosis
        assert diagnosis is not None
        msgspec.convert(diagnosis.contract, engine.Diagnosis)
        assert attempt.rule == diagnosis.rule and attempt.outcome == diagnosis.outcome
        assert attempt.matched == named_rules(diagnosis.contract)
        assert attempt.missing == missing_sources(diagnosis.contract)
        assert set(attempt.blamed_nodes) <= set(attempt.nodes)
        before = (attempt.domain, attempt.sub_domain, attempt.blamed_nodes, attempt.verdict_status)
        apply_answer(attempt)
        assert before == (attempt.domain, attempt.sub_domain, attempt.blamed_nodes, attempt.verdict_status)
        assert attempt.user == attempt.workload.user and attempt.queue == attempt.workload.queue
        assert attempt.lost_gpu_hours == pytest.approx(0 if attempt.outcome == "succeeded" else attempt.gpu_hours)
    assert Membership.objects.count() == Attempt.objects.exclude(rule="").count()
    incident = Incident.objects.order_by("-attempts_count").first()
    assert incident is not None and incident.attempts_count == incident.memberships.count()
    assert Verdict.objects.filter(kind="confirmed").exists()


def test_the_same_seed_gives_the_same_fleet() -> None:
    def tell(seed: int) -> list[object]:
        world = World.build(seed, 60, 60, datetime(2026, 11, 3, tzinfo=UTC))
        teller = Storyteller(load_ruleset(), world.random)
        return [teller.tell(attempt) for attempt in world.tries(80)]

    assert tell(1) == tell(1)
    assert tell(1) != tell(2)


def test_a_second_run_adds_and_odd_options_are_refused(fleet: None) -> None:
    call_command("seed_fleet", attempts=50, nodes=60, seed=8, days=3, end=END, verbosity=0)
    assert Attempt.objects.count() == 650
    for options in ({"attempts": 0}, {"nodes": 2}, {"end": "soon"}):
        with pytest.raises(CommandError):
            call_command("seed_fleet", **options)
