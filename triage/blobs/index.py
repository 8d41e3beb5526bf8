"""The index at the end of a blob: for each frame where it begins, in the stream, in lines and in the file."""

from __future__ import annotations

import struct
import sys
from array import array
from dataclasses import dataclass, field

_SKIPPABLE = 0x184D2A5D
"""One of the sixteen magic numbers that the zstd format sets aside for frames to be passed over."""
_MARK = b"FLX1"
_HEAD = struct.Struct("<II")
_TOTALS = struct.Struct("<QQQ")
_TAIL = struct.Struct("<Q4s")
TAIL_BYTES = _TAIL.size
MAX_FRAMES = (2**32 - 1 - _TOTALS.size - _TAIL.size) // 24


class BlobError(ValueError):
    """A blob can't be read: it is gone, cut short or not one of ours."""


@dataclass
class Index:
    """Frame `n` begins at byte `offsets[n]` of the stream, after `newlines[n]` line ends, at byte `places[n]` of the
    file.
    """

    size: int = 0
    """Bytes of the stream."""
    lines: int = 0
    """Lines of the stream; a last one without a line end counts."""
    end: int = 0
    """Byte of the file after the last frame."""
    offsets: array[int] = field(default_factory=lambda: array("Q"))
    newlines: array[int] = field(default_factory=lambda: array("Q"))
    places: array[int] = field(default_factory=lambda: array("Q"))

    def pack(self) -> bytes:
        """The index as a skippable zstd frame."""
        columns = b"".join(_little_endian(column).tobytes() for column in (self.offsets, self.newlines, self.places))
        payload = _TOTALS.size + len(columns) + _TAIL.size
        totals = _TOTALS.pack(self.size, self.lines, self.end)
        return _HEAD.pack(_SKIPPABLE, payload) + totals + columns + _TAIL.pack(len(self.offsets), _MARK)

    @staticmethod
    def packed_size(tail: bytes) -> int:
        """Bytes of the whole index frame, by the last TAIL_BYTES of a blob. Raises BlobError."""
        if len(tail) != TAIL_BYTES:
            raise BlobError("blob is cut short")
        count, mark = _TAIL.unpack(tail)
        if mark != _MARK or count > MAX_FRAMES:
            raise BlobError("blob has no index: cut short or damaged")
        return int(_HEAD.size + _TOTALS.size + 24 * count + _TAIL.size)

    @classmethod
    def unpack(cls, frame: bytes) -> Index:
        """The index from its frame. Raises BlobError."""
        if len(frame) < _HEAD.size + _TOTALS.size + _TAIL.size or _HEAD.unpack_from(frame)[0] != _SKIPPABLE:
            raise BlobError("blob has no index: cut short or damaged")
        size, lines, end = _TOTALS.unpack_from(frame, _HEAD.size)
        count = _TAIL.unpack(frame[-TAIL_BYTES:])[0]
        columns, at = [], _HEAD.size + _TOTALS.size
        for _ in range(3):
            column = array("Q")
            column.frombytes(frame[at : at + 8 * count])
            columns.append(_little_endian(column))
            at += 8 * count
        return cls(size, lines, end, *columns)


def _little_endian(column: array[int]) -> array[int]:
    if sys.byteorder == "big":
        column = array("Q", column)
        column.byteswap()
    return column
