"""Lines of progress of one log: all of a short one, as few of each part of a long one as it is long.

They are taken from the beginning and the end of each region. The longer the log turns out to be, the fewer of each are
kept, of the earlier regions too: what was logged in an hour weighs the same wherever it stands.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from engine.blocks import Around, Block, Region, around, line_at, line_ends
from engine.cleaning import Slice, slices
from engine.clock import Stamp
from engine.database import Database
from engine.hits import Mark
from engine.lines import Line, printable, whole
from engine.neighbours import Neighbours
from engine.numbering import Numbering
from engine.patterns import to_scanner
from engine.rule import Matcher, Rule

KEPT = (320, 24, 12, 6, 4, 3)
"""Lines of progress kept of either end of a region: of a log of one region, of up to 3, 7, 15, 31, of more."""
TAIL = 16 << 10
"""Bytes at the end of a log's first region that are looked through at once, from its end on."""
TAILS = (1 << 10, 4 << 10, 32 << 10, 256 << 10, 2 << 20, 16 << 20)
"""The same of a later region, until there is a match; the fewest are enough if all that are wanted stand there."""
PIECE = 16 << 10
MOST_MATCHES = 100_000
ALIKE = 2
"""Patterns that may find progress in one line of a log's only region, where lines and not matches count."""

T = TypeVar("T")
Match = tuple[int, int, int]
"""Where the line begins, where in the block's bytes or the cleaned ones the match ends, the pattern's number."""


class _Spot(NamedTuple):
    """A line in which progress may be told."""

    offset: int
    number: int
    line: Line
    stamp: Stamp | None
    around: Around
    sha256: str
    numbers: list[int]
    """Of the patterns that were found in it."""
    skipped: bool
    """Lines of progress before it are left out."""


class MarkRules:
    """The rules of progress, compiled for scans."""

    def __init__(self, matchers: Sequence[Matcher], forms: Mapping[str, str]) -> None:
        """`forms`: pattern -> its form for the scanner."""
        self._matchers, self._numbering = matchers, Numbering(matchers)
        self.database = Database([(forms[p], number) for number, p in enumerate(self._numbering.patterns)])
        excluding = [(n, to_scanner(m.spec.exclude)) for n, m in enumerate(matchers) if m.spec.exclude]
        self._excluding = Database([(form, n) for n, form in excluding], once_each=True) if excluding else None

    def read(self, texts: Sequence[str], numbers: Sequence[int]) -> tuple[str, dict[str, str], Rule] | None:
        """The last text of a line that tells of progress, what it captures and means. `numbers`: of the patterns that
        were found in the line.
        """
        excluded: dict[str, set[int]] = {}
        for number, which in self._numbering.matchers_of(numbers).items():
            matcher = self._matchers[number]
            for text in reversed(texts):
                captures = matcher.captures(text, which)
                if captures is None:
                    continue
                if text not in excluded:
                    # Most lines hold no word that any rule excludes: the scanner tells in no time, `re` takes long.
                    excluded[text] = self._excluding.found_in(text.encode()) if self._excluding is not None else set()
                if number not in excluded[text] or not matcher.excludes(text):
                    return text, captures, matcher.meaning(captures)
        return None


class Marks:
    """Collects the lines of progress of one stream, region by region."""

    def __init__(self, rules: MarkRules, cleaned: Callable[[Block, int], Line]) -> None:
        """`cleaned`: the line of a block that begins somewhere."""
        self._rules, self._database = rules, rules.database
        self._cleaned = cleaned
        self._spots: list[list[_Spot]] = []
        """A list a region."""
        self._kept = KEPT[0]
        self._waiting: tuple[Block, Region, Neighbours, set[Match] | None, int | None] | None = None
        """The last region; how many of its lines are needed turns out when the next one has been read. In a log's first
        region no line is looked for before, since so many are needed of a log that has no other.
        """

    def take(self, block: Block, region: Region, near: Neighbours) -> None:
        """The next region of the stream, which ends in this block."""
        level = (region.number + 1).bit_length() - 1
        kept = KEPT[min(level, len(KEPT) - 1)]
        found, tail = self._found(block, region, kept, all_count=False) if level else (None, None)
        if kept < self._kept:
            self._kept = kept
            self._spots = [_thinned(spots, kept) for spots in self._spots]
        self._settle()
        self._waiting = block, region, near, found, tail

    def _found(self, block: Block, region: Region, most: int, *, all_count: bool) -> tuple[set[Match], int | None]:
        """The first and last matches of the region, and the first line behind what is left out between them."""
        found = _first_matches(self._database, slices(block.data, region.start, region.end, PIECE), most)
        if len(found) < most:
            return found, None
        last = _last_matches(self._database, block.data, region, most, all_count=all_count)
        ends = _lines_of(last)
        tail = min(ends) if ends and ends.isdisjoint(_lines_of(found)) else None
        return found | last, tail

    def _found_lines(self, block: Block, region: Region, most: int) -> set[Match]:
        """The matches in so many of the region's first and last lines, and in some more."""
        found: set[Match] = set()
        for piece in slices(block.data, region.start, region.end, PIECE):
            found |= piece.first_matches(self._database, MOST_MATCHES)
            if len(_lines_of(found)) > most:
                break
        last: set[Match] = set()
        for _, last in _from_the_end(self._database, block.data, region, itertools.count(TAIL, TAIL)):
            if len(_lines_of(last)) > most:
                break
        return found | last

    def finish(self) -> list[Mark]:
        self._settle()
        found, skipped = list[Mark](), False
        for spots in self._spots:
            for spot in spots:
                skipped = skipped or spot.skipped
                mark = self._mark(spot, skipped)
                if mark is not None:
                    found.append(mark)
                    skipped = False
        return found

    def _settle(self) -> None:
        """Read the lines of the region that waits, as many as are needed by now."""
        if self._waiting is None:
            return
        block, region, near, found, tail = self._waiting
        self._waiting = None
        if found is None and self._kept == KEPT[0]:
            found, tail = self._found(block, region, KEPT[0] * ALIKE, all_count=True)
        elif found is None:
            found = self._found_lines(block, region, self._kept)
        told: dict[int, list[int]] = {}
        for start, number in sorted({(start, number) for start, _, number in found}):
            told.setdefault(start, []).append(number)
        counted, number, spots = region.start, region.line, list[_Spot]()
        starts, after_gap = list(told), {tail}
        if len(starts) > 2 * self._kept:
            after_gap.add(starts[-self._kept])
        for start in _ends(starts, self._kept):
            if start - counted <= region.end - start:
                number += line_ends(block.data, counted, start)
            else:
                number = region.end_line - line_ends(block.data, start, region.end)
            counted = start
            line = self._cleaned(block, start)
            stamp = line.stamp
            if stamp is None and (before := near.stamp_before(start, number, line.lane)):
                stamp, _ = before  # only "not before" is safe to say
            digest = hashlib.sha256(line_at(block, start)).hexdigest()
            spots.append(
                _Spot(
                    block.base + start,
                    number,
                    line,
                    stamp,
                    around(block, start),
                    digest,
                    told[start],
                    start in after_gap,
                )
            )
        self._spots.append(spots)

    def _mark(self, spot: _Spot, skipped: bool) -> Mark | None:
        line = spot.line
        read = self._rules.read(line.texts, spot.numbers)
        if read is None:
            return None
        text, captures, rule = read
        named = whole(captures.get("rank", ""))
        return Mark(
            spot.stamp,
            spot.offset,
            spot.number,
            line.rank if named is None else named,
            printable(text)[:300],
            captures,
            rule,
            line.stamp is not None,
            spot.around,
            spot.sha256,
            skipped,
        )


def _ends(lines: list[T], most: int) -> list[T]:
    return lines if len(lines) <= 2 * most else lines[:most] + lines[-most:]


def _thinned(spots: list[_Spot], most: int) -> list[_Spot]:
    if len(spots) <= 2 * most:
        return spots
    return [*spots[:most], spots[-most]._replace(skipped=True), *spots[len(spots) - most + 1 :]]


def _first_matches(database: Database, pieces: Iterable[Slice], limit: int) -> set[Match]:
    """Matches from the start on, up to a number."""
    found: set[Match] = set()
    for piece in pieces:
        found |= piece.first_matches(database, limit - len(found))
        if len(found) >= limit:
            break
    return found


def _last_matches(database: Database, data: bytes, region: Region, limit: int, *, all_count: bool) -> set[Match]:
    """The last matches of the region; unless they all count, those in its last bytes do if there is one."""
    found: set[Match] = set()
    tails = itertools.count(TAIL, TAIL) if all_count else TAILS
    for size, found in _from_the_end(database, data, region, tails):
        if len(found) >= limit or (found and not all_count and size > TAILS[0]):
            break
    return set(sorted(found)[-limit:])


def _from_the_end(
    database: Database, data: bytes, region: Region, tails: Iterable[int]
) -> Iterator[tuple[int, set[Match]]]:
    """How many of the region's last bytes were looked through, and all matches in their whole lines."""
    end, found = region.end, set[Match]()
    for size in tails:
        begin = max(region.end - size, region.start)
        if begin > region.start:
            begin = data.find(b"\n", begin, end) + 1 or end
        for piece in slices(data, begin, end):
            found |= piece.first_matches(database, MOST_MATCHES)
        end = begin
        yield size, found
        if size >= region.end - region.start:
            return


def _lines_of(found: set[Match]) -> set[int]:
    """Where the lines begin."""
    return {start for start, _, _ in found}
