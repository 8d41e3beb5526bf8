"""Whatever is wrong with an installation is found, and said with what mends it."""

from __future__ import annotations

import errno
import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.conf import settings as project
from django.core.management import call_command
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder

import engine
from tests.triage.conftest import Fleet, MakeAttempt, Policy, wait_until
from triage import doctor, health
from triage.models import Discovery
from triage.services.triage import request_triage

pytestmark = pytest.mark.django_db


def said(part: str) -> list[doctor.Said]:
    return [one for one in doctor.look() if one.part == part]


def bad(part: str) -> str:
    """What is bad of it, and the way to mend it."""
    return "\n".join(f"{one.words} -> {one.mend}" for one in said(part) if one.state == doctor.BAD)


def forget_processes() -> None:
    with health.broker_client() as broker:
        broker.delete(health.BEAT_KEY, *broker.keys(f"{health.WORKER_KEY}*"))


@pytest.mark.django_db(transaction=True)
def test_an_installation_that_runs_is_well_in_every_part(fleet: Fleet, settings: Any, policy: Policy) -> None:
    forget_processes()
    fleet.worker()
    fleet.beat()
    wait_until(lambda: health.last_beat() and health.workers(), say=fleet.logs)
    found = list(doctor.look())
    assert not [
        one for one in found if one.state == doctor.BAD and one.part not in ("room for streams", "room for work")
    ]
    words = {one.part: one.words for one in found}
    assert engine.__version__ in words["workers"] and "s ago" in words["beat"] and "PostgreSQL" in words["database"]


def test_workers_that_are_silent_or_old_and_a_beat_that_stands_are_named(settings: Any) -> None:
    forget_processes()
    assert "none has said" in bad("workers") and "celery -A triage.celery worker" in bad("workers")
    assert "never" in bad("beat")
    with health.broker_client() as broker:
        broker.set(f"{health.WORKER_KEY}w1@gx-01", "0.0.1", ex=10)
        broker.set(health.BEAT_KEY, repr(time.time() - 4000))
    (workers,) = said("workers")
    assert workers.state == doctor.DOUBTFUL and "engine 0.0.1" in workers.words
    assert "last at 20" in bad("beat")
    forget_processes()


@pytest.mark.parametrize(
    ("changes", "part", "words"),
    [
        ({"DEBUG": True}, "settings", "unset DEBUG"),
        ({"ALLOWED_HOSTS": ["*"]}, "allowed hosts", "ALLOWED_HOSTS=the names"),
        ({"FAULTLINE_URL": "https://f.example"}, "allowed hosts", "f.example of FAULTLINE_URL is not among"),
        ({"FAULTLINE_URL": "https://f.example", "ALLOWED_HOSTS": [".example"]}, "https", "FAULTLINE_HTTPS=1"),
        ({"REDIS_URL": "redis://:hunter22@127.0.0.1:1/0"}, "broker", "is REDIS_URL right?"),
        ({"FAULTLINE_RULES": [Path("/nowhere")]}, "rules", "rules check"),
    ],
)
def test_a_setting_that_is_wrong_is_named_with_what_to_set(
    settings: Any, changes: dict[str, Any], part: str, words: str
) -> None:
    for name, value in changes.items():
        setattr(settings, name, value)
    assert words in bad(part)
    assert "hunter22" not in str(list(doctor.look()))


def test_a_secret_key_that_is_short_or_made_up_is_named(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "short")
    settings.SECRET_KEY = "short"
    assert "openssl rand" in bad("secret key")
    monkeypatch.delenv("SECRET_KEY")
    (key,) = said("secret key")
    assert key.state == doctor.DOUBTFUL and "the same for all" in key.mend


def test_migrations_that_are_missing_or_unknown_are_named() -> None:
    recorder = MigrationRecorder(connection)
    recorder.record_applied("triage", "9999_from_the_future")
    assert "newer than this code: 9999_from_the_future" in bad("migrations")
    recorder.record_unapplied("triage", "9999_from_the_future")
    newest = max(name for app, name in recorder.applied_migrations() if app == "triage")
    recorder.record_unapplied("triage", newest)
    assert f"1 are missing: triage.{newest} -> python manage.py migrate" in bad("migrations")


def test_folders_that_cannot_be_written_or_are_open_and_a_disk_that_is_full_are_named(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bad("folders") == ""
    (data_dir / "spool").chmod(0o755)
    assert any("chmod 700" in one.mend for one in said("folders"))
    shutil.rmtree(data_dir / "blobs")
    (data_dir / "blobs").write_text("a file where a folder should be")
    assert "blobs: " in bad("folders") and "chown it to the user" in bad("folders")
    assert not list(data_dir.rglob(".doctor-*"))
    full = type("Usage", (), {"free": 10 << 20, "total": 100 << 30})()
    monkeypatch.setattr(shutil, "disk_usage", lambda place: full)
    assert "[retention]" in bad("room for streams") and "TMPDIR" in bad("room for work")


@pytest.mark.parametrize(("ahead", "state"), [(0.5, "ok"), (-5, "doubtful"), (100, "bad"), (-100, "bad")])
def test_clocks_that_differ_are_named(ahead: float, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time
    monkeypatch.setattr("triage.doctor.time.time", lambda: now() - ahead)
    for part in ("clock", "clock of the broker"):
        (clock,) = said(part)
        assert clock.state == state, clock
        assert ("behind" in clock.words) == (ahead < 0)


def test_sources_that_fail_and_a_wrong_configuration_are_named(policy: Policy, diagnosed: MakeAttempt) -> None:
    policy('[clusters.c1.sources.slurm]\nport = 3\n[retention]\nstreams = "soon"')
    assert "[clusters.c1.sources.slurm]" in bad("configuration") and "[retention]" in bad("configuration")
    Discovery.objects.create(connector="c1/slurm", cluster="c1", last_error="sacct: not found")
    assert "c1/slurm: sacct: not found -> python manage.py cluster check c1" in bad("sources")


def test_workers_with_other_rules_and_what_waits_too_long_are_named(diagnosed: MakeAttempt, settings: Any) -> None:
    attempt = diagnosed("1")  # by rules that are called sha256:one
    (rules,) = said("rules")
    assert rules.state == doctor.DOUBTFUL and "restart the workers" in rules.mend
    request_triage(attempt.pk)
    settings_now = said("queue")
    assert settings_now[0].words.startswith("1 attempts wait")
    type(attempt).objects.update(triage_requested_at="2026-01-01T00:00:00Z")
    assert any(one.state == doctor.DOUBTFUL and "more workers" in one.mend for one in said("queue"))


def test_without_a_database_everything_else_is_still_looked_at(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "DATABASE_URL": "postgresql://ada:hunter22@127.0.0.1:1/none",
        "FAULTLINE_DATA_DIR": str(tmp_path),
    }
    command = [sys.executable, "manage.py", "doctor", "--json"]
    done = subprocess.run(command, cwd=project.BASE_DIR, env=environment, capture_output=True, text=True, check=False)
    found = {one["part"]: one for one in map(json.loads, done.stdout.splitlines())}
    assert done.returncode == 1, done.stderr
    assert found["database"]["state"] == "bad" and "is DATABASE_URL right?" in found["database"]["mend"]
    assert found["broker"]["state"] == "ok" and found["folders"]["state"] == "ok"
    assert "Traceback" not in done.stderr and "hunter22" not in done.stdout + done.stderr


def test_a_database_that_refuses_says_why_and_what_it_hides_is_one_line(settings: Any) -> None:
    server = urlsplit(settings.DATABASE_URL)
    password = server._replace(netloc=server.netloc.replace(f":{server.password}@", ":hunter22@")).geturl()
    nobody = server._replace(netloc=server.netloc.replace(f"{server.username}:", "nobody:")).geturl()
    for url, words, mend in (
        (password, "password authentication failed", "the password in DATABASE_URL is not that user's"),
        (nobody, "authentication failed", "DATABASE_URL"),
        (server._replace(path="/nowhere").geturl(), '"nowhere" does not exist', "createdb on the server"),
    ):
        found = by_part(DATABASE_URL=url)
        assert words in found["database"]["words"] and mend in found["database"]["mend"]
        assert "hunter22" not in str(found)
        others = {part for part, one in found.items() if "could not be looked at" in one["words"]}
        assert not others and found["the rest"]["state"] == "doubtful"
        assert found["the rest"]["words"] == "not looked at: clock, queue, rules, configuration, channels"


def test_a_broker_that_is_away_hides_workers_and_beat_in_one_line() -> None:
    found = by_part(REDIS_URL="redis://127.0.0.1:1/0")
    assert "does Redis or Valkey run" in found["broker"]["mend"]
    assert "workers" not in found and found["the rest"]["words"].startswith("not looked at: workers, beat")


def test_tables_that_are_not_there_are_missing_migrations_and_nothing_else(settings: Any) -> None:
    empty = urlsplit(settings.DATABASE_URL)._replace(path="/postgres").geturl()
    found = by_part(DATABASE_URL=empty)
    assert found["migrations"]["mend"] == "python manage.py migrate"
    assert "relation" not in str(found) and "queue" in found["the rest"]["words"]


@pytest.mark.parametrize(
    ("number", "mend"),
    [
        (errno.ENOSPC, "make room there"),
        (errno.EROFS, "mount it writable; a disk that became read-only"),
        (errno.EACCES, "chown it to the user"),
        (errno.ENOENT, "FAULTLINE_DATA_DIR must name a folder"),
    ],
)
def test_why_a_folder_can_not_be_written_tells_what_mends_it(
    number: int, mend: str, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(handle: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("triage.doctor.os.fsync", refuse)
    assert os.strerror(number) in bad("folders") and mend in bad("folders")
    monkeypatch.undo()
    assert not list(data_dir.rglob(".doctor-*")), "what was tried is not left behind"


def by_part(**changes: str) -> dict[str, dict[str, str]]:
    """What doctor says in a process of its own, with these variables."""
    command = [sys.executable, "manage.py", "doctor", "--json"]
    environment = {**os.environ, **changes}
    done = subprocess.run(command, cwd=project.BASE_DIR, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    return {one["part"]: one for one in map(json.loads, done.stdout.splitlines())}


def test_it_is_said_for_people_too(policy: Policy) -> None:
    forget_processes()
    out = StringIO()
    with pytest.raises(SystemExit):
        call_command("doctor", stdout=out)
    lines = out.getvalue().splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("bad       workers: none"))
    assert lines[at + 1].startswith("            celery -A triage.celery worker")
    assert "well" in lines[-1] and "bad" in lines[-1]


def test_the_deployment_check_finds_nothing_with_settings_as_production_has_them(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "SECRET_KEY": secrets.token_hex(32),
        "FAULTLINE_HTTPS": "1",
        "FAULTLINE_BEHIND_PROXY": "1",
        "ALLOWED_HOSTS": "faultline.example.org",
        "FAULTLINE_STATE_DIR": str(tmp_path),
    }
    del environment["DJANGO_ALLOW_ASYNC_UNSAFE"]  # of the browser's tests
    command = [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"]
    done = subprocess.run(command, cwd=project.BASE_DIR, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    open_to_all = {**environment, "FAULTLINE_HTTPS": "", "DEBUG": "1"}
    done = subprocess.run(command, cwd=project.BASE_DIR, env=open_to_all, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "security.W018" in done.stderr
