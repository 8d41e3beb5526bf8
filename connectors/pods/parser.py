"""Log lines of the pod log endpoint: each begins with its time (`timestamps=true`), which becomes a CRI envelope.

A CRI envelope can't be mistaken for a part of the text, as a bare time before `CUDA error: ...` could.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from connectors.kube.times import parse

_STAMPED = re.compile(rb"(?m)^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)) ?")
LOST = (
    b"unable to retrieve container logs for",
    b"failed to try resolving symlinks in path",
    b"failed to create fsnotify watcher: too many open files",
)
"""How a kubelet says, in a log that it answers with, that it has none."""
MAX_LINE = 16 * 1024**2


def as_cri(lines: bytes) -> bytes:
    """Whole lines with time stamps as lines with CRI envelopes."""
    return _STAMPED.sub(rb"\1 stdout F ", lines)


def whole_lines(blocks: Iterable[bytes], cut_at: int | None = None) -> Iterator[bytes]:
    """Blocks that end with a line's end. A last line that has none gets one, unless a limit of `cut_at` bytes has cut
    it: then it is left out.
    """
    rest, total = b"", 0
    for block in blocks:
        total += len(block)
        cut = block.rfind(b"\n") + 1
        if not cut:
            rest += block
            if len(rest) < MAX_LINE:
                continue
            yield rest + b"\n"
            rest = b""
            continue
        yield rest + block[:cut]
        rest = block[cut:]
    if rest and (cut_at is None or total < cut_at):
        yield rest + b"\n"


def counted(blocks: Iterable[bytes], total: list[int]) -> Iterator[bytes]:
    """The blocks; their size is added to `total`."""
    for block in blocks:
        total[0] += len(block)
        yield block


def stamp_of(line: bytes) -> bytes:
    """The time at the start of a line, as it is written; empty when there is none."""
    found = _STAMPED.match(line)
    return found[1] if found else b""


def first_stamp(lines: bytes) -> bytes:
    found = _STAMPED.search(lines)
    return found[1] if found else b""


def last_stamp(lines: bytes) -> bytes:
    end = len(lines)
    while end > 0:
        start = lines.rfind(b"\n", 0, end - 1) + 1
        stamp = stamp_of(lines[start:end])
        if stamp:
            return stamp
        end = start
    return b""


def seconds(stamp: bytes) -> float | None:
    """A stamp in epoch seconds, to the microsecond."""
    text = stamp.decode("ascii", "replace")
    return parse(re.sub(r"(\.\d{6})\d+", r"\1", text))


def order(stamp: bytes) -> tuple[float, int]:
    """For comparing stamps to the nanosecond."""
    fraction = re.search(rb"\.(\d{1,9})", stamp)
    whole = seconds(re.sub(rb"\.\d+", b"", stamp))
    return (whole if whole is not None else 0.0, int(fraction[1].ljust(9, b"0")) if fraction else 0)


def after(lines: bytes, stamp: bytes) -> bytes:
    """The lines that are later than `stamp`; those without a time of their own go with the line before them."""
    if not stamp:
        return lines
    edge, kept, keep = order(stamp), [], False
    for line in lines.splitlines(keepends=True):
        mine = stamp_of(line)
        keep = order(mine) > edge if mine else keep
        if keep:
            kept.append(line)
    return b"".join(kept)
