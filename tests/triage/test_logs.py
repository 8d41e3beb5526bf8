"""Lines of the log belong to a request, a task and an attempt; nobody who sends something writes one of their own."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.triage.conftest import Fleet
from triage import logs
from triage.env import SettingError
from triage.models import Attempt, Scope
from triage.services.tokens import create_token
from triage.settings import BASE_DIR
from triage.supervisor.ports import free_port

FORGED = 'x\r\n2026-01-01 00:00:00,000 ERROR root: all is lost\x1b[2J\u2028{"level": "ERROR"}'


@contextmanager
def written(shape: str) -> Iterator[StringIO]:
    """What a logger named `told` writes in this format."""
    out = StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter({"line": logs.Line, "json": logs.Json}[shape]())
    handler.addFilter(logs.About())
    logger = logging.getLogger("told")
    logger.addHandler(handler)
    try:
        yield out
    finally:
        logger.removeHandler(handler)
        logs.begin()


@pytest.mark.parametrize("shape", logs.FORMATS)
def test_no_value_begins_a_line_of_its_own(shape: str) -> None:
    logger = logging.getLogger("told")
    with written(shape) as out:
        logs.begin(request_id="r1", source=FORGED)
        logger.error("no answer of %s", FORGED)
        try:
            raise ValueError(FORGED)
        except ValueError:
            logger.exception("failed for %s", FORGED)
    lines = out.getvalue().splitlines()
    if shape == "json":
        first, second = map(json.loads, lines)
        assert first["message"] == f"no answer of {FORGED}" and first["source"] == FORGED
        assert (first["request_id"], first["level"], first["logger"]) == ("r1", "ERROR", "told")
        assert "Traceback" in second["error"] and FORGED in second["error"]
        assert "\x1b" not in out.getvalue() and "\u2028" not in out.getvalue()
    else:
        assert sum(not line.startswith("    ") for line in lines) == 2, lines
        assert all("ERROR told: " in line for line in lines if not line.startswith("    "))
        assert "[request_id=r1 source=x" in lines[0] and "\x1b" not in out.getvalue()


@pytest.mark.parametrize(
    ("sent", "taken"),
    [
        ("0af7651916cd43dd8448eb211c80319c", True), ("gw-1/7:a=b@c+d.e_f", True), ("a" * 128, True), ("a" * 129, False),
        ("", False), (None, False), ("a b", False), ("a\r\nSet-Cookie: x=1", False), ("<script>", False), ("-a", False),
        ("\u0661", False),
    ],
)  # fmt: skip
def test_a_request_keeps_the_id_that_it_came_with_when_that_is_sane(
    sent: str | None, taken: bool, client: Client
) -> None:
    headers = {} if sent is None else {"X-Request-Id": sent}
    given = client.get("/healthz", headers=headers)["X-Request-Id"]
    assert (given == sent) == taken
    assert taken or len(given) == 32


def test_an_unknown_format_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULTLINE_LOG_FORMAT", "xml")
    with pytest.raises(SettingError, match="FAULTLINE_LOG_FORMAT: 'xml' is not one of line, json"):
        logs.config()


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[logging.LogRecord]]:
    """The lines that tell of requests, with what they are about."""
    kept: list[logging.LogRecord] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            kept.append(record)

    keep = Keep()
    keep.addFilter(logs.About())
    logger = logging.getLogger("triage.requests")
    logger.addHandler(keep)
    yield kept
    logger.removeHandler(keep)


def test_each_request_is_told_of_once_with_who_what_and_how_long(client: Client, db: None, answered: list[Any]) -> None:
    ada = User.objects.create_user("ada")
    client.force_login(ada)
    client.get("/attempts/77/?q=private+words", headers={"X-Request-Id": "gw-1"})
    (record,) = answered
    assert record.levelname == "INFO"
    about = record.about
    assert about.pop("ms") >= 0
    assert about == {
        "request_id": "gw-1", "attempt": 77, "user": ada.pk, "method": "GET", "route": "/attempts/<int:pk>/",
        "status": 404,
    }  # fmt: skip
    assert logs.current() == {}, "what comes after is about something else"
    client.get("/healthz")
    assert len(answered) == 1, "probes ask every few seconds"


@pytest.mark.parametrize("address", ["/s/{word}/", "/f/{word}/"])
def test_the_words_of_share_links_and_feeds_are_in_no_line(
    client: Client, db: None, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    def fail(*args: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr("triage.services.sharing.find_share", fail)
    monkeypatch.setattr("triage.web.views.following.find_followed", fail, raising=False)
    client.raise_request_exception = False
    with written("line") as out:
        for name in ("triage.requests", "django.request"):
            for handler in logging.getLogger("told").handlers:
                logging.getLogger(name).addHandler(handler)
        try:
            client.get(address.format(word="Zm9vYmFy.secret-word"))
        finally:
            for name in ("triage.requests", "django.request"):
                logging.getLogger(name).handlers.clear()
    assert out.getvalue() and "secret-word" not in out.getvalue()


# --- with real processes ----------------------------------------------------------------------------------------------


@contextmanager
def web_server(fleet: Fleet, log: Path) -> Iterator[str]:
    """Its address while gunicorn runs."""
    port = free_port()
    words = ["gunicorn", "--config", "python:triage.web_server", "triage.wsgi:application", "--no-control-socket"]
    with log.open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", *words, "--bind", f"127.0.0.1:{port}"], cwd=BASE_DIR, env=fleet.environment,
            stdout=subprocess.DEVNULL, stderr=err, start_new_session=True,
        )  # fmt: skip
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(timeout=20)


def wait_for(what: Any, seconds: float = 60) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = what()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError("it did not come")


def lines_of(log: Path) -> list[dict[str, Any]]:
    """Every line that is written to its end, each of which has to be an object."""
    return [json.loads(line) for line in log.read_text().split("\n")[:-1]]


def test_web_server_worker_and_beat_write_objects_that_an_attempt_can_be_followed_through(
    fleet: Fleet, tmp_path: Path
) -> None:
    user = User.objects.create_user("ada")
    _, secret = create_token(user, "t", [Scope.INGEST, Scope.READ])
    fleet.environment |= {"FAULTLINE_LOG_FORMAT": "json", "FAULTLINE_QUIET_SECONDS": "3600"}
    fleet.environment["PYTHONWARNINGS"] = "ignore"  # Celery warns root before anything is set up
    web_log = tmp_path / "web.err"
    worker = fleet.worker()
    with web_server(fleet, web_log) as address:

        def is_up() -> bool:
            try:
                return httpx.get(f"{address}/healthz", timeout=2).status_code == 200
            except httpx.HTTPError:
                return False

        wait_for(is_up)
        headers = {"Authorization": f"Bearer {secret}", "X-Request-Id": "gw-4711"}
        body = {"cluster": "c1", "scheduler": "slurm", "workload_id": "9", "number": 1, "state": "FAILED"}
        made = httpx.post(f"{address}/api/v1/attempts", json=body, headers=headers, timeout=20)
        assert (made.status_code, made.headers["X-Request-Id"]) == (201, "gw-4711")
        attempt = made.json()["id"]
        httpx.put(f"{address}/api/v1/attempts/{attempt}/observations/applog/a.log", content=b"boom\n", headers=headers)
        asked = httpx.post(f"{address}/api/v1/attempts/{attempt}/diagnosis?wait=30", headers=headers, timeout=40)
        assert asked.status_code in (200, 202)
        wait_for(lambda: Attempt.objects.get(pk=attempt).diagnosis_id)
        wait_for(lambda: any("brought to its end" in line["message"] for line in lines_of(worker.log)))
    beat = fleet.beat()
    wait_for(lambda: any("Sending due task" in line["message"] for line in lines_of(beat.log)))
    told = [line for line in lines_of(web_log) if line["logger"] == "triage.requests"]
    assert {line["request_id"] for line in told} == {"gw-4711"}
    assert {line["attempt"] for line in told if "<" in line["route"]} == {attempt}
    assert {line["user"] for line in told} == {user.pk}
    assert any(line["logger"] == "gunicorn.error" for line in lines_of(web_log))
    (done,) = [line for line in lines_of(worker.log) if "brought to its end" in line["message"]]
    assert (done["attempt"], done["task"]) == (attempt, "triage.work") and done["task_id"]
