"""The whole demo, started as a person starts it. One demo serves these tests in their order; the last ones end it."""

from __future__ import annotations

import http.cookiejar
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import psutil
import pytest

from triage.supervisor.folder import Folder
from triage.supervisor.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
START_LIMIT = 150  # seconds; a machine that runs other tests beside this is slow
SECOND_START_LIMIT = 15  # seconds on a machine that has nothing else to do

pytestmark = pytest.mark.demo


class Run:
    """A demo as its own process, with what it has said."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        self.said: list[str] = []
        self.printed: list[str] = []
        env = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "REDIS_URL")}
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "triage.supervisor", "demo", "--folder", str(folder)],
            cwd=ROOT,
            env={**env, "PORT": str(port)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.readers = [
            threading.Thread(target=self._read, args=pair, daemon=True)
            for pair in ((self.process.stdout, self.printed), (self.process.stderr, self.said))
        ]
        for reader in self.readers:
            reader.start()

    @staticmethod
    def _read(pipe: IO[str], lines: list[str]) -> None:
        with pipe:
            lines.extend(pipe)

    def wait_until(self, what: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not what():
            assert self.process.poll() is None, "".join(self.said)
            assert time.monotonic() < deadline, "".join(self.said)
            time.sleep(0.1)

    def wait_ready(self) -> float:
        """Seconds from its start until it said that it is ready."""
        self.wait_until(lambda: bool(self.printed), START_LIMIT)
        return time.monotonic() - self.began

    def get(self, path: str) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
                return dict(json.load(answer))
        except urllib.error.HTTPError as error:
            return dict(json.load(error))

    def child(self, *words: str) -> psutil.Process:
        """The direct child whose command line has all of these words."""
        for child in psutil.Process(self.process.pid).children():
            if all(word in " ".join(child.cmdline()) for word in words):
                return child
        raise AssertionError(f"no child {words}")

    def end(self) -> None:
        """Whatever happened, it doesn't outlive the test."""
        self.process.terminate()
        self.process.wait(timeout=15)
        for reader in self.readers:
            reader.join()

    def everything(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)


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
