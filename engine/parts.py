"""Long lines that a container runtime wrote in parts: ``<time> stderr P first``, ``<time> stderr F rest``.

A part is at most 16 KB, so a message may lie across two of them, and a line of the other stream may stand between.
"""

from __future__ import annotations

import re

_PART = re.compile(rb"(?m)^\d{4}-\d\d-\d\dT[\d:.]{8,18}(?:Z|[+-]\d\d:\d\d) (stdout|stderr) ([FP])(?: |$)")
LONGEST = 2 << 20
"""Bytes up to which the parts of one line are put together."""


def any_part(data: bytes) -> bool:
    """Is there a line in `data` that goes on in another one?"""
    return b" P " in data and any(found[2] == b"P" for found in _PART.finditer(data))


def join(data: bytes) -> bytes:
    """Every line whole where its first part stands, and an empty line for each further part."""
    out = data.split(b"\n")
    open_at: dict[bytes, tuple[int, list[bytes]]] = {}
    for index, line in enumerate(out):
        found = _PART.match(line)
        if not found:
            continue
        name, last = found[1], found[2] == b"F"
        if name in open_at:
            first, pieces = open_at[name]
            pieces.append(line[found.end() :])
            out[index] = b""
            if last:
                out[first] = b"".join(pieces)
                del open_at[name]
        elif not last:
            open_at[name] = (index, [line])
    for first, pieces in open_at.values():
        out[first] = b"".join(pieces)
    return b"\n".join(out)


def whole(data: bytes, start: int) -> bytes:
    """The line that begins at `start`, with its further parts; as it is when it has none."""
    end = data.find(b"\n", start)
    line = data[start : end if end >= 0 else len(data)]
    found = _PART.match(line)
    if not found or found[2] == b"F":
        return line
    pieces, size = [line], len(line)
    while end >= 0 and size < LONGEST:
        start = end + 1
        end = data.find(b"\n", start)
        more = data[start : end if end >= 0 else len(data)]
        part = _PART.match(more)
        if part and part[1] == found[1]:
            pieces.append(more[part.end() :])
            size += len(more)
            if part[2] == b"F":
                break
    return b"".join(pieces)


def cut_before_open(data: bytes, cut: int) -> int:
    """A place not behind `cut` where no line is between two of its parts; `cut` must be behind a line end."""
    low = max(data.rfind(b"\n", 0, max(cut - LONGEST, 0)) + 1, 0)
    if b" P " not in data[max(cut - (64 << 10), 0) : cut]:
        return cut
    open_at: dict[bytes, int] = {}
    for found in _PART.finditer(data, low, cut):
        if found[2] == b"F":
            open_at.pop(found[1], None)
        else:
            open_at.setdefault(found[1], found.start())
    return min(open_at.values(), default=cut)
