"""The last line that a silent rank wrote on its own behalf."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence

import msgspec

from engine.blocks import Block, blocks
from engine.lines import Line, clean
from engine.model import Source, Stream

TAIL = 16 * 2**20
"""Bytes at the end of a log that are looked at: a rank that everyone waits for fell silent not long ago."""
_OTHERS_WORDS = re.compile(
    rb"NCCL |ProcessGroup|TCPStore|[Ww]atchdog|frame #|Exception raised|terminate called"
    rb"|what\(\):|Traceback|srun:|slurmstepd"
)
"""What libraries say in a rank's name."""
_ANY_LINE = re.compile(rb"(?m)^[^\n]+")


class Words(msgspec.Struct, frozen=True):
    stream: Stream
    offset: int
    number: int
    line: Line


def last_words(ranks: Iterable[int], streams: Sequence[Stream]) -> dict[int, Words]:
    """What each of the ranks said last. Every log is read once, from its end only the last part is kept."""
    wanted, found = set(ranks), dict[int, list[Words]]()
    for stream in streams:
        if stream.source is not Source.APPLOG or (stream.rank is not None and stream.rank not in wanted):
            continue
        tail = _tail(stream)
        for rank in sorted(wanted if stream.rank is None else {stream.rank}):
            said = _said_by(rank, stream, tail)
            if said is not None:
                found.setdefault(rank, []).append(said)
    return {rank: max(said, key=_weight) for rank, said in found.items()}


def _weight(words: Words) -> tuple[bool, float, int, str]:
    """A rank's own log before a merged one, then what was said later."""
    stamp = words.line.stamp
    return (words.stream.rank is not None, stamp.naive if stamp else -1.0, words.offset, words.stream.name)


def _tail(stream: Stream) -> list[Block]:
    """The last blocks of a stream, from the end."""
    kept: deque[Block] = deque()
    size = 0
    for block in blocks(stream):
        kept.append(block)
        size += block.end - block.start
        while size - (kept[0].end - kept[0].start) >= TAIL:
            first = kept.popleft()
            size -= first.end - first.start
    return list(reversed(kept))


def _said_by(rank: int, stream: Stream, tail: Sequence[Block]) -> Words | None:
    own = re.compile(rb"(?m)^(?: {0,6}%d: |[^\n]{0,80}\[rank%d\]|[^\n]{0,80}\b[Rr]ank[ =:]?%d\b)[^\n]*" % ((rank,) * 3))
    pattern = _ANY_LINE if stream.rank == rank else own
    for block in tail:
        last = None
        for match in pattern.finditer(block.data, block.start, block.end):
            if not _OTHERS_WORDS.search(match[0]):
                last = match
        if last is not None:
            number = block.line + block.data.count(b"\n", block.start, last.start())
            return Words(stream, block.base + last.start(), number, clean(last[0]))
    return None
