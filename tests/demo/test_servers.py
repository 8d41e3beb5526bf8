"""The embedded servers keep their data, and nothing outlives the process that started them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
import redis

from triage.supervisor.demo import CRASHES_ALLOWED, Watched
from triage.supervisor.errors import DemoError
from triage.supervisor.folder import Folder
from triage.supervisor.postgres import Postgres
from triage.supervisor.process import Child, stop_all
from triage.supervisor.servers import start
from triage.supervisor.valkey import Valkey

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def folder(place: Path) -> Iterator[Folder]:
    folder = Folder(place / "demo")
    folder.create()
    yield folder
    folder.remove()


def test_postgres_keeps_its_data_when_it_stops_and_when_it_is_killed(folder: Folder) -> None:
    first = Postgres(folder)
    first.prepare()
    child = start(first)
    with psycopg.connect(first.url) as connection:
        connection.execute("CREATE TABLE kept (words text)")
        connection.execute("INSERT INTO kept VALUES ('stopped')")
    began = time.monotonic()
    stop_all([child], grace=5)
    assert time.monotonic() - began < 3
    assert child.succeeded()

    again = Postgres(folder)
    again.prepare()
    child = start(again)
    with psycopg.connect(again.url) as connection:
        connection.execute("INSERT INTO kept VALUES ('killed')")
    child.kill_group()
    assert child.how_it_ended() == "SIGKILL"

    last = Postgres(folder)
    last.prepare()
    child = start(last)
    try:
        with psycopg.connect(last.url) as connection:
            assert connection.execute("SELECT words FROM kept ORDER BY 1").fetchall() == [("killed",), ("stopped",)]
            (encoding,) = connection.execute("SHOW server_encoding").fetchone() or ("",)
            (zone,) = connection.execute("SHOW timezone").fetchone() or ("",)
    finally:
        stop_all([child], grace=5)
    assert (encoding, zone) == ("UTF8", "UTC")


def test_postgres_asks_for_its_password(folder: Folder) -> None:
    server = Postgres(folder)
    server.prepare()
    child = start(server)
    try:
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(server.url.replace(server.password, "guess"))
    finally:
        stop_all([child], grace=5)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs Postgres as somebody else")
def test_as_root_postgres_runs_as_another_user_even_below_a_closed_folder(place: Path) -> None:
    closed = place / "closed"
    closed.mkdir(mode=0o700)
    folder = Folder(closed / "demo")
    folder.create()
    server = Postgres(folder)
    wheel = server.install.parent
    for part in (wheel, wheel.with_name(f"{wheel.name}.libs")):
        if part.exists():
            shutil.copytree(part, closed / part.name)
    server.install = closed / wheel.name / server.install.name
    try:
        server.prepare()
        child = start(server)
        try:
            assert psutil.Process(child.pid).uids().real != 0
            assert server.data == folder.outside / "postgres"
            assert folder.outside in server.install.parents
            assert str(server.data) in server.notes[0]
            assert folder.outside.name in server.notes[1]
            with psycopg.connect(server.url) as connection:
                connection.execute("CREATE EXTENSION pg_trgm")
            assert oct(closed.stat().st_mode & 0o777) == "0o700"
        finally:
            stop_all([child], grace=5)
        with pytest.raises(DemoError, match="can't reach"):
            (folder.root / "postgres").mkdir()  # as if the folder had been open before
            Postgres(folder).prepare()
    finally:
        folder.remove()
    assert not folder.outside.exists()


def test_valkey_keeps_what_was_queued_and_asks_for_its_password(folder: Folder) -> None:
    server = Valkey(folder)
    server.prepare()
    child = start(server)
    with redis.Redis.from_url(server.url) as client:
        client.rpush("queue", "task")
    with redis.Redis(port=server.port) as stranger, pytest.raises(redis.AuthenticationError):
        stranger.ping()
    stop_all([child], grace=5)
    assert child.succeeded()

    again = Valkey(folder)
    again.prepare()
    child = start(again)
    try:
        with redis.Redis.from_url(again.url) as client:
            assert client.lrange("queue", 0, -1) == [b"task"]
    finally:
        stop_all([child], grace=5)


def test_no_secret_shows_in_the_list_of_processes(folder: Folder) -> None:
    children = []
    for server in (Postgres(folder), Valkey(folder)):
        server.prepare()
        children.append(start(server))
        assert not any(server.password in word for word in psutil.Process(children[-1].pid).cmdline())
    stop_all(children, grace=5)
    private = [path for path in folder.root.iterdir() if path.suffix in (".secret", ".conf")]
    assert len(private) == 3
    assert all(path.stat().st_mode & 0o077 == 0 for path in private)


def test_a_killed_supervisor_leaves_no_process(place: Path) -> None:
    """Also no grandchild that takes no notice of the signals that stop it."""
    program = textwrap.dedent("""
        import os, sys, time
        from pathlib import Path
        from triage.supervisor.demo import Demo
        from triage.supervisor.folder import Folder
        from triage.supervisor.process import Child

        demo = Demo(Folder(Path(sys.argv[1])), 1, dict(os.environ, DATABASE_URL="", REDIS_URL=""))
        demo.folder.create()
        with demo._signals():
            demo._start_guard()
            demo._start_servers()
            stubborn = "trap '' TERM; sh -c 'trap \\"\\" TERM; while :; do sleep 1; done' & wait"
            demo._start(Child("stubborn", ["/bin/sh", "-c", stubborn], log=demo.folder.log("s"), env={}, cwd=Path("/")))
            print("started", flush=True)
            time.sleep(60)
    """)
    words = [sys.executable, "-c", program, str(place / "demo")]
    supervisor = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert supervisor.stdout is not None
        assert supervisor.stdout.readline() == "started\n"
        time.sleep(0.3)
        children = psutil.Process(supervisor.pid).children(recursive=True)
        names = {child.name() for child in children}
        assert {"postgres", "valkey-server", "sh"} <= names
    finally:
        supervisor.send_signal(signal.SIGKILL)
        supervisor.communicate()
    _, alive = psutil.wait_procs(children, timeout=9)
    assert [child for child in alive if child.status() != psutil.STATUS_ZOMBIE] == []
    Folder(place / "demo").remove()


def test_the_wait_before_a_restart_grows_until_it_is_given_up(place: Path) -> None:
    watched = Watched(Child("worker", ["false"], log=place / "log", env={}, cwd=place))
    waits = [watched.crashed(now=1000.0 + seconds) for seconds in range(CRASHES_ALLOWED + 1)]
    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, None]


def test_crashes_of_long_ago_are_forgotten(place: Path) -> None:
    watched = Watched(Child("worker", ["false"], log=place / "log", env={}, cwd=place))
    assert [watched.crashed(now=1000.0 * day) for day in range(20)] == [0.5] * 20
