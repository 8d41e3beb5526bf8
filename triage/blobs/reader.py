"""Reading a blob: lines by number or byte offset, or the whole stream, unpacking only the frames that are needed."""

from __future__ import annotations

import io
import os
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, cast

import zstandard

from triage.blobs.index import TAIL_BYTES, BlobError, Index
from triage.blobs.writer import FRAME_BYTES

__all__ = ["BlobError", "BlobReader", "RawLine"]

Hide = Callable[[bytes], bytes]
_KEPT_FRAMES = 3
MAX_LINE_BYTES = 64 << 10


@dataclass(frozen=True)
class RawLine:
    """One line as stored."""

    number: int
    """From 1."""
    offset: int
    """Byte offset of its start in the stream."""
    raw: bytes
    """Without its line end (a carriage return stays); at most what was asked for."""
    cut: bool
    """Whether the line is longer than `raw`."""


class BlobReader:
    """An open blob; use it as a context manager. Not for several threads at once."""

    def __init__(self, path: Path, hide: Hide | None = None) -> None:
        """`hide` masks each frame as it is unpacked; it keeps lengths and line ends."""
        self._hide = hide
        try:
            self._file = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        except OSError as error:
            raise BlobError(f"blob {path.name}: {error.strerror}") from None
        self._frames: OrderedDict[int, bytes] = OrderedDict()
        self.unpacked = 0
        """How many frames have been unpacked."""
        try:
            length = os.fstat(self._file).st_size
            tail = os.pread(self._file, TAIL_BYTES, max(0, length - TAIL_BYTES))
            packed = Index.packed_size(tail)
            if packed > length:
                raise BlobError("blob is cut short")
            self._index = Index.unpack(os.pread(self._file, packed, length - packed))
        except BlobError:
            os.close(self._file)
            raise

    def __enter__(self) -> BlobReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file; safe to call twice."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        self._frames.clear()

    @property
    def size(self) -> int:
        """Bytes of the stream."""
        return self._index.size

    @property
    def lines(self) -> int:
        """Lines of the stream."""
        return self._index.lines

    @property
    def frames(self) -> int:
        """Frames of the blob."""
        return len(self._index.offsets)

    def read_lines(self, first: int, count: int, *, max_line_bytes: int = MAX_LINE_BYTES) -> list[RawLine]:
        """Up to `count` lines from line number `first` on; fewer at the end of the stream."""
        number, last = max(1, first), min(self.lines, first + count - 1)
        found: list[RawLine] = []
        offset = self.line_start(number) if number <= last else 0
        while number <= last:
            raw, following = self._line_at(offset, max_line_bytes)
            if following is None:  # longer than asked for: the index knows where the next one starts
                found.append(RawLine(number, offset, raw, True))
                following = self.line_start(number + 1)
            else:
                found.append(RawLine(number, offset, raw, False))
            number, offset = number + 1, following
        return found

    def read_at_offset(
        self, offset: int, before: int = 0, after: int = 0, *, max_line_bytes: int = MAX_LINE_BYTES
    ) -> list[RawLine]:
        """The line that holds byte `offset` of the stream, with lines around it."""
        number = self.line_of(offset)
        first = max(1, number - before)
        return self.read_lines(first, number - first + 1 + after, max_line_bytes=max_line_bytes)

    def line_start(self, number: int) -> int:
        """The byte offset at which a line begins; the stream's size for a line past the end."""
        if number <= 1:
            return 0
        if number > self.lines:
            return self.size
        frame = bisect_right(self._index.newlines, number - 2) - 1
        data, at = self._frame(frame), -1
        for _ in range(number - 1 - self._index.newlines[frame]):
            at = data.index(b"\n", at + 1)
        return self._index.offsets[frame] + at + 1

    def line_of(self, offset: int) -> int:
        """The number of the line that holds a byte offset (brought into range); 1 in an empty stream."""
        if not self.frames:
            return 1
        offset = min(max(0, offset), self.size - 1)
        frame = bisect_right(self._index.offsets, offset) - 1
        ahead = self._frame(frame).count(b"\n", 0, offset - self._index.offsets[frame])
        return self._index.newlines[frame] + ahead + 1

    def read_range(self, offset: int, length: int) -> bytes:
        """`length` bytes of the stream from `offset` on; fewer at the end."""
        parts: list[bytes] = []
        while length > 0 and offset < self.size:
            part = self._from(offset)[:length]
            parts.append(part)
            offset, length = offset + len(part), length - len(part)
        return b"".join(parts)

    def piece_at(self, offset: int) -> bytes:
        """What the frame that holds byte `offset` has from there on; empty at the end of the stream."""
        return self._from(max(0, offset)) if offset < self.size else b""

    def _line_at(self, offset: int, limit: int) -> tuple[bytes, int | None]:
        """A line and where the next begins; None for that when the line is longer than `limit`."""
        parts: list[bytes] = []
        length = 0
        while offset < self.size and length <= limit:
            rest = self._from(offset, limit - length + 1)
            end = rest.find(b"\n")
            if end >= 0:
                return b"".join([*parts, rest[:end]]), offset + end + 1
            parts.append(rest)
            offset, length = offset + len(rest), length + len(rest)
        raw = b"".join(parts)
        return (raw, self.size) if length <= limit else (raw[:limit], None)

    def _from(self, offset: int, limit: int = FRAME_BYTES) -> bytes:
        """What the frame that holds `offset` has from there on, at most `limit` bytes. Never empty inside the
        stream.
        """
        frame = bisect_right(self._index.offsets, offset) - 1
        local = offset - self._index.offsets[frame]
        return self._frame(frame)[local : local + limit]

    def _frame(self, number: int) -> bytes:
        if number in self._frames:
            self._frames.move_to_end(number)
            return self._frames[number]
        index = self._index
        last = number + 1 >= self.frames
        end, stop = (index.end, index.size) if last else (index.places[number + 1], index.offsets[number + 1])
        length = stop - index.offsets[number]
        try:
            packed = os.pread(self._file, end - index.places[number], index.places[number])
            data = zstandard.ZstdDecompressor().decompress(packed, max_output_size=length)
        except (zstandard.ZstdError, OSError) as error:
            raise BlobError(f"blob is damaged in frame {number}: {error}") from None
        if len(data) != length:
            raise BlobError(f"blob is damaged in frame {number}")
        self.unpacked += 1
        if self._hide is not None:
            data = self._hide(data)
        self._frames[number] = data
        while len(self._frames) > _KEPT_FRAMES:
            self._frames.popitem(last=False)
        return data


class _WholeStream(io.RawIOBase):
    """The stream of a blob as a seekable file; owns its reader."""

    def __init__(self, path: Path, hide: Hide | None) -> None:
        super().__init__()
        self._reader = BlobReader(path, hide)
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._reader.size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        if self._at >= self._reader.size:
            return 0
        part = self._reader._from(self._at, len(buffer))
        buffer[: len(part)] = part
        self._at += len(part)
        return len(part)

    def close(self) -> None:
        if not self.closed:
            self._reader.close()
        super().close()


def open_stream(path: Path, hide: Hide | None = None) -> BinaryIO:
    """The whole stream of a blob, from the start, as a buffered, seekable file. Raises BlobError."""
    return cast(BinaryIO, io.BufferedReader(_WholeStream(path, hide), FRAME_BYTES))
