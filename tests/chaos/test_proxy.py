"""The bad network of `make chaos` is bad in the ways that it says."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.chaos import proxy as network
from tests.chaos.proxy import WELL, Proxy, Toxic
from triage.supervisor.ports import LOOPBACK


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """Before a server that says everything back."""
    server = socket.create_server((LOOPBACK, 0))

    def serve(one: socket.socket) -> None:
        with one, suppress(ConnectionError):
            while block := one.recv(1 << 16):
                one.sendall(block)

    def accept() -> None:
        while True:
            try:
                one, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=[one], daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    stands = Proxy(lambda: server.getsockname()[1], random.Random(1))
    yield stands
    stands.stop()
    server.close()


@pytest.fixture
def client(proxy: Proxy) -> Iterator[socket.socket]:
    with socket.create_connection((LOOPBACK, proxy.port), timeout=5) as one:
        yield one


def said(client: socket.socket, words: bytes) -> tuple[bytes, float]:
    began, answer = time.monotonic(), b""
    client.sendall(words)
    while len(answer) < len(words):
        block = client.recv(1 << 16)
        if not block:
            break
        answer += block
    return answer, time.monotonic() - began


def test_a_network_that_is_well_passes_everything_on_at_once(proxy: Proxy, client: socket.socket) -> None:
    words = random.Random(1).randbytes(300_000)
    answer, seconds = said(client, words)
    assert answer == words and seconds < 2 and proxy.broken == 0


def test_a_slow_network_is_slow_each_way_and_loses_nothing(proxy: Proxy, client: socket.socket) -> None:
    proxy.toxic = Toxic(latency=0.1)
    answer, seconds = said(client, b"hello")
    assert answer == b"hello" and 0.2 <= seconds < 2


def test_a_narrow_network_takes_the_time_that_its_width_needs(proxy: Proxy, client: socket.socket) -> None:
    proxy.toxic = Toxic(bandwidth=100_000)
    words = bytes(30_000)
    answer, seconds = said(client, words)
    assert answer == words and 0.3 <= seconds < 3


def test_a_connection_that_is_broken_ends_with_a_reset_on_both_sides(proxy: Proxy, client: socket.socket) -> None:
    proxy.toxic = Toxic(reset=1.0)
    with pytest.raises(ConnectionResetError):
        said(client, b"hello")
    assert proxy.broken == 1


def test_a_forgotten_connection_is_silent_and_stays_dead_until_it_is_probed(
    proxy: Proxy, client: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "PROBE", 0.4)
    proxy.toxic = Toxic(forgets=True)
    client.settimeout(0.2)
    with pytest.raises(TimeoutError):
        said(client, b"lost")
    proxy.toxic = WELL
    with pytest.raises(TimeoutError):
        client.recv(1)
    client.settimeout(5)
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    with socket.create_connection((LOOPBACK, proxy.port), timeout=5) as another:
        assert said(another, b"hello")[0] == b"hello"


def test_where_nobody_listens_a_connection_is_reset(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = socket.create_server((LOOPBACK, 0))
    port = gone.getsockname()[1]
    gone.close()
    monkeypatch.setattr(proxy, "_target", lambda: port)
    with pytest.raises(OSError), socket.create_connection((LOOPBACK, proxy.port), timeout=5) as one:
        one.recv(1)
        raise AssertionError("not reached")
