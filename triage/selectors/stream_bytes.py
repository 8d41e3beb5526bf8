"""Bytes of a stream as they are stored: parts of one long line, and ranges of lines to keep."""

from __future__ import annotations

from collections.abc import Iterator

from triage.blobs import BlobError
from triage.models import Stream
from triage.selectors.streams import StreamGone
from triage.services.sources import blob_store

BLOCK = 1 << 20


def line_part(stream: Stream, number: int, start: int, length: int) -> tuple[bytes, int]:
    """`length` bytes of line `number` from byte `start` of it on, and the whole line's length. Raises StreamGone."""
    if not stream.blob:
        raise StreamGone(f"{stream.name}: no longer kept")
    try:
        with blob_store().reader(stream.blob) as reader:
            number = max(1, min(number, reader.lines))
            begin, end = reader.line_start(number), reader.line_start(number + 1)
            if end > begin and reader.read_range(end - 1, 1) == b"\n":
                end -= 1
            start = max(0, min(start, end - begin))
            return reader.read_range(begin + start, min(length, end - begin - start)), end - begin
    except BlobError as error:
        raise StreamGone(f"{stream.name}: {error}") from None


def line_range(stream: Stream, first: int, last: int) -> Iterator[bytes]:
    """The bytes of lines `first` to `last`, block by block. Raises StreamGone before the first block."""
    if not stream.blob:
        raise StreamGone(f"{stream.name}: no longer kept")
    try:
        reader = blob_store().reader(stream.blob)
        begin, end = reader.line_start(first), reader.line_start(last + 1)
    except BlobError as error:
        raise StreamGone(f"{stream.name}: {error}") from None

    def blocks() -> Iterator[bytes]:
        with reader:
            for offset in range(begin, end, BLOCK):
                yield reader.read_range(offset, min(BLOCK, end - offset))

    return blocks()
