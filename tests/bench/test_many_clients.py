"""Fifty clients send two hundred attempts of 5 MB to a whole demo: nothing is lost, nothing is there twice, memory
stays where it is. Then the same while its worker and its database are killed.

    pytest tests/bench/test_many_clients.py -m bench -s        ATTEMPTS=40 ATTEMPT_BYTES=500000: a smaller one
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.bench.watching import watching
from tests.demo.conftest import open_place, place
from tests.demo.running import ROOT, Run
from triage.client import Client
from triage.supervisor.ports import free_port

__all__ = ["open_place", "place"]
CLIENTS = 50
ATTEMPTS = int(os.environ.get("ATTEMPTS", "200"))
BYTES = int(os.environ.get("ATTEMPT_BYTES", "5000000"))
MOST_MEMORY = 400 << 20
"""Of one process of the web server or the worker."""
LONGEST = 60.0
"""Seconds that a call may take while nothing is killed; proxies give up then."""
END = (
    b"[rank3]: Traceback (most recent call last):\n"
    b'[rank3]:   File "/home/ada/train.py", line 12, in <module>\n'
    b"[rank3]: KeyError: 'input_ids'\n"
)


def content(number: int) -> bytes:
    """A log of exactly BYTES bytes, unlike every other: half an hour of training, then its end."""
    line = b"2026-11-03 03:%02d:%02d,%03d rank 3 iteration %d | attempt %d | lm loss 2.345 | grad norm 0.123\n"
    body = bytearray()
    for step in range(BYTES // 80):
        at = step * 30 * 80 / BYTES * 60_000
        body += line % (at // 60_000, at // 1000 % 60, at % 1000, step, number)
    return bytes(body[: BYTES - len(END) - 1]) + b"\n" + END


class TimedClient(Client):
    """Notes how long each call took, its repeats included."""

    seconds: list[float] = []

    def call(self, *args: Any, **kwargs: Any) -> Any:
        began = time.monotonic()
        try:
            return super().call(*args, **kwargs)
        finally:
            self.seconds.append(time.monotonic() - began)


@pytest.fixture
def demo(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.setenv("FAULTLINE_API_RATE", "0")
    run = Run(place / "demo", free_port())
    try:
        run.wait_until(lambda: bool(run.printed), 600)  # how fast it starts is measured elsewhere
        yield run
    finally:
        run.end()


@contextmanager
def memory_of(run: Run) -> Iterator[dict[str, int]]:
    """The most that one process of each kind held, in bytes."""
    most: dict[str, int] = {}

    def look() -> None:
        for child in run.everything():
            with suppress(psutil.Error):
                words = " ".join(child.cmdline())
                kind = "web" if "gunicorn" in words else "worker" if " worker" in words else ""
                if kind:
                    most[kind] = max(most.get(kind, 0), child.memory_info().rss)

    with watching(look, 0.25):
        yield most


def token_of(run: Run) -> str:
    """Of the demo's user, made in its own environment."""
    command = f". {run.folder}/env && {sys.executable} manage.py api_token create demo many --scope ingest --scope read"
    done = subprocess.run(["sh", "-c", command], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip().splitlines()[-1]


def told(run: Run, client: Client, attempt: int, diagnoses: list[dict[str, Any]]) -> str:
    """What an attempt's diagnoses could not see, and what the worker said of faults."""
    said = [f"attempt {attempt}"]
    for row in diagnoses:
        contract = client.call("GET", f"attempts/{attempt}/diagnoses/{row['id']}")
        said.append(f"{contract['domain']}: {[part for part in contract['coverage'] if part['status'] != 'missing']}")
    log = (run.folder / "log" / "worker.log").read_text(errors="replace").splitlines()
    said += [line for line in log if " ERROR " in line or "Error:" in line][-30:]
    return "\n".join(said)


@pytest.mark.bench
@pytest.mark.parametrize("killed", [False, True], ids=["undisturbed", "worker and database killed"])
def test_many_clients_lose_nothing_and_double_nothing(demo: Run, killed: bool) -> None:
    server, token = f"http://127.0.0.1:{demo.port}", token_of(demo)
    TimedClient.seconds = []
    finished = threading.Semaphore(0)

    def send(number: int) -> int:
        client = TimedClient(server, token, tries=9)
        sent = content(number)
        attempt = client.attempt(str(number), cluster="many", state="FAILED")
        assert client.attempt(str(number), cluster="many", state="FAILED") == attempt  # its answer was lost, say
        for _ in range(2):
            client.send(attempt, "applog/train.log", sent)
        client.call("POST", f"attempts/{attempt}/diagnosis")
        finished.release()
        return attempt

    def kill() -> None:
        for words in (("celery", " worker"), ("bin/postgres",), ("celery", " worker"), ("bin/postgres",)):
            for _ in range(ATTEMPTS // 5):
                finished.acquire()
            with suppress(AssertionError, psutil.Error):  # it may just be starting again
                demo.child(*words).kill()

    began = time.monotonic()
    with memory_of(demo) as most:
        killer = threading.Thread(target=kill)
        if killed:
            killer.start()
        with ThreadPoolExecutor(CLIENTS) as pool:
            attempts = list(pool.map(send, range(ATTEMPTS)))
        sent_after = time.monotonic() - began
        if killed:
            killer.join()
        client = Client(server, token, tries=9)
        for attempt in attempts:
            client.wait(attempt, seconds=900)
        done_after = time.monotonic() - began

    assert len(set(attempts)) == ATTEMPTS
    listed, cursor = [], None
    while True:
        page = client.call("GET", "attempts", query={"q": "cluster:many", "limit": 200, "cursor": cursor})
        listed += [row["id"] for row in page["attempts"]]
        cursor = page["older"]
        if cursor is None:
            break
    assert sorted(listed) == sorted(attempts)
    for number, attempt in enumerate(attempts):
        kept = demo.folder / "data" / "observed" / str(attempt) / "applog" / "train.log"
        assert hashlib.sha256(kept.read_bytes()).digest() == hashlib.sha256(content(number)).digest(), attempt
        streams = client.call("GET", f"attempts/{attempt}/observations")["observations"]
        assert [(row["name"], row["bytes"]) for row in streams] == [("applog/train.log", BYTES)]
        diagnoses = client.call("GET", f"attempts/{attempt}/diagnoses")["diagnoses"]
        assert [row["domain"] for row in diagnoses] == ["software"], told(demo, client, attempt, diagnoses)
    drafts = list((demo.folder / "data" / "spool").glob(".draft-*"))

    took = sorted(TimedClient.seconds)
    print(
        f"\n{CLIENTS} clients, {ATTEMPTS} attempts of {BYTES / 1e6:.1f} MB{', killed' if killed else ''}: "
        f"sent after {sent_after:.0f} s, diagnosed after {done_after:.0f} s; {len(took)} calls, "
        f"half within {took[len(took) // 2]:.2f} s, 95% within {took[int(len(took) * 0.95)]:.2f} s, "
        f"longest {took[-1]:.1f} s; most memory of a process: "
        + ", ".join(f"{kind} {size / 2**20:.0f} MiB" for kind, size in sorted(most.items()))
    )
    assert max(most.values()) < MOST_MEMORY, most
    if not killed:
        assert took[-1] < LONGEST
        assert drafts == []
