"""Lines of many streams in one body: each stream's lines become one part, and a bad line stops all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from triage.api.problems import Invalid
from triage.services import spool

MAX_STREAMS = 1000
"""In one body."""


class LineBatch:
    """Lines that came, by stream, in files that go when the request is answered."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.drafts: dict[str, Path] = {}
        """Name of a stream -> its lines."""

    def put(self, where: str, name: str, line: str, at: Any = None) -> None:
        """One more line; `where` names it in an error. Raises Problem."""
        if name not in self.drafts:
            if len(self.drafts) >= MAX_STREAMS:
                raise Invalid(**{where: f"more than {MAX_STREAMS} streams in one body"})
            self.drafts[name] = self._folder / str(len(self.drafts))
        prefix = f"{at} " if isinstance(at, str) and at.isprintable() else ""
        text = line.rstrip("\r\n")
        with self.drafts[name].open("ab") as out:
            out.write(f"{prefix}{text}\n".encode("utf-8", "replace"))

    def each(self, do: Callable[[str, Path], Any]) -> list[Any]:
        """`do` for each stream with its file."""
        return [do(name, draft) for name, draft in self.drafts.items()]


@contextmanager
def line_batch() -> Iterator[LineBatch]:
    """An empty batch."""
    with spool.draft(".part") as scratch:
        folder = scratch.with_suffix(".lines")
        folder.mkdir()
        try:
            yield LineBatch(folder)
        finally:
            for draft in folder.iterdir():
                draft.unlink()
            folder.rmdir()
