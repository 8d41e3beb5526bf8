"""Looking at something again and again while something else runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def watching(look: Callable[[], None], every: float) -> Iterator[None]:
    """Calls `look` in a thread every so many seconds until the block ends."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(every):
            look()

    watcher = threading.Thread(target=run)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
