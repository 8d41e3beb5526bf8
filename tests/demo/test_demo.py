"""The whole demo, started as a person starts it. One demo serves these tests in their order; the last ones end it."""

from __future__ import annotations

import http.cookiejar
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.demo.running import ROOT, Run
from triage.supervisor.folder import Folder
from triage.supervisor.ports import free_port

SECOND_START_LIMIT = 15  # seconds on a machine that has nothing else to do

pytestmark = pytest.mark.demo


@pytest.fixture(scope="module")
def run(open_place: Path) -> Iterator[Run]:
    run = Run(open_place / "demo", free_port())
    try:
        run.wait_ready()
        yield run
    finally:
        run.end()
        Folder(run.folder).remove()


def signed_in(run: Run) -> urllib.request.OpenerDirector:
    """A browser's session of demo / demo."""
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
    with opener.open(f"http://127.0.0.1:{run.port}/", timeout=10) as page:
        address, text = page.url, page.read().decode()
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', text)
    assert token, address
    form = {"csrfmiddlewaretoken": token[1], "username": "demo", "password": "demo"}
    opener.open(address, urllib.parse.urlencode(form).encode(), timeout=10).close()
    return opener


def test_it_prints_one_line_and_answers(run: Run) -> None:
    assert run.printed == [f"Faultline is ready: http://127.0.0.1:{run.port}/ (sign in as demo / demo)\n"]
    assert run.get("/healthz") == {"status": "ok"}
    assert run.get("/readyz") == {"status": "ok", "checks": {"database": "ok", "broker": "ok", "worker": "ok"}}


def test_the_samples_are_triaged_when_it_says_ready(run: Run) -> None:
    with signed_in(run).open(f"http://127.0.0.1:{run.port}/", timeout=10) as page:
        text = page.read().decode()
    assert "llama-70b-pretrain" in text
    assert "NVLink" in text
    assert "node-02" in text


def test_the_shell_can_join_it(run: Run) -> None:
    """`. .faultline/env` points manage.py at the demo's servers."""
    command = f". {shlex.quote(str(run.folder / 'env'))} && exec {shlex.quote(sys.executable)} manage.py showmigrations"
    done = subprocess.run(["/bin/sh", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "[X] 0001_initial" in done.stdout
    assert "[ ]" not in done.stdout


@pytest.mark.parametrize(
    ("name", "words", "comes_back"),
    [
        ("worker", ("celery", " worker "), "worker runs again"),
        ("beat", ("celery", " beat "), "beat runs again"),
        ("web", ("gunicorn",), "web runs again"),
        ("valkey", ("valkey-server",), "valkey runs again"),
        ("postgres", ("bin/postgres",), "postgres runs again"),
    ],
)
def test_a_killed_child_is_reported_and_comes_back(
    run: Run, name: str, words: tuple[str, ...], comes_back: str
) -> None:
    child = run.child(*words)
    with child.oneshot():
        below = child.children(recursive=True)
    child.kill()
    run.wait_until(lambda: any(comes_back in line for line in run.said), 20)
    assert any(f"{name} ended (SIGKILL): starting it again in 0.5 s" in line for line in run.said)
    assert run.child(*words).pid != child.pid
    run.wait_until(lambda: run.get("/readyz")["status"] == "ok", 60)
    _, alive = psutil.wait_procs(below, timeout=5)
    assert alive == []
    assert run.process.poll() is None


def test_sigterm_ends_all_of_it_within_ten_seconds(run: Run) -> None:
    children = run.everything()
    assert len(children) > 10
    began = time.monotonic()
    run.process.send_signal(signal.SIGTERM)
    assert run.process.wait(timeout=10) == 0
    assert time.monotonic() - began < 10
    assert [child for child in children if child.is_running()] == []
    assert len(run.printed) == 1


def test_a_second_start_keeps_the_data_and_is_quick(run: Run) -> None:
    others = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    again = Run(run.folder, run.port)
    try:
        seconds = again.wait_ready()
        with signed_in(again).open(f"http://127.0.0.1:{again.port}/", timeout=10) as page:
            assert "llama-70b-pretrain" in page.read().decode()
        children = again.everything()
        again.process.send_signal(signal.SIGINT)  # Ctrl-C
        assert again.process.wait(timeout=10) == 0
        assert [child for child in children if child.is_running()] == []
    finally:
        again.end()
    assert seconds < SECOND_START_LIMIT * others
