"""Finds every line that any rule matches, in one pass over the bytes of a stream, in bounded memory.

The scanner database (hyperscan) holds every pattern of every rule. It reports candidates; each is confirmed with
``re`` on the cleaned line. One line has one meaning: of several rules that match it, the most specific wins.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any

import hyperscan

from engine import parts, tracebacks
from engine.blocks import BLOCK, Block, blocks, context, line_at, line_numbers, starts_of
from engine.clock import Stamp, find_stamp
from engine.database import Cleaner, Scanned, database_of, scanner_forms
from engine.echo import is_echo
from engine.hits import Hit, Mark, StreamScan
from engine.lines import SHOWN, Line, clean, printable, whole, window
from engine.model import Role, Source, Stream
from engine.patterns import to_scanner
from engine.rule import Matcher, Rule
from engine.ruleset import Ruleset
from engine.uptime import HEADER_LINES

__all__ = ["Hit", "Mark", "Scanner", "StreamScan"]

CALLBACK_CAP = 200_000
FIRST_KEPT = 3
"""Hits of one rule in one lane that are kept from the front; the last one is kept too, the others are counted."""
MOST_CONTEXTS = 200
"""Hits of one rule in one stream that keep the lines around them; a diagnosis shows a few of them."""
_HANDLED = re.compile(
    r"(?i)\b(?:warn(?:ing)?|info|debug|skip(?:s|ped|ping)?|retry(?:ing)?|ignor(?:ed|ing)|caught|recovered)\b"
)
"""Words before an exception's name, in a line without traceback, which say that the program dealt with it."""
SAMPLES_PER_BLOCK = 40
SAMPLES_LATER = 6
MOST_SAMPLES = 400
FEW_SAMPLES = 20
"""Samples up to which the stamps of matched lines count as well: where most lines have none, these tell the zone."""
"""Lines of a block whose time stamps are looked at for the clock and the coverage."""
PROGRESS_PER_BLOCK = 400
"""Lines of progress read of each of the first blocks; of later ones a few are enough."""
PROGRESS_BLOCKS = 8
_TELL_TIME = (b"audit(", b"setting system clock", b"RTC time:")
"""Lines that hold the time of day beside a stamp that does not: looked for where they stand."""
TAIL_OF_BLOCK = 16 << 10
PROGRESS_LATER = 4

_ADMITS: dict[Source, frozenset[Source]] = {
    Source.APPLOG: frozenset({Source.APPLOG, Source.SYSLOG, Source.SCHEDULER}),
    Source.SYSLOG: frozenset({Source.SYSLOG, Source.SCHEDULER}),
    Source.SCHEDULER: frozenset({Source.SCHEDULER, Source.SYSLOG}),
    Source.FLIGHT_RECORDER: frozenset({Source.FLIGHT_RECORDER}),
}
"""Which rules may match in which streams: a job's log may hold anything, a kernel log never the job's output."""


_Matched = tuple[int, Matcher, dict[str, str], str]
"""Number of the matcher, the matcher, its captures, the part of the line that it matched."""


class Scanner:
    """All patterns of a ruleset, compiled; scans one stream after the other."""

    def __init__(self, ruleset: Ruleset) -> None:
        self._ruleset = ruleset
        lines = [m for m in ruleset.line_matchers if m.spec.role is not Role.PROGRESS]
        self._matchers = lines
        self._progress = [m for m in ruleset.line_matchers if m.spec.role is Role.PROGRESS]
        self._exceptions = ruleset.exception_matchers
        forms = scanner_forms(ruleset)
        self._literals = [[forms[p][1] for p in m.spec.patterns] for m in lines]
        patterns = [(forms[p][0], number) for number, m in enumerate(lines) for p in m.spec.patterns]
        self._traceback_id = len(lines)
        self._bare_id = len(lines) + 1
        patterns.append((to_scanner(r"Traceback \(most recent call last\)"), self._traceback_id))
        if self._exceptions:
            patterns.append((r"(?:Error|Exception)\x3a\x20", self._bare_id))
        self._database = database_of(patterns)
        marks = [(forms[p][0], number) for number, m in enumerate(self._progress) for p in m.spec.patterns]
        self._progress_database = database_of(marks) if marks else None
        self._cleaner = Cleaner()

    def scan(self, stream: Stream, nodes: frozenset[str] = frozenset()) -> StreamScan:
        """Read the stream once. Raises OSError and what a damaged compressed stream raises.

        `nodes`: the attempt's, by every name that a launcher may write before a line.
        """
        return _Pass(self, stream, nodes).run()


class _Pass:
    """One pass over one stream."""

    def __init__(self, scanner: Scanner, stream: Stream, nodes: frozenset[str]) -> None:
        self._s = scanner
        self._stream = stream
        self._admitted = _ADMITS.get(stream.source, frozenset(Source))
        self._result = StreamScan(stream=stream)
        self._kept: dict[tuple[Any, ...], list[Hit]] = {}
        self._in_traceback: set[int] = set()
        self._shown: Counter[str] = Counter()
        self._far: dict[int, int] = {}
        """Start of a very long line -> where in it the match ends."""
        self._clean = lru_cache(maxsize=4096)(partial(clean, nodes=nodes))

    def run(self) -> StreamScan:
        last_block = None
        for block in blocks(self._stream):
            self._scan_block(block)
            last_block = block
            self._result.bytes = block.base + block.end
            self._result.lines = block.line + block.lines - 1
            if block.data[block.end - 1 : block.end] not in (b"\n", b""):
                self._result.lines += 1
        if last_block is not None:
            self._result.last_offset = last_block.base + last_block.end
        for kept in self._kept.values():
            self._result.hits.extend(kept)
        self._result.hits.sort(key=lambda hit: (hit.offset, hit.rule.id))
        return self._result

    def _scan_block(self, block: Block) -> None:
        scanned = self._s._cleaner.scannable(block)
        self._far.clear()
        found = self._candidates(scanned, block)
        self._sample(block, found)
        if found:
            starts = sorted(found)
            numbers = line_numbers(block, starts)
            for start, number in zip(starts, numbers, strict=True):
                self._examine(block, start, number, found[start])
        if self._s._progress_database is not None and self._stream.source is Source.APPLOG:
            self._progress(block, scanned)

    def _candidates(self, scanned: Scanned, block: Block) -> dict[int, set[int]]:
        """Line start (in block.data) -> numbers of the patterns that may match the line."""
        ends: list[tuple[int, int]] = []

        def on_match(number: int, _from: int, end: int, _flags: int, _context: Any) -> bool | None:
            ends.append((end, number))
            return True if len(ends) >= CALLBACK_CAP else None

        try:
            self._s._database.scan(scanned, match_event_handler=on_match)
        except hyperscan.ScanTerminated:
            self._result.capped = True
        found: dict[int, set[int]] = {}
        if isinstance(scanned, memoryview):
            data, base = block.data, block.start
            for end, number in ends:
                start = max(data.rfind(b"\n", 0, base + end - 1) + 1, base)
                found.setdefault(start, set()).add(number)
                if base + end - start > 3 * SHOWN:
                    self._far[start] = base + end - start
            return found
        # The cleaned bytes have the same line ends: map by line index.
        raw_starts = starts_of(block.data, block.start, block.end)
        clean_starts = starts_of(scanned, 0, len(scanned))
        for end, number in ends:
            index = bisect_right(clean_starts, end - 1) - 1
            if index < len(raw_starts):
                found.setdefault(raw_starts[index], set()).add(number)
                if end - clean_starts[index] > 3 * SHOWN:
                    self._far[raw_starts[index]] = end - clean_starts[index]
        return found

    def _sample(self, block: Block, found: dict[int, set[int]]) -> None:
        """Time stamps of the first and last lines of the block: for the clock and for the coverage."""
        starts = {block.start}
        size = block.end - block.start
        many = SAMPLES_PER_BLOCK if block.base < PROGRESS_BLOCKS * BLOCK else SAMPLES_LATER
        for part in range(many):
            position = block.data.find(b"\n", block.start + size * part // many, block.end) + 1
            if 0 < position < block.end:
                starts.add(position)
        position = block.end
        for _ in range(6):
            position = block.data.rfind(b"\n", block.start, max(position - 1, block.start)) + 1
            if position <= block.start:
                break
            starts.add(position)
        is_early = block.base < PROGRESS_BLOCKS * BLOCK and self._stream.source is not Source.APPLOG
        for told in _TELL_TIME if is_early else ():
            place = block.data.find(told, block.start, block.end)
            if place >= 0:
                starts.add(max(block.data.rfind(b"\n", 0, place) + 1, block.start))
        if is_early and block.base == 0:
            head = block.data[block.start : block.end].split(b"\n", HEADER_LINES)[:HEADER_LINES]
            self._result.head = [raw[:400].decode("utf-8", "replace") for raw in head]
        for start in sorted(starts):
            line = self._clean(line_at(block, start))
            if start not in found and line.stamp is not None and len(self._result.ordinary) < 400:
                self._result.ordinary.append(line.stamp)
            if line.host is not None and len(self._result.hosts) < 4096:
                self._result.hosts.add(line.host)
            for stamp in line.stamps:
                if len(self._result.samples) < MOST_SAMPLES:
                    self._result.samples.append((stamp, line.text))
            if line.stamp is not None:
                self._result.first = self._result.first or line.stamp
                self._result.last = line.stamp

    def _examine(self, block: Block, start: int, number: int, ids: set[int]) -> None:
        offset = block.base + start
        raw = line_at(block, start)
        line = self._line(block, start)
        if self._s._traceback_id in ids:
            self._read_traceback(block, start, number)
        matched: list[_Matched] = []
        for matcher_id in sorted(ids):
            if matcher_id >= self._s._traceback_id:
                continue
            matcher = self._s._matchers[matcher_id]
            if self._admitted.isdisjoint(matcher.spec.source):
                continue
            for text in line.texts:
                captures = matcher.match(text)
                if captures is not None and matcher.spec.id.startswith("origin."):
                    self._keep(block, start, number, raw, line, matcher.meaning(captures), captures, text)
                    break
                if captures is not None:
                    if not self._only_quoted(matcher, captures, text):
                        matched.append((matcher_id, matcher, captures, text))
                    break
        if matched:
            # max() takes the first of equals: the order of the rules decides then.
            best = matched[0] if len(matched) == 1 else max(matched, key=lambda m: self._weight(m[0], m[3]))
            _, matcher, captures, text = best
            self._keep(block, start, number, raw, line, matcher.meaning(captures), captures, text)
            if len(matched) > 1:
                self._keep_consequences(block, start, number, raw, line, best, matched)
        elif self._s._bare_id in ids and offset not in self._in_traceback and self._stream.source is Source.APPLOG:
            self._bare_exception(block, start, number, raw, line)

    def _keep_consequences(
        self, block: Block, start: int, number: int, raw: bytes, line: Line, best: _Matched, matched: list[_Matched]
    ) -> None:
        """A line that tells of a consequence in the words of several families is shown under each of them."""
        families = {best[1].spec.id.partition(".")[0]}
        for _, matcher, captures, text in sorted(matched, key=lambda m: (-self._weight(m[0], m[3]), m[0])):
            rule = matcher.meaning(captures)
            if rule.role in _CONSEQUENCES and rule.family not in families:
                families.add(rule.family)
                self._keep(block, start, number, raw, line, rule, captures, text)

    def _only_quoted(self, matcher: Matcher, captures: dict[str, str], text: str) -> bool:
        """A job's log quotes errors; what may be a root must have happened."""
        if self._stream.source is not Source.APPLOG or matcher.meaning(captures).role not in _MAY_BE_ROOT:
            return False
        if is_echo(text):
            return True
        # What another writer says (the kernel, the scheduler) begins a line, or stands behind its writer's name.
        first = min(found.start() for regex in matcher.regexes if (found := regex.search(text)))
        head = text[:first].rstrip()
        return Source.APPLOG not in matcher.spec.source and head[-1:].isalnum()

    def _line(self, block: Block, start: int) -> Line:
        """The cleaned line, put together where it was written in parts, cut around its match where it is very long."""
        raw = parts.whole(block.data, start)
        return self._clean(window(raw, self._far[start]) if start in self._far else raw)

    def _weight(self, matcher_id: int, text: str) -> int:
        matcher = self._s._matchers[matcher_id]
        return max(
            literal
            for literal, regex in zip(self._s._literals[matcher_id], matcher.regexes, strict=True)
            if regex.search(text)
        )

    def _bare_exception(self, block: Block, start: int, number: int, raw: bytes, line: Line) -> None:
        for text in line.texts:
            found = tracebacks.EXCEPTION.search(text)
            if not found:
                continue
            if _HANDLED.search(text, 0, found.start()) or is_echo(text):
                return
            said = text[found.start() :]
            chosen = self._exception_rule(said, "")
            if chosen is not None:
                self._keep(block, start, number, raw, line, *chosen, said, bare=True)
            return

    def _exception_rule(self, text: str, frames: str) -> tuple[Rule, dict[str, str]] | None:
        for matcher in self._s._exceptions:
            captures = matcher.match_exception(text, frames)
            if captures is not None:
                return matcher.meaning(captures), captures
        return None

    def _read_traceback(self, block: Block, start: int, number: int) -> None:
        if block.base + start in self._in_traceback:
            return
        found = tracebacks.read(self._lines_from(block, start, number))
        if found is None:
            return
        self._in_traceback.update(found.offsets)
        before = block.data.rfind(b"\n", 0, max(start - 1, 0)) + 1
        if tracebacks.IGNORED.encode() in block.data[before:start]:
            return
        last = self._exception_meaning(found.text, found.frames)
        if last is None:
            return
        told, (rule, captures), text, frames = (found.offset, found.line), last, found.text, found.frames
        if found.origin and found.origin != found.text:
            first = self._exception_meaning(found.origin, found.origin_frames)
            if first is not None and _first_tells_more(first[0], rule):
                told, (rule, captures) = (found.origin_offset, found.origin_line), first
                text, frames = found.origin, found.origin_frames
            else:
                captures = {**captures, "origin": found.origin}
        position = told[0] - block.base
        raw = line_at(block, position)
        self._keep(block, position, told[1], raw, self._clean(raw), rule, captures, text, frames=frames)
        if rule.family != "python":
            self._keep_exception(block, position, told[1], raw, rule, text, frames)

    def _keep_exception(
        self, block: Block, position: int, number: int, raw: bytes, rule: Rule, text: str, frames: str
    ) -> None:
        """That a process ended with an exception is a consequence of its own, whoever knows its words better."""
        general = self._exception_rule(text, frames)
        if general is not None and general[0].family != rule.family and general[0].role in _CONSEQUENCES:
            self._keep(block, position, number, raw, self._clean(raw), *general, text)

    def _exception_meaning(self, text: str, frames: str) -> tuple[Rule, dict[str, str]] | None:
        """What an exception means: by the exception rules, or by a line rule that knows its text better."""
        chosen = self._exception_rule(text, frames)
        if chosen is None or not chosen[0].id.startswith("python."):
            return chosen
        line_hit = self._line_meaning(text)
        if line_hit is not None and line_hit[0].spec.role is not Role.CONTEXT:
            return line_hit[0].meaning(line_hit[1]), line_hit[1]
        return chosen

    def _line_meaning(self, text: str) -> tuple[Matcher, dict[str, str]] | None:
        """The line rule that fits the last line of a traceback best, if any."""
        ids: set[int] = set()
        self._s._database.scan(text.encode(), match_event_handler=lambda n, *_: ids.add(n))
        best: tuple[int, Matcher, dict[str, str]] | None = None
        for matcher_id in sorted(ids):
            if matcher_id >= self._s._traceback_id:
                continue
            matcher = self._s._matchers[matcher_id]
            captures = matcher.match(text)
            if captures is not None and not self._admitted.isdisjoint(matcher.spec.source):
                weight = self._weight(matcher_id, text)
                if best is None or weight > best[0]:
                    best = (weight, matcher, captures)
        return (best[1], best[2]) if best else None

    def _lines_from(self, block: Block, start: int, number: int) -> Iterator[tuple[int, int, Line]]:
        while start < len(block.data):
            yield block.base + start, number, self._line(block, start)
            start = block.data.find(b"\n", start) + 1
            number += 1
            if start == 0:
                return

    def _keep(
        self,
        block: Block,
        start: int,
        number: int,
        raw: bytes,
        line: Line,
        rule: Rule,
        captures: dict[str, str],
        text: str,
        *,
        frames: str = "",
        bare: bool = False,
    ) -> None:
        rank = captures.get("rank") or line.rank
        place = [captures.get(name) for name in ("device", "peer", "node", "job")]
        said = text[:80] if frames or bare else ""
        key = (rule.id, rank, line.pod, line.local_rank, line.host, *place, said, frames[-200:])
        kept = self._kept.setdefault(key, [])
        offset = block.base + start
        if kept and kept[-1].offset == offset:
            return
        hit = Hit(
            rule=rule,
            captures=captures,
            stream=self._stream.name,
            source=self._stream.source,
            offset=offset,
            line=number,
            text=printable(text),
            cleaned=line,
            stamp=line.stamp,
            frames=frames,
            bare=bare,
        )
        few = FEW_SAMPLES
        if hit.stamp is None and "AT 20" in text:
            hit.stamp, few = find_stamp(text), MOST_SAMPLES
        if hit.stamp is not None and len(self._result.samples) < few:
            self._result.samples.append((hit.stamp, text))
        if hit.stamp is None:
            hit.stamp, hit.inherited = self._neighbour_stamp(block, start, number, line.lane)
            if hit.inherited and hit.inherited.endswith("after it"):
                hit.earliest_unknown = True
        hit.sha256 = hashlib.sha256(raw).hexdigest()
        self._shown[rule.id] += 1
        if self._shown[rule.id] <= MOST_CONTEXTS:
            hit.before, hit.after = context(block, start)
        if len(kept) > FIRST_KEPT:
            hit.count += kept.pop().count
        kept.append(hit)

    def _neighbour_stamp(
        self, block: Block, start: int, number: int, lane: tuple[Any, ...], *, backward_only: bool = False
    ) -> tuple[Stamp | None, str | None]:
        """The stamp of the nearest line before it, of the same rank if there is one, else behind it."""
        other: tuple[Stamp, str] | None = None
        # A line without a rank's mark goes with its nearest neighbour, whoever wrote that.
        unmarked = not any(part is not None for part in lane)
        position, at = start, number
        for _ in range(40):
            if position <= 0:
                break
            position = block.data.rfind(b"\n", 0, position - 1) + 1
            at -= 1
            line = self._clean(line_at(block, position))
            if line.stamp is not None:
                said = f"line {at}"
                if line.lane == lane or unmarked:
                    return line.stamp, said
                other = other or (line.stamp, f"{said} of another rank")
        if other is not None or backward_only:
            return other or (None, None)
        position, at = start, number
        for _ in range(20):
            position = block.data.find(b"\n", position) + 1
            at += 1
            if position == 0 or position >= len(block.data):
                break
            line = self._clean(line_at(block, position))
            if line.stamp is not None:
                return line.stamp, f"line {at}, which comes after it"
        return None, None

    def _progress(self, block: Block, scanned: Scanned) -> None:
        """The first lines of progress of the block, and the last ones."""
        found: set[tuple[int, int]] = set()
        limit = PROGRESS_PER_BLOCK if block.base < PROGRESS_BLOCKS * BLOCK else PROGRESS_LATER
        self._collect_progress(scanned, 0, limit, found)
        if len(found) >= limit:
            found |= self._last_progress(scanned, limit)
        if not isinstance(scanned, memoryview):
            raw_starts = starts_of(block.data, block.start, block.end)
            clean_starts = starts_of(scanned, 0, len(scanned))
            indexed = {(bisect_right(clean_starts, end - 1) - 1, number) for end, number in found}
            places = {(raw_starts[index], number) for index, number in indexed if index < len(raw_starts)}
        else:
            places = {(max(block.data.rfind(b"\n", 0, block.start + end - 1) + 1, block.start), n) for end, n in found}
        ordered = sorted(places)
        numbers = line_numbers(block, [start for start, _ in ordered])
        seen = -1
        for (start, matcher_id), number in zip(ordered, numbers, strict=True):
            if start != seen:
                seen = start if self._mark(block, start, number, self._s._progress[matcher_id]) else seen

    def _last_progress(self, scanned: Scanned, limit: int) -> set[tuple[int, int]]:
        """The last lines of progress, looked for from the end in growing parts."""
        size = TAIL_OF_BLOCK
        while True:
            part = bytes(scanned[-size:])
            begin = len(scanned) - len(part) + (part.find(b"\n") + 1 if size < len(scanned) else 0)
            last: set[tuple[int, int]] = set()
            self._collect_progress(scanned[begin:], begin, CALLBACK_CAP, last)
            if last or size >= len(scanned):
                return set(sorted(last)[-limit:])
            size *= 8

    def _collect_progress(self, scanned: Scanned, shift: int, limit: int, found: set[tuple[int, int]]) -> None:
        def on_match(number: int, _from: int, end: int, _flags: int, _context: Any) -> bool | None:
            found.add((shift + end, number))
            return True if len(found) >= limit else None

        database: Any = self._s._progress_database
        with contextlib.suppress(hyperscan.ScanTerminated):
            database.scan(scanned, match_event_handler=on_match)

    def _mark(self, block: Block, start: int, number: int, matcher: Matcher) -> bool:
        line = self._line(block, start)
        for text in reversed(line.texts):
            captures = matcher.match(text)
            if captures is None:
                continue
            # Of a line of progress without a time only "not before" is safe to say.
            stamp = line.stamp or self._neighbour_stamp(block, start, number, line.lane, backward_only=True)[0]
            named = whole(captures.get("rank", ""))
            rank = line.rank if named is None else named
            before, after = context(block, start)
            self._result.marks.append(
                Mark(
                    stamp,
                    block.base + start,
                    number,
                    rank,
                    printable(text)[:300],
                    captures,
                    matcher.meaning(captures),
                    line.stamp is not None,
                    before,
                    after,
                    hashlib.sha256(line_at(block, start)).hexdigest(),
                )
            )
            return True
        return False


_MAY_BE_ROOT = (Role.CAUSE, Role.EITHER)
_CONSEQUENCES = (Role.SYMPTOM, Role.TEARDOWN)
_VAGUE = ("python.runtime-error", "python.exception", "python.os-error", "python.thread-exception")
_WHILE_CLEANING_UP = (*_VAGUE, "python.code-error", "python.data-lookup")
_COPIES = (
    "pytorch.worker-exception",
    "pytorch.spawn-failed",
    "python.child-failed",
    "ray.task-error",
    "ray.actor-died",
)
"""They repeat an exception of another process, whose own traceback follows."""


def _first_tells_more(first: Rule, last: Rule) -> bool:
    """Of two chained exceptions: does the first one tell what went wrong rather than the last?

    The last one does as a rule: it was raised on purpose, from the first. The first one does when the last is vague,
    when the last only reports a lost peer (a barrier in an exception handler), or was an accident of cleaning up.
    """
    if first.role in _MAY_BE_ROOT:
        return last.role not in _MAY_BE_ROOT or (last.id in _VAGUE and first.id not in _VAGUE)
    return first.role in (Role.SYMPTOM, Role.TEARDOWN) and first.id not in _COPIES and last.id in _WHILE_CLEANING_UP
