"""A temporary file that holds many streams at once, in pieces as they come; memory does not grow with the bytes."""

from __future__ import annotations

import io
import os
import tempfile
from array import array
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any, BinaryIO, cast

from connectors.base import ConnectorError


class Spooled:
    """One stream in a spool: where its pieces are, and what was counted."""

    def __init__(self) -> None:
        self.size = 0
        self.lines = 0
        self._head: array[int] = array("Q")
        self._tail: array[int] = array("Q")

    def add(self, offset: int, size: int, *, tail: bool) -> None:
        pieces = self._tail if tail else self._head
        if not tail and pieces and pieces[-2] + pieces[-1] == offset:
            pieces[-1] += size
        else:
            pieces.extend((offset, size))
        self.size += size

    def pieces(self) -> Iterator[tuple[int, int]]:
        """(offset, size) in reading order: the head as it came, then the tail from its last piece to its first."""
        for at in range(0, len(self._head), 2):
            yield self._head[at], self._head[at + 1]
        for at in range(len(self._tail) - 2, -1, -2):
            yield self._tail[at], self._tail[at + 1]


class Spool:
    """Streams by key. What was added can be read as often as wanted until the spool is closed."""

    def __init__(self, folder: Path | None = None) -> None:
        self._file = tempfile.TemporaryFile(prefix="faultline-spool-", dir=folder, buffering=1 << 20)  # noqa: SIM115
        self._end = 0
        self._streams: dict[Any, Spooled] = {}

    @classmethod
    def usable(cls, folder: Path | None, prefix: str = "") -> Spool:
        """A spool in `folder`, else in the system's. Raises ConnectorError, beginning with `prefix`, when it can't be
        written there.
        """
        try:
            return cls(folder)
        except OSError as error:
            where = folder or "the folder for temporary files"
            raise ConnectorError(f"{prefix}{where} can not be written ({error.strerror}): set spool_dir") from None

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    def add(self, key: Any, content: bytes, *, lines: int = 0, tail: bool = False) -> None:
        """Appends to a stream; with `tail` in front of all that was added as tail before, and behind the head.
        Raises OSError when the disk is full.
        """
        stream = self._streams.get(key)
        if stream is None:
            stream = self._streams[key] = Spooled()
        stream.add(self.write(content), len(content), tail=tail)
        stream.lines += lines

    def write(self, content: bytes) -> int:
        """Keeps bytes that belong to no stream yet; gives their offset."""
        offset = self._end
        self._file.write(content)
        self._end += len(content)
        return offset

    def has(self, key: Any) -> bool:
        return key in self._streams

    @property
    def size(self) -> int:
        """Bytes in all streams together."""
        return self._end

    def streams(self) -> dict[Any, Spooled]:
        return dict(self._streams)

    def open(self, stream: Spooled) -> BinaryIO:
        """The stream's bytes from the start. Raises ValueError once the spool is closed."""
        self._file.flush()
        return cast(BinaryIO, io.BufferedReader(_Pieces(self._file, list(stream.pieces())), 1 << 16))


class _Pieces(io.RawIOBase):
    def __init__(self, file: IO[bytes], pieces: list[tuple[int, int]]) -> None:
        self._file, self._pieces, self._at, self._inside = file, pieces, 0, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._at >= len(self._pieces):
            return 0
        offset, size = self._pieces[self._at]
        block = os.pread(self._file.fileno(), min(size - self._inside, len(buffer)), offset + self._inside)
        buffer[: len(block)] = block
        self._inside += len(block)
        if self._inside >= size or not block:
            self._at, self._inside = self._at + 1, 0
        return len(block)
