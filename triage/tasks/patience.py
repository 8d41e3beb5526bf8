"""Work on a source whose calls may never come back, as of a file system whose server is away.

Python can't end such a call, and neither can a signal. So the work is done in a thread of its own, which is left to
itself when it gave no sign of life for too long; it ends when the call comes back.
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable
from typing import Any, BinaryIO, TypeVar

import msgspec
from django.db import connection

from connectors.base import ConnectorError
from engine.model import Stream

T = TypeVar("T")


class Hangs(ConnectorError):
    """The source gave no sign of life for too long."""


class Watch:
    """How long ago the work gave a sign of life, and in what it is."""

    def __init__(self) -> None:
        self._at, self.doing = time.monotonic(), ""
        self.left = threading.Event()
        """Set when nobody waits for the work any more: it is to end when it can."""

    def alive(self, doing: str) -> None:
        """The work goes on, with this."""
        self._at, self.doing = time.monotonic(), doing

    @property
    def silent(self) -> float:
        return time.monotonic() - self._at


def patiently(work: Callable[[Watch], T], seconds: float) -> T:
    """What `work` gives. Raises what it raises, and Hangs when it is silent for so many seconds."""
    watch, done = Watch(), threading.Event()
    given: list[T] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            given.append(work(watch))
        except BaseException as error:
            raised.append(error)
        finally:
            connection.close()
            done.set()

    threading.Thread(target=contextvars.copy_context().run, args=[run], name="patience", daemon=True).start()
    while not done.wait(max(seconds - watch.silent, 0.05)):
        if watch.silent >= seconds and not done.is_set():
            watch.left.set()
            raise Hangs(
                f"no answer for {seconds:.0f} s {watch.doing}: its file system, or what it is mounted from, hangs"
            )
    if raised:
        raise raised[0]
    return given[0]


def watched(stream: Stream, watch: Watch) -> Stream:
    """The stream, whose opening and reading are signs of life."""
    doing = f"while {stream.name} was read"

    def opened() -> BinaryIO:
        watch.alive(doing)
        return _Watched(stream.open(), watch, doing)  # type: ignore[return-value]

    return msgspec.structs.replace(stream, open=opened)


class _Watched:
    """A stream's content, whose reads are signs of life."""

    def __init__(self, content: BinaryIO, watch: Watch, doing: str) -> None:
        self._content, self._watch, self._doing = content, watch, doing
        self._some = getattr(content, "read1", content.read)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    def __enter__(self) -> _Watched:
        return self

    def __exit__(self, *_: object) -> None:
        self._content.close()

    def read(self, size: int = -1) -> bytes:
        return self._told(self._content.read(size))

    def read1(self, size: int = -1) -> bytes:
        return self._told(self._some(size))

    def _told(self, block: bytes) -> bytes:
        self._watch.alive(self._doing)
        return block
