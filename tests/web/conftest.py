"""Signed-in people, and attempts with a diagnosis, written through the services as the worker does it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from engine import model as engine
from tests.web import stories
from triage.models import Attempt, TriageState
from triage.services.attempts import record_attempt
from triage.services.diagnoses import record_diagnosis
from triage.services.triage import begin_triage, lease_diagnosis, request_triage

NVLINK = stories.nvlink()
MakeAttempt = Callable[..., Attempt]


@pytest.fixture
def ada(db: None) -> User:
    return User.objects.create_user("ada", password="correct horse", first_name="Ada", last_name="Moreau")


@pytest.fixture
def signed_in(client: Client, ada: User) -> Client:
    client.force_login(ada)
    return client


@pytest.fixture
def make_attempt(db: None) -> MakeAttempt:
    """Makes an attempt: `make_attempt()` is triaged and blames gx-02; `story=None` leaves it waiting."""
    made = 0

    def make(
        story: engine.Diagnosis | None = NVLINK, *, ended_at: datetime | None = stories.END, **facts: Any
    ) -> Attempt:
        nonlocal made
        made += 1
        workload = {
            "id": f"{48000 + made}",
            "name": "llama-70b",
            "scheduler": "slurm",
            "cluster": "c1",
            "user": "ada",
            "queue": "gpu",
        }
        workload |= {key: facts.pop(key) for key in list(facts) if key in workload}
        values: dict[str, Any] = {
            "number": 1,
            "state": "FAILED",
            "exit_code": "134:0",
            "started_at": stories.START.timestamp(),
            "ended_at": ended_at.timestamp() if ended_at else None,
            "nodes": stories.NODES,
            "gpus_per_node": 8,
        }
        attempt, _ = record_attempt(engine.Attempt(workload=engine.Workload(**workload), **{**values, **facts}))
        request_triage(attempt.pk)
        if story is not None:
            diagnose_with(attempt, story)
        return Attempt.objects.get(pk=attempt.pk)

    return make


def diagnose_with(attempt: Attempt, story: engine.Diagnosis) -> None:
    """What a worker does once everything is collected."""
    begin_triage(attempt.pk)
    lease = lease_diagnosis(attempt.pk)
    assert lease is not None
    assert record_diagnosis(lease, story.to_dict(), evidence=str(datetime.now(UTC))) is not None
    assert Attempt.objects.get(pk=attempt.pk).triage_state == TriageState.DONE
