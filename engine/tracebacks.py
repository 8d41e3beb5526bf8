"""Puts a Python traceback together out of the lines of one rank, whatever stands between them."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from engine.lines import Line

START = "Traceback (most recent call last)"
MAX_LINES = 600
"""Lines looked at for one traceback."""

_FRAME = re.compile(r'\s*File "([^"]+)", line (\d+)(?:, in (\S.*))?')
IGNORED = "Exception ignored in"
_CHAIN = ("During handling of the above exception", "The above exception was the direct cause")
EXCEPTION = re.compile(
    r"(?<![\w.])(?P<name>(?:[A-Za-z_]\w{0,60}\.){0,8}(?:[A-Z]\w{0,80}"
    r"(?:Error|Exception|Interrupt|Exit|Failure|Failed|Timeout|Warning|Full|Empty|Exceeded)"
    r"|[A-Z]\w{0,80}(?:OutOfMemory|Overflow|StopIteration|NotFound|Timedout)\w{0,80}"
    r"|StopIteration|BaseException))(?::(?= |$)|$)"
)
"""The last line of a traceback: a class name, then its message."""
_LAST_LINE = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?::\s|:?$)")

_GATHERED = re.compile(r"(?:\w+\.)*(?:CheckpointException|\w*ExceptionGroup|MultiError|AggregateException)\b")
"""An exception that others were gathered in: it only lists them, in the lines behind it."""


class Traceback(msgspec.Struct):
    """One traceback: the exception that was raised last, and the first one of its chain."""

    text: str
    """``KeyError: 'input_ids'``"""
    frames: str
    """``path/file.py:LINE in function`` a line, outermost first."""
    offset: int
    line: int
    """Where the exception's line stands."""
    origin: str | None = None
    """Text of the first exception of a chain."""
    origin_frames: str = ""
    origin_offset: int = 0
    origin_line: int = 0
    offsets: list[int] = []
    """Offsets of every line that belongs to it."""


def read(lines: Iterable[tuple[int, int, Line]]) -> Traceback | None:
    """Read one traceback from (offset, line number, line) that begin with its first line. None when it has no end in
    sight.
    """
    frames: list[str] = []
    chain: list[tuple[str, int, int, list[str]]] = []
    offsets: list[int] = []
    lane = None
    prefix = ""
    open_block = linked = False
    patience = 4
    ignored = False
    for looked, (offset, number, line) in enumerate(lines):
        if looked > MAX_LINES:
            break
        if lane is None:
            lane = line.lane
        elif line.lane != lane:
            continue
        ended = False
        for text in line.texts:
            text = text[len(prefix) :] if prefix and text.startswith(prefix) else text
            stripped = text.strip()
            if chain and stripped.startswith(IGNORED):
                ignored = True
            if ignored:
                # What a destructor raised afterwards belongs to the clean-up, up to its last line.
                ended_here = bool(EXCEPTION.match(stripped))
                if ended_here:
                    offsets.append(offset)
                ended = ended_here
                break
            if START in text:
                if chain and not open_block and not (linked or stripped.startswith("Original ")):
                    ended = True  # another traceback, of another process that writes to the same file
                    break
                if not chain and not frames:
                    prefix = text[: text.find(START)] or (f"{line.named}: " if line.named else "")
                if chain and not linked:
                    chain.clear()  # "Original Traceback": the copy before it tells nothing
                open_block, linked, frames, patience = True, False, [], 4
            elif not stripped or stripped.startswith(_CHAIN):
                if stripped:
                    linked, patience = bool(chain), 4
            elif open_block:
                frame = _FRAME.match(text)
                if frame:
                    frames.append(f"{frame[1]}:{frame[2]}" + (f" in {frame[3]}" if frame[3] else ""))
                elif text[:1] in " \t" and not EXCEPTION.match(stripped):
                    continue
                elif frames and _LAST_LINE.match(stripped):
                    chain.append((stripped, offset, number, frames))
                    open_block, patience = False, 3
                else:
                    patience -= 1
            elif chain and _GATHERED.match(chain[-1][0]) and EXCEPTION.match(stripped):
                chain.append((stripped, offset, number, frames))
            else:
                patience -= 1
            if patience <= 0:
                ended = True
                break
        if ended:
            break
        offsets.append(offset)
    if not chain:
        return None
    text, offset, number, frames = chain[-1]
    told = Traceback(text, "\n".join(frames), offset, number, offsets=offsets)
    if len(chain) > 1:
        told.origin, told.origin_offset, told.origin_line, first_frames = chain[0]
        told.origin_frames = "\n".join(first_frames)
        if told.origin == text:
            # Raised again by a pool or a future: where it was raised first tells more.
            told.frames = "\n".join([*frames, *first_frames])
    return told
