"""Several processors change how soon the answer comes, never the answer."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Callable
from typing import BinaryIO

import msgspec
import pytest

from engine import parallel
from engine.bundle import Bundle
from engine.diagnose import diagnose, scanner_of
from engine.hits import StreamScan
from engine.model import Source, Stream
from engine.report import as_json
from tests.engine.evidence import case, ruleset


@pytest.fixture(autouse=True)
def processes_are_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "LEAST", 1)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)


def answer(bundle: Bundle, streams: list[Stream], threads: int) -> str:
    return as_json(diagnose(bundle.attempt, streams, ruleset(), threads=threads))


@pytest.mark.parametrize("name", ["hw-xid79-gpu-off-bus", "net-k8s-node-not-ready", "sw-port-in-use"])
def test_several_processors_give_the_same_bytes(name: str) -> None:
    with case(name).opened() as bundle:
        streams = list(bundle.streams)
        assert answer(bundle, streams, 3) == answer(bundle, streams, 1)


def test_large_attempts_are_scanned_by_other_processes() -> None:
    here = os.getpid()

    def opened() -> BinaryIO:
        return io.BytesIO(b"here\n" if os.getpid() == here else b"another\nprocess\n")

    streams = [Stream(name=f"applog/{n}.log", source=Source.APPLOG, open=opened, size=9) for n in range(5)]
    found = parallel.scan_all(scanner_of(ruleset()), streams, frozenset(), 3)
    assert [(scan.stream, scan.lines) for scan in found if isinstance(scan, StreamScan)] == [(s, 2) for s in streams]


def test_a_stream_that_cannot_be_read_is_reported_in_the_same_words() -> None:
    def broken() -> None:
        raise OSError("input/output error\non the disk")

    with case("sw-port-in-use").opened() as bundle:
        streams = list(bundle.streams)
        number = next(n for n, stream in enumerate(streams) if stream.source is Source.APPLOG)
        streams[number] = when_opened(streams[number], broken)
        alone = answer(bundle, streams, 1)
        assert "input/output error on the disk" in alone
        assert answer(bundle, streams, 3) == alone


def test_a_process_that_was_ended_costs_only_time() -> None:
    here = os.getpid()

    def kill() -> None:
        if os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)

    with case("sw-port-in-use").opened() as bundle:
        streams = list(bundle.streams)
        alone = answer(bundle, streams, 1)
        assert answer(bundle, [when_opened(stream, kill) for stream in streams], 3) == alone


def test_small_attempts_are_scanned_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "LEAST", 1 << 20)
    opened_by = set[int]()

    def opened() -> BinaryIO:
        opened_by.add(os.getpid())
        return io.BytesIO(b"loss 2.1\n")

    streams = [Stream(name=f"applog/{n}.log", source=Source.APPLOG, open=opened, size=9) for n in range(4)]
    found = parallel.scan_all(scanner_of(ruleset()), streams, frozenset(), 3)
    assert [scan.lines for scan in found if not isinstance(scan, parallel.UnreadableError)] == [1, 1, 1, 1]
    assert opened_by == {os.getpid()}


def when_opened(stream: Stream, check: Callable[[], None]) -> Stream:
    """The stream, with something that happens whenever a log is opened."""

    def opened() -> BinaryIO:
        if stream.source is Source.APPLOG:
            check()
        return stream.open()

    return msgspec.structs.replace(stream, open=opened)
