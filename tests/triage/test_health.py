"""Health for load balancers, headers for browsers."""

from __future__ import annotations

import pytest
from django.test import Client

from triage import health


def test_the_process_lives_without_database_or_broker(client: Client, settings: object) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"  # type: ignore[attr-defined]
    answer = client.get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


@pytest.mark.django_db
def test_readiness_names_each_part_and_needs_a_worker(client: Client) -> None:
    with health.broker_client() as broker:
        broker.delete(*(broker.keys(f"{health.WORKER_KEY}*") or ["none"]))
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {"status": "unavailable", "checks": {"database": "ok", "broker": "ok", "worker": "down"}}
    health.record_worker("w1@gx-01")
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (200, "ok")
    assert "no-store" in answer.headers["Cache-Control"]


@pytest.mark.django_db
def test_a_broker_that_is_gone_is_told_quickly_and_without_details(client: Client, settings: object) -> None:
    settings.REDIS_URL = "redis://:secret@127.0.0.1:1/0"  # type: ignore[attr-defined]
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["checks"] == {"database": "ok", "broker": "down", "worker": "down"}
    assert b"secret" not in answer.content


def test_every_answer_forbids_inline_script_and_style_and_framing(client: Client) -> None:
    headers = client.get("/healthz").headers
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy and "http:" not in policy and "*" not in policy
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "same-origin"
