"""More comes than can be done: senders are told to come back, waiting costs no thread, readers are served."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from django.test import Client, RequestFactory

from tests.api.test_observations import new_attempt, put
from triage.api.places import LATEST, place, waiting_place
from triage.api.problems import Problem
from triage.client import ApiError
from triage.client import Client as Sender
from triage.models import Observation

pytestmark = pytest.mark.django_db


@pytest.fixture
def busy(settings: Any) -> Iterator[None]:
    """As many calls as there are places bring evidence, and as many wait."""
    settings.FAULTLINE_INGEST_CALLS = 3
    with ExitStack() as calls:
        for _ in range(3):
            calls.enter_context(place(RequestFactory().get("/")))
        assert calls.enter_context(waiting_place(30.0)) == 30.0
        yield


def test_who_finds_no_place_is_told_when_to_come_back_and_nothing_is_kept(
    api: Client, request: pytest.FixtureRequest
) -> None:
    attempt = new_attempt(api)
    request.getfixturevalue("busy")
    for answer in (
        put(api, attempt, "applog/a.log", "first\n"),
        api.post("/api/v1/attempts", json.dumps({"workload_id": "2"}), content_type="application/json"),
        api.post(f"/api/v1/attempts/{attempt}/diagnosis"),
    ):
        assert answer.status_code == 503
        assert 1 <= int(answer.headers["Retry-After"]) <= LATEST
        assert "come back in a moment" in answer.json()["detail"]
    assert not Observation.objects.exists()


def test_readers_are_served_meanwhile_and_who_would_wait_is_answered_at_once(
    api: Client, request: pytest.FixtureRequest
) -> None:
    attempt = new_attempt(api)
    request.getfixturevalue("busy")
    assert api.get("/api/v1/attempts").status_code == 200
    assert api.get(f"/api/v1/attempts/{attempt}/diagnosis?wait=60").status_code == 202  # or this test takes a minute


def test_a_place_is_free_again_after_every_end_of_a_call(api: Client, settings: Any) -> None:
    settings.FAULTLINE_INGEST_CALLS = 1
    attempt = new_attempt(api)
    for _ in range(3):
        assert put(api, attempt, "applog/a.log", "x\n", offset=77).status_code == 409
        assert api.post("/api/v1/attempts", "[", content_type="application/json").status_code == 400
        assert put(api, 10**9, "applog/a.log", "x\n").status_code == 404
    assert put(api, attempt, "applog/a.log", "x\n").status_code == 201
    with place(RequestFactory().get("/")), pytest.raises(Problem), place(RequestFactory().get("/")):
        pass


class Busy(BaseHTTPRequestHandler):
    """Tells who comes to come back, `times` times."""

    times = 0

    def do_GET(self) -> None:
        body = b'{"detail": "busy"}'
        type(self).times -= 1
        self.send_response(503 if self.times >= 0 else 200)
        if self.times >= 0:
            self.send_header("Retry-After", "0")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Nothing."""


def test_a_sender_comes_back_as_often_as_it_is_told_to_until_its_patience_ends() -> None:
    with HTTPServer(("127.0.0.1", 0), Busy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        Busy.times = 30
        assert Sender(address, "t", tries=1).call("GET", "attempts") == {"detail": "busy"}
        Busy.times = 10**9
        with pytest.raises(ApiError, match="busy"):
            Sender(address, "t", tries=1, patience=0.2).call("GET", "attempts")
        server.shutdown()
