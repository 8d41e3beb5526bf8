"""The last line that a silent rank wrote on its own behalf."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator

import msgspec

from engine.blocks import Block, blocks, line_end, line_ends, starts_of
from engine.cleaning import Slice
from engine.database import Database
from engine.lines import Line, clean
from engine.model import Stream

TAIL = 16 * 2**20
"""Bytes at the end of a log that are looked at: a rank that everyone waits for fell silent not long ago."""
FIRST_LOOK = 64 << 10
_OTHERS_WORDS = re.compile(
    rb"NCCL |ProcessGroup|TCPStore|[Ww]atchdog|frame #|Exception raised|terminate called"
    rb"|what\(\):|Traceback|srun:|slurmstepd"
)
"""What libraries say in a rank's name."""
_ANY_LINE = re.compile(rb"[^\n]")


class Words(msgspec.Struct, frozen=True):
    stream: Stream
    offset: int
    number: int
    line: Line


def last_words(logs: Iterable[tuple[Stream, Collection[int]]]) -> dict[int, Words]:
    """What each rank said last. Each log comes with the ranks that may speak in it; it is read once, and looked at from
    its end on as far as is needed.
    """
    found = dict[int, list[Words]]()
    for stream, ranks in logs:
        for rank, words in _said(ranks, stream).items():
            found.setdefault(rank, []).append(words)
    return {rank: max(said, key=_weight) for rank, said in found.items()}


def _weight(words: Words) -> tuple[bool, float, int, str]:
    """A rank's own log before a merged one, then what was said later."""
    stamp = words.line.stamp
    return (words.stream.rank is not None, stamp.naive if stamp else -1.0, words.offset, words.stream.name)


def _said(ranks: Collection[int], stream: Stream) -> dict[int, Words]:
    own = {rank: _ANY_LINE if stream.rank == rank else _own_line(rank) for rank in sorted(ranks)}
    mentions = Database([form for rank in own for form in _mentions(rank)], kept=False)
    found: dict[int, Words] = {}
    for block in _tail(stream):
        for begin, end in _backwards(block):
            starts: dict[int, set[int]] = {}
            if stream.rank in own:
                starts[stream.rank] = set(starts_of(block.data, begin, end))
            else:
                for start, rank, _ in Slice(block.data, begin, end, None).matches(mentions):
                    starts.setdefault(rank, set()).add(start)
            for rank in own.keys() - found.keys():
                for start in sorted(starts.get(rank, ()), reverse=True):
                    line = block.data[start : line_end(block, start)]
                    if own[rank].match(line) and not _OTHERS_WORDS.search(line):
                        number = block.line + line_ends(block.data, block.start, start)
                        found[rank] = Words(stream, block.base + start, number, clean(line))
                        break
            if len(found) == len(own):
                return found
    return found


def _own_line(rank: int) -> re.Pattern[bytes]:
    return re.compile(rb" {0,6}%d: |[^\n]{0,80}\[rank%d\]|[^\n]{0,80}\b[Rr]ank[ =:]?%d\b" % ((rank,) * 3))


def _mentions(rank: int) -> tuple[tuple[str, int], ...]:
    """For the scanner: what stands in a line that names the rank."""
    return (
        (rf"(?m)^\x20{{0,6}}{rank}\x3a\x20", rank),
        (rf"\[rank{rank}\]", rank),
        (rf"\b[Rr]ank[\x20=\x3a]?{rank}\b", rank),
    )


def _tail(stream: Stream) -> list[Block]:
    """The last blocks of a stream, from the end, without what stands before its last TAIL bytes."""
    kept: deque[Block] = deque()
    for block in blocks(stream):
        kept.append(block)
        low = block.base + block.end - TAIL
        while kept[0].base + kept[0].end <= low:
            kept.popleft()
    if kept and kept[0].base + kept[0].start < low:
        first = kept[0]
        cut = first.data.find(b"\n", low - first.base - 1, first.end) + 1 or first.end
        lines = line_ends(first.data, first.start, cut)
        kept[0] = msgspec.structs.replace(first, start=cut, line=first.line + lines)
    return list(reversed(kept))


def _backwards(block: Block) -> Iterator[tuple[int, int]]:
    """Whole lines of the block, from its end, ever more of them at once."""
    end, size = block.end, FIRST_LOOK
    while end > block.start:
        begin = block.data.rfind(b"\n", block.start, max(end - size, block.start)) + 1 or block.start
        yield begin, end
        end, size = begin, size * 4
