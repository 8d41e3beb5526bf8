"""What beat asks for comes round whatever a clock says, and is done once however often it was asked for."""

from __future__ import annotations

import re
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest
from celery.beat import PersistentScheduler
from celery.schedules import schedule

from tests.triage.conftest import Fleet, wait_until
from triage.celery import app
from triage.health import broker_client
from triage.schedule import Every, steady_now
from triage.tasks.periodic import TURN_KEY


def test_it_is_due_at_once_when_the_last_time_is_told_by_a_clock_that_was_ahead() -> None:
    ahead = steady_now() + timedelta(hours=1)
    assert Every(15).is_due(ahead) == (True, pytest.approx(15, abs=0.1))
    assert schedule(15, app=app).is_due(ahead).next > 3600  # Celery's own waits for an hour


def test_a_step_back_keeps_beat_from_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    monkeypatch.setattr(PersistentScheduler, "apply_entry", lambda self, entry, producer=None: sent.append(entry.name))
    entries = {name: {"task": f"triage.{name}", "schedule": Every(every)} for name, every in (("a", 0.2), ("b", 0.3))}
    monkeypatch.setitem(app.conf, "beat_schedule", entries)
    beat = PersistentScheduler(app, schedule_filename=str(tmp_path / "schedule"), Producer=lambda *_, **__: None)
    clock, hour = app.now, timedelta(hours=1)
    for step in (timedelta(0), -hour, hour):
        monkeypatch.setattr(type(app), "now", lambda self, step=step: clock() + step)
        sent.clear()
        ends = time.monotonic() + 1
        while time.monotonic() < ends:
            beat.tick()
            time.sleep(0.01)
        assert 2 <= sent.count("a") <= 6 and 2 <= sent.count("b") <= 4, step


@pytest.mark.django_db(transaction=True)
def test_of_what_beat_asked_while_no_worker_was_there_one_is_done(fleet: Fleet) -> None:
    with broker_client() as broker:
        broker.delete(f"{TURN_KEY}triage.tell")
    for _ in range(5):
        app.send_task("triage.tell", headers={"celery_beat_task": True})
    app.send_task("triage.tell")  # somebody else asks: it is done
    fleet.environment["FAULTLINE_TELL_SECONDS"] = "600"
    fleet.worker()
    ends = re.compile(r"Task triage\.tell\[.*\] succeeded in .*: (\w+)")
    wait_until(lambda: len(ends.findall(fleet.logs())) == 6, seconds=60, say=fleet.logs)
    assert Counter(ends.findall(fleet.logs())) == {"0": 2, "None": 4}
