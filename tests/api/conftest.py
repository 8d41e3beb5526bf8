"""Clients with sessions and tokens; the workers' part done in the test's own process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.triage.conftest import data_dir, diagnosed, fleet
from triage.models import Attempt, CollectionState, Scope
from triage.services.tokens import create_token
from triage.services.triage import begin_triage
from triage.tasks.collecting import collect
from triage.tasks.diagnosing import diagnose

__all__ = ["data_dir", "diagnosed", "fleet"]


@pytest.fixture
def ada(db: None) -> User:
    return User.objects.create_user("ada", password="correct horse")


@pytest.fixture
def session(client: Client, ada: User) -> Client:
    """Somebody who is signed in."""
    client.force_login(ada)
    return client


@pytest.fixture
def token(ada: User) -> Callable[..., Client]:
    """A client with a token: `token("ingest", "read")`."""

    def make(*scopes: str) -> Client:
        _, secret = create_token(ada, "test", scopes or Scope.values)
        return Client(headers={"Authorization": f"Bearer {secret}"})

    return make


@pytest.fixture
def api(token: Callable[..., Client]) -> Client:
    """A client with every scope."""
    return token()


def work(attempt_id: int) -> Attempt:
    """What the workers do with an attempt, here and now."""
    begin_triage(attempt_id)
    for pk in (
        Attempt.objects.get(pk=attempt_id).collections.exclude(state=CollectionState.DONE).values_list("pk", flat=True)
    ):
        collect(pk)
    diagnose(attempt_id)
    return Attempt.objects.get(pk=attempt_id)


def new_attempt(client: Client, **changes: Any) -> int:
    """Made by the API; its number."""
    body = {
        "cluster": "c1",
        "scheduler": "slurm",
        "workload_id": "48213",
        "name": "llama-7b",
        "user": "ada",
        "state": "FAILED",
        "exit_code": "1:0",
        "started_at": "2026-11-03T02:00:00Z",
        "ended_at": "2026-11-03T04:22:31Z",
        "nodes": ["gx-01", "gx-02"],
        "gpus_per_node": 8,
        **changes,
    }
    answer = client.post("/api/v1/attempts", body, content_type="application/json")
    assert answer.status_code in (200, 201), answer.content
    return int(answer.json()["id"])
