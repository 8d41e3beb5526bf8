"""Work that gives no sign of life is left to itself."""

from __future__ import annotations

import io
import threading
import time

import pytest

from engine.model import Source, Stream
from triage.tasks.patience import Hangs, Watch, patiently, watched


def test_what_work_gives_or_raises_is_had() -> None:
    assert patiently(lambda watch: 5, 5) == 5
    with pytest.raises(KeyError, match="none"):
        patiently(lambda watch: {}["none"], 5)


def test_work_that_gives_signs_of_life_may_take_longer() -> None:
    stream = Stream(name="a", source=Source.APPLOG, open=lambda: io.BytesIO(b"x" * 40), size=40)

    def read(watch: Watch) -> bytes:
        content = b""
        with watched(stream, watch).open() as source:
            while block := source.read(1):
                content += block
                time.sleep(0.1)
        return content

    assert patiently(read, 3) == b"x" * 40


def test_work_that_hangs_is_left_and_learns_of_it() -> None:
    free, learned = threading.Event(), threading.Event()

    def hang(watch: Watch) -> None:
        watch.alive("while a.log was read")
        free.wait(30)
        if watch.left.is_set():
            learned.set()

    began = time.monotonic()
    with pytest.raises(Hangs, match=r"no answer for 0 s while a\.log was read: its file system"):
        patiently(hang, 0.3)
    assert time.monotonic() - began < 20
    free.set()
    assert learned.wait(5)
