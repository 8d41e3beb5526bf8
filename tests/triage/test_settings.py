"""Settings come from the environment and are refused in one line when they can't be used."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from django.db import connection

from triage import env
from triage.celery import app


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("postgresql://ada:pw@db.example:6432/fl", ("fl", "ada", "pw", "db.example", "6432", {})),
        ("postgres://db/fl?sslmode=require", ("fl", "", "", "db", "", {"sslmode": "require"})),
        ("postgresql://ada:p%40w%2F@/fl?host=/run/pg", ("fl", "ada", "p@w/", "/run/pg", "", {})),
        ("postgresql://ada@[::1]:5432/fl", ("fl", "ada", "", "::1", "5432", {})),
    ],
)
def test_a_database_url_is_understood(url: str, wanted: tuple[object, ...]) -> None:
    facts = env.database(url)
    assert tuple(facts[key] for key in ("NAME", "USER", "PASSWORD", "HOST", "PORT", "OPTIONS")) == wanted


def test_another_database_is_refused_without_its_password() -> None:
    with pytest.raises(env.SettingError, match=r"^DATABASE_URL: only postgresql:// is supported, not 'mysql'$"):
        env.database("mysql://ada:secret@db/fl")


def test_a_number_that_is_none_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULTLINE_LEASE_SECONDS", "soon")
    with pytest.raises(env.SettingError, match="FAULTLINE_LEASE_SECONDS: 'soon'"):
        env.number("FAULTLINE_LEASE_SECONDS", 45)


@pytest.mark.parametrize("url", ["postgresql://a@db:port/fl", "postgresql://a:pw/x@db/fl", "postgresql://[::1/fl"])
def test_a_url_that_can_not_be_read_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(env.SettingError, match=r"^DATABASE_URL: is no URL") as said:
        env.database(url)
    assert "pw" not in str(said.value)


@pytest.mark.parametrize("url", ["nonsense", "http://cache:6379/0", "redis://cache:port/0", "redis://cache/first"])
def test_a_broker_that_is_none_is_refused(url: str) -> None:
    assert env.broker("rediss://:pw@cache:6380/2") == "rediss://:pw@cache:6380/2"
    with pytest.raises(env.SettingError, match=r"^REDIS_URL: "):
        env.broker(url)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FAULTLINE_LEASE_SECONDS", "0"),
        ("FAULTLINE_SWEEP_SECONDS", "-5"),
        ("FAULTLINE_MAX_UPLOAD_BYTES", "1_000"),
        ("FAULTLINE_LOG_LEVEL", "loud"),
        ("REDIS_URL", "nonsense"),
        ("FAULTLINE_STATE_DIR", "/dev/null/state"),
        ("FAULTLINE_OIDC_CLIENT_SECRET_FILE", "/nowhere/secret"),
    ],
)
def test_a_setting_that_is_wrong_is_named_in_one_line(name: str, value: str) -> None:
    wrong = {**os.environ, "FAULTLINE_OIDC_URL": "https://id.example.org", "FAULTLINE_OIDC_CLIENT_ID": "x"}
    wrong |= {"FAULTLINE_OIDC_CLIENT_SECRET": "y", name: value}
    wrong.pop("SECRET_KEY", None)
    ended = run([sys.executable, "-c", "from triage import env; env.load_settings('x')"], wrong)
    (line,) = ended.stderr.splitlines()
    assert line.startswith("x: ") and (name in line or value in line) and ended.returncode == env.WRONG_SETTING


ENTRIES = {
    "worker": ["celery", "-A", "triage.celery", "worker"],
    "beat": ["celery", "-A", "triage", "beat"],
    "web, as in the image": ["gunicorn", "--config", "python:triage.web_server", "triage.wsgi:application"],
    "web without its configuration": ["gunicorn", "--no-control-socket", "triage.wsgi:application"],
    "nvrx": ["gunicorn", "--no-control-socket", "triage.compat.wsgi:application"],
    "asgi": ["python", "-c", "import triage.asgi"],
    "manage.py": ["python", "manage.py", "migrate"],
}


@pytest.mark.parametrize("words", ENTRIES.values(), ids=ENTRIES)
def test_every_process_says_a_wrong_setting_in_one_line_and_ends(words: list[str]) -> None:
    program, *rest = words
    bind = ["--bind", "127.0.0.1:0"] if program == "gunicorn" else []
    wrong = {**os.environ, "FAULTLINE_LEASE_SECONDS": "soon"}
    ended = run([str(Path(sys.executable).with_name(program)), *rest, *bind], wrong)
    said = [line for line in (ended.stdout + ended.stderr).splitlines() if "FAULTLINE_LEASE_SECONDS" in line]
    assert len(said) == 1 and said[0].endswith(": FAULTLINE_LEASE_SECONDS: 'soon' is not a whole number from 1 on")
    assert "Traceback" not in ended.stdout + ended.stderr and ended.returncode != 0


def run(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    here = Path(__file__).parents[2]
    return subprocess.run(
        command,
        cwd=here,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )


def test_processes_that_start_together_agree_on_the_secret_key(tmp_path: Path) -> None:
    keys: list[str] = []
    threads = [threading.Thread(target=lambda: keys.append(env.secret_key(tmp_path / "a" / "key"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(keys)) == 1 and len(keys[0]) > 60
    assert (tmp_path / "a" / "key").stat().st_mode & 0o777 == 0o600


@pytest.mark.django_db
def test_a_database_that_has_vanished_is_noticed_though_nobody_says_goodbye() -> None:
    connection.ensure_connection()
    raw = connection.connection
    if raw.info.host.startswith("/"):
        pytest.skip("the test's database is reached by a socket of this machine")
    with socket.socket(fileno=os.dup(raw.pgconn.socket)) as one:
        assert one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert one.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 10
        assert one.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000


def test_a_broker_that_has_vanished_is_noticed_though_nobody_says_goodbye() -> None:
    with app.connection_for_read() as connection_:
        client = connection_.default_channel.client
        client.ping()
        (one,) = client.connection_pool._available_connections[-1:]
        assert one._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 10
