"""Scans the streams of an attempt, on several processors where that is worth it.

More than half of a scan is Python, which runs on one processor at a time in a process: with threads it took longer than
without. So streams are shared out among forked processes. What is found in a stream does not depend on who scans it.
"""

from __future__ import annotations

import io
import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import msgspec

from engine.hits import StreamScan
from engine.model import Stream
from engine.scan import Scanner

LEAST = 24 << 20
"""Bytes of all streams from which on processes are started."""

_shared: tuple[Scanner, Sequence[Stream], frozenset[str]] | None = None
"""What a process inherits when it is forked: how a stream is opened cannot be sent to it."""


class UnreadableError(Exception):
    """A stream could not be read; in one line, why."""


def scan_all(
    scanner: Scanner, streams: Sequence[Stream], nodes: frozenset[str], processors: int
) -> list[StreamScan | UnreadableError]:
    """What each stream gave, in the order of the streams, on at most so many processors."""
    processors = min(processors, len(streams), os.cpu_count() or 1)
    sizes = [stream.size if stream.size >= 0 else LEAST for stream in streams]  # a packed one does not tell its size
    if processors < 2 or sum(sizes) < LEAST or "fork" not in multiprocessing.get_all_start_methods():
        return [_scan(scanner, stream, nodes) for stream in streams]
    global _shared
    _shared = scanner, streams, nodes
    try:
        with ProcessPoolExecutor(processors, multiprocessing.get_context("fork")) as pool:
            # The largest first, so that no processor is left with one when the others are done.
            order = sorted(range(len(streams)), key=lambda number: -sizes[number])
            waiting = {number: pool.submit(_scan_shared, number) for number in order}
            return [_received(waiting[number], scanner, stream, nodes) for number, stream in enumerate(streams)]
    finally:
        _shared = None


def _received(
    answer: Future[StreamScan | str], scanner: Scanner, stream: Stream, nodes: frozenset[str]
) -> StreamScan | UnreadableError:
    try:
        found = answer.result()
    except BrokenProcessPool:  # something ended a process: it is not the stream's fault
        return _scan(scanner, stream, nodes)
    if isinstance(found, str):
        return UnreadableError(found)
    found.stream = stream
    return found


def _scan_shared(number: int) -> StreamScan | str:
    assert _shared is not None, "not forked from a process that scans"
    scanner, streams, nodes = _shared
    found = _scan(scanner, streams[number], nodes)
    if isinstance(found, UnreadableError):
        return str(found)
    found.stream = msgspec.structs.replace(found.stream, open=io.BytesIO)  # the receiver knows how it is opened
    return found


def _scan(scanner: Scanner, stream: Stream, nodes: frozenset[str]) -> StreamScan | UnreadableError:
    try:
        return scanner.scan(stream, nodes)
    except Exception as error:
        return UnreadableError(" ".join(str(error).split()) or type(error).__name__)
