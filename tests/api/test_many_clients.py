"""Fifty clients at once: nothing is lost, nothing is there twice."""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.contrib.auth.models import User

from triage.client import Client
from triage.models import Attempt, Observation
from triage.services import observations
from triage.services.tokens import create_token

CLIENTS, ATTEMPTS = 50, 200
BYTES = int(os.environ.get("ATTEMPT_BYTES", str(64 << 10)))
"""Of each attempt; the same with ATTEMPT_BYTES=5000000."""


@pytest.mark.django_db(transaction=True)
def test_fifty_clients_send_two_hundred_attempts_and_each_arrives_once(
    live_server: Any, transactional_db: None, settings: Any
) -> None:
    settings.FAULTLINE_API_RATE = 0
    _, secret = create_token(User.objects.create_user("ada"), "many", ["ingest", "read"])

    def content(number: int) -> bytes:
        return (f"attempt {number}\n".encode() * (BYTES // 10))[:BYTES]

    def send(number: int) -> int:
        client = Client(live_server.url, secret)
        attempt = client.attempt(str(number), cluster="c1", state="FAILED")
        again = client.attempt(str(number), cluster="c1", state="FAILED")  # a client that didn't get the answer
        assert attempt == again
        client.send(attempt, "applog/train.log", content(number))
        client.send(attempt, "applog/train.log", content(number))
        return attempt

    with ThreadPoolExecutor(CLIENTS) as pool:
        attempts = list(pool.map(send, range(ATTEMPTS)))
    assert len(set(attempts)) == Attempt.objects.count() == ATTEMPTS
    assert Observation.objects.count() == ATTEMPTS
    for number, attempt in enumerate(attempts):
        kept = (observations.folder() / str(attempt) / "applog" / "train.log").read_bytes()
        assert hashlib.sha256(kept).digest() == hashlib.sha256(content(number)).digest()
    assert not list(observations.folder().parent.glob("spool/.draft-*"))
