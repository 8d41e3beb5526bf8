"""What an operator types."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings
from django.contrib.auth import authenticate
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.http import HttpRequest

from tests.triage import cast
from triage.management.commands import seed_demo
from triage.models import Attempt, TriageState
from triage.supervisor.ports import free_port

pytestmark = pytest.mark.django_db


def test_bad_paths_get_a_line_each_and_the_others_are_still_imported(tmp_path: Path) -> None:
    good = cast.archive(tmp_path / "good.tar.zst", cast.members("1"))
    also_good = cast.folder(tmp_path / "folder", cast.members("2"))
    (tmp_path / "bad.tar").write_bytes(b"")
    out, errors = io.StringIO(), io.StringIO()
    with pytest.raises(SystemExit) as ended:
        paths = [str(good), str(tmp_path / "bad.tar"), str(tmp_path / "absent"), str(also_good)]
        call_command("import_bundle", *paths, stdout=out, stderr=errors)
    assert ended.value.code == 2
    assert Attempt.objects.count() == 2
    assert len(out.getvalue().splitlines()) == 2
    first, second = errors.getvalue().splitlines()
    assert "bad.tar: " in first and "absent: no such file or folder" in second


def test_importing_again_says_that_nothing_is_new(tmp_path: Path) -> None:
    path = cast.archive(tmp_path / "good.tar.zst", cast.members())
    for said in ("new, triage requested", "known, nothing new"):
        out = io.StringIO()
        call_command("import_bundle", str(path), stdout=out)
        assert said in out.getvalue()


def test_the_demo_is_seeded_once_however_often_it_is_asked_for() -> None:
    for _ in range(2):
        call_command("seed_demo", stdout=io.StringIO())
    assert Attempt.objects.count() == 10
    assert User.objects.count() == 1
    assert authenticate(HttpRequest(), username="demo", password="demo")
    demo = User.objects.get()
    assert demo.is_staff and not demo.is_superuser


def test_a_demo_user_that_changed_the_password_keeps_it() -> None:
    call_command("seed_demo", stdout=io.StringIO())
    demo = User.objects.get(username="demo")
    demo.set_password("another")
    demo.save()
    call_command("seed_demo", stdout=io.StringIO())
    assert authenticate(HttpRequest(), username="demo", password="another")
    assert not authenticate(HttpRequest(), username="demo", password="demo")


def test_waiting_ends_when_all_are_triaged_or_one_failed(tmp_path: Path) -> None:
    cast.archive(tmp_path / "a.tar.zst", cast.members())
    with pytest.raises(CommandError, match="1 of 1 not triaged within 0 s"):
        call_command("seed_demo", "--wait", "--timeout", "0", "--samples", str(tmp_path), stdout=io.StringIO())
    Attempt.objects.update(triage_state=TriageState.FAILED, triage_reason="rule pack broken")
    with pytest.raises(CommandError, match="48213, attempt 1 failed: rule pack broken"):
        seed_demo.Command(stdout=io.StringIO())._wait([Attempt.objects.get().pk], timeout=60)
    Attempt.objects.update(triage_state=TriageState.DONE)
    out = io.StringIO()
    call_command("seed_demo", "--wait", "--timeout", "0", "--samples", str(tmp_path), stdout=out)
    assert "all 1 are triaged" in out.getvalue()


def test_a_setting_that_can_not_be_used_is_said_in_one_line() -> None:
    ended = subprocess.run(
        [sys.executable, str(settings.BASE_DIR / "manage.py"), "check"],
        env={**os.environ, "FAULTLINE_LOG_FORMAT": "xml"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 1
    assert ended.stderr.splitlines() == ["manage.py: FAULTLINE_LOG_FORMAT: 'xml' is not one of line, json"]


@pytest.mark.parametrize("words", [["verify"], ["prune", "--dry-run"], ["export_instance", "all.tar"]])
def test_a_database_that_does_not_answer_is_said_in_two_lines(words: list[str], tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, str(settings.BASE_DIR / "manage.py"), *words],
        env={**os.environ, "DATABASE_URL": f"postgresql://nobody@127.0.0.1:{free_port()}/none"},
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 1
    first, second = ended.stderr.splitlines()
    assert first.startswith("manage.py: the database: ") and "refused" in first
    assert "manage.py doctor" in second
    assert list(tmp_path.iterdir()) == []
