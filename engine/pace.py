"""Progress where no rule knows the job's way of writing it: lines of one shape in which a number keeps growing.

Every trainer writes its steps in its own words. What they have in common is many lines of the same shape, with words of
training in them, and a counter that rises from each to the next.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from itertools import pairwise

import msgspec

from engine.blocks import Around, Block, around, blocks, line_at
from engine.clock import Stamp
from engine.hits import Mark, StreamScan
from engine.lines import clean, printable
from engine.model import Role, Stream
from engine.rule import Rule, build_rule

LEAST_LINES = 8
MOST_LINES = 20_000
"""Lines of one stream that are looked at."""
MOST_MARKS = 400
RISING = 0.9
"""Share of neighbouring lines whose counter must rise."""

_NUMBER = re.compile(r"(?<![A-Za-z_])[-+]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?")
_WORK = re.compile(
    r"(?i)(?:^|[^a-z])(?:global_?)?(?:step|iter|iteration|it|epoch|batch|loss|acc|auc|tok(?:en)?s?|samples?|train(?:ing)?|"
    r"progress|eta|lr|learning_?rate|score|grad|speed|throughput|images?|examples?|seen|ppl|reward|updates?|time)(?:[^a-z]|$)"
)
_NOT_WORK = re.compile(
    r"(?i)wait|retr(?:y|ies)|attempt|time-?out|timed out|fail|error|heartbeat|connect|still|warn|exception|killed|"
    r"download|NCCL (?:INFO|WARN)|tokeniz|\brdzv|rendezvous|traceback|frame #"
)


class _Seen(msgspec.Struct):
    offset: int
    line: int
    rank: int | None
    text: str
    stamp: Stamp | None
    numbers: list[float]
    around: Around
    sha256: str


def progress_rule() -> Rule:
    """What a counted line means; not in a pack because no one pattern finds it."""
    return build_rule(
        {
            "id": "progress.counted",
            "title": "A counter of the job's log goes up",
            "role": Role.PROGRESS,
            "guide": "Look at the lines of this shape before and after.",
            "does_not_prove": "That the counter counts training steps.",
        },
        "active",
    )


def count(scan: StreamScan) -> list[Mark]:
    """Marks of progress of one stream by the shape of its lines; [] when nothing counts up."""
    matched = {hit.offset for hit in scan.hits}
    shapes: dict[tuple[object, ...], list[_Seen]] = {}
    for one, lane in _lines(scan.stream, matched):
        shape = _NUMBER.sub("#", one.text)[:60]
        shapes.setdefault((lane, shape), []).append(one)
    best: tuple[int, int, list[_Seen], int] | None = None
    for seen in shapes.values():
        column = _rising_column(seen)
        if column is not None and (best is None or (len(seen), -seen[0].offset) > best[:2]):
            best = (len(seen), -seen[0].offset, seen, column)
    if best is None:
        return []
    _, _, seen, column = best
    rule = progress_rule()
    kept = seen if len(seen) <= MOST_MARKS else seen[: MOST_MARKS // 2] + seen[-MOST_MARKS // 2 :]
    return [
        Mark(
            one.stamp,
            one.offset,
            one.line,
            one.rank,
            one.text[:300],
            {"step": f"{one.numbers[column]:.0f}"},
            rule,
            one.stamp is not None,
            one.around,
            one.sha256,
            skipped=len(seen) > MOST_MARKS and index == MOST_MARKS // 2,
        )
        for index, one in enumerate(kept)
    ]


def _lines(stream: Stream, matched: set[int]) -> Iterable[tuple[_Seen, tuple[object, ...]]]:
    """Lines that could be progress: no rule matched them, they speak of work and hold a number."""
    looked = 0
    for block in blocks(stream):
        start, number = block.start, block.line
        while start < block.end and looked < MOST_LINES:
            offset = block.base + start
            raw = line_at(block, start)
            if 8 <= len(raw) <= 2000 and offset not in matched and any(48 <= byte <= 57 for byte in raw[:400]):
                looked += 1
                line = clean(raw)
                text = printable(line.text)[:400]
                if _WORK.search(text) and not _NOT_WORK.search(text):
                    yield _seen(block, start, number, raw, line.rank, text, line.stamp), line.lane
            start = block.data.find(b"\n", start) + 1 or block.end
            number += 1


def _seen(block: Block, start: int, number: int, raw: bytes, rank: int | None, text: str, stamp: Stamp | None) -> _Seen:
    numbers = [float(found.replace(",", "")) for found in _NUMBER.findall(text)[:8]]
    digest = hashlib.sha256(raw).hexdigest()
    return _Seen(block.base + start, number, rank, text, stamp, numbers, around(block, start), digest)


def _rising_column(seen: list[_Seen]) -> int | None:
    """Which number of the lines counts up: whole, rising nearly always, and ending far above its start."""
    if len(seen) < LEAST_LINES:
        return None
    for column in range(min(len(one.numbers) for one in seen)):
        values = [one.numbers[column] for one in seen]
        if any(value != int(value) or abs(value) > 1e15 for value in values):
            continue
        rises = sum(after > before for before, after in pairwise(values))
        falls = sum(after < before for before, after in pairwise(values))
        if rises >= RISING * (len(values) - 1) and falls <= 0.05 * len(values) and values[-1] > values[0]:
            return column
    return None
