"""Settings come from the environment and are refused in one line when they can't be used."""

from __future__ import annotations

import os
import socket
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
