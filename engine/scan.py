"""Finds every line that any rule matches, in one pass over the bytes of a stream, in bounded memory.

The scanner's databases (hyperscan) hold the patterns of every rule. They report candidates; each is confirmed with
``re`` on the cleaned line. One line has one meaning: of several rules that match it, the most specific wins.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

from engine import parts, tracebacks
from engine.blocks import (
    BACK,
    TRACEBACK,
    Block,
    Region,
    around,
    blocks,
    line_at,
    line_before,
    line_end,
    line_numbers,
    lines_after,
)
from engine.cleaning import Slice, slices
from engine.clock import Stamp, find_stamp
from engine.database import Database, scanner_forms, trigger_forms
from engine.echo import is_echo
from engine.hits import Hit, Mark, StreamScan
from engine.lines import SHOWN, Line, clean, printable, window
from engine.marks import MarkRules, Marks
from engine.model import Role, Source, Stream
from engine.neighbours import Neighbours
from engine.numbering import Numbering
from engine.patterns import to_scanner
from engine.rule import Matcher, Rule
from engine.ruleset import Ruleset
from engine.uptime import HEADER_LINES

__all__ = ["Hit", "Mark", "Scanner", "StreamScan"]

FIRST_KEPT = 3
"""Hits of one rule in one lane that are kept from the front; the last one is kept too, the others are counted."""
LATER = 4
"""Blocks that are kept so that the last hit of a kind is completed only when no other took its place soon after."""
MOST_CONTEXTS = 200
"""Hits of one rule in one stream that keep the lines around them; a diagnosis shows a few of them."""
_HANDLED = re.compile(
    r"(?i)\b(?:warn(?:ing)?|info|debug|skip(?:s|ped|ping)?|retry(?:ing)?|ignor(?:ed|ing)|caught|recovered)\b"
)
"""Words before an exception's name, in a line without traceback, which say that the program dealt with it."""
SAMPLES, SAMPLES_LATER = 40, 6
"""Lines of a region, of the first ones and of later ones, whose time stamps are read for clock and coverage."""
LAST_SAMPLES = 6
MOST_SAMPLES = 400
MOST_HEARD = 4096
FEW_SAMPLES = 20
"""Samples up to which the stamps of matched lines count as well: where most lines have none, these tell the zone."""
MOST_HOSTS = 4096
EARLY_REGIONS = 9
_TELL_TIME = (b"audit(", b"setting system clock", b"RTC time:")
"""Lines that hold the time of day beside a stamp that does not: looked for where they stand."""

_ADMITS: dict[Source, frozenset[Source]] = {
    Source.APPLOG: frozenset({Source.APPLOG, Source.SYSLOG, Source.SCHEDULER}),
    Source.SYSLOG: frozenset({Source.SYSLOG, Source.SCHEDULER}),
    Source.SCHEDULER: frozenset({Source.SCHEDULER, Source.SYSLOG}),
    Source.FLIGHT_RECORDER: frozenset({Source.FLIGHT_RECORDER}),
}
"""Which rules may match in which streams: a job's log may hold anything, a kernel log never the job's output."""


_Candidates = tuple[dict[int, set[int]], dict[int, int]]
"""Line start (in block.data) -> numbers of the patterns that may match the line; and, of very long lines, where in it
the last match ends."""


class _Matched(NamedTuple):
    """A rule that matches a line."""

    number: int
    """Of the matcher."""
    matcher: Matcher
    which: Sequence[int]
    """Places of its patterns of which the scanner found a match in the line."""
    captures: dict[str, str]
    text: str
    """The part of the line that it matched."""


class Scanner:
    """All patterns of a ruleset, compiled; scans one stream after the other."""

    def __init__(self, ruleset: Ruleset) -> None:
        self.matchers = [m for m in ruleset.line_matchers if m.spec.role is not Role.PROGRESS]
        self.progress = [m for m in ruleset.line_matchers if m.spec.role is Role.PROGRESS]
        self.exceptions = ruleset.exception_matchers
        forms = scanner_forms(ruleset)
        self.literals = [[forms[p][1] for p in m.spec.patterns] for m in self.matchers]
        self.numbering = Numbering(self.matchers)
        first = len(self.numbering.patterns)
        self.traceback_id, self.bare_id, self.parted_id = range(first, first + 3)
        own = [(_TRACEBACK, self.traceback_id), *([(_BARE, self.bare_id)] if self.exceptions else [])]
        patterns = [(p, number) for number, p in enumerate(self.numbering.patterns)]
        whole = [*((forms[p][0], n) for p, n in patterns), *((to_scanner(p), n) for p, n in own)]
        self.database = Database([*whole, *((form, self.parted_id) for form in parts.FORMS)])
        needed = trigger_forms([p for p, _ in (*patterns, *own)], self.database)
        self.triggers = Database([(form, 0) for form in (*needed, *parts.FORMS)])
        self.marks = MarkRules(self.progress, {p: form for p, (form, _) in forms.items()}) if self.progress else None

    def scan(self, stream: Stream, nodes: frozenset[str] = frozenset()) -> StreamScan:
        """Read the stream once. Raises OSError and what a damaged compressed stream raises.

        `nodes`: the attempt's, by every name that a launcher may write before a line.
        """
        return _Pass(self, stream, nodes).run()


_TRACEBACK = r"Traceback \(most recent call last\)"
_BARE = r"(?:Error|Exception): "


class _Pass:
    """One pass over one stream."""

    def __init__(self, scanner: Scanner, stream: Stream, nodes: frozenset[str]) -> None:
        self._s = scanner
        self._stream = stream
        self._admitted = _ADMITS.get(stream.source, frozenset(Source))
        self._result = StreamScan(stream=stream)
        self._kept: dict[tuple[Any, ...], list[_Kept]] = {}
        self._fresh: list[_Kept] = []
        """Kept in this block: what stands around them is still to be read."""
        self._later: deque[tuple[Block, Neighbours, list[_Kept]]] = deque()
        """The same of the blocks before it, of hits whose place the next one of their kind takes."""
        self._in_traceback: set[int] = set()
        self._candidates: set[int] = set()
        """Offsets of lines that a pattern may match, of the regions that have not ended."""
        self._shown: Counter[str] = Counter()
        self._far: dict[int, int] = {}
        """Start of a very long line -> where in it the match ends."""
        self._told: list[tuple[int, Stamp, str]] = []
        """Times of matched lines, each with the number of samples up to which it counts."""
        self._clean = lru_cache(maxsize=4096)(partial(clean, nodes=nodes))
        # Hundreds of ranks raise one exception.
        self._exception_rule = lru_cache(maxsize=256)(self._find_exception_rule)
        self._exception_meaning = lru_cache(maxsize=256)(self._find_exception_meaning)
        self._marks: Marks | None = None
        if scanner.marks is not None and stream.source is Source.APPLOG:
            self._marks = Marks(scanner.marks, self._whole_line)

    def run(self) -> StreamScan:
        result = self._result
        for block in blocks(self._stream):
            self._scan_block(block, self._find(block))
            result.bytes = block.base + block.end
            result.lines = block.line + block.lines - 1
            if not block.data.endswith(b"\n", block.start, block.end):
                result.lines += 1
        self._complete_later(0)
        for kept in self._kept.values():
            result.hits += [one.hit for one in kept]
        result.hits.sort(key=lambda hit: (hit.offset, hit.rule.id))
        result.marks = self._marks.finish() if self._marks is not None else []
        del result.samples[MOST_SAMPLES:]
        for most, stamp, text in self._told:
            if len(result.samples) < most:
                result.samples.append((stamp, text))
        return result

    def _scan_block(self, block: Block, candidates: _Candidates) -> None:
        near = Neighbours(block, self._clean)
        found, self._far = candidates
        self._candidates.update(block.base + start for start in found)
        starts = sorted(found)
        for start, number in zip(starts, line_numbers(block.data, block.start, block.line, starts), strict=True):
            self._examine(block, start, number, found[start])
        for kept in self._fresh:
            if kept.alive and not kept.is_last:
                self._complete(block, near, kept)
        waiting = [kept for kept in self._fresh if kept.alive and kept.is_last]
        if waiting:
            self._later.append((block, near, waiting))
        self._fresh.clear()
        self._complete_later(LATER)
        for region in block.regions:
            self._sample(block, region)
            if self._marks is not None:
                self._marks.take(block, region, near)
        if block.regions:
            end = block.base + block.regions[-1].end
            self._candidates = {offset for offset in self._candidates if offset >= end}
        self._in_traceback = {offset for offset in self._in_traceback if offset >= block.base + block.end}

    def _find(self, block: Block) -> _Candidates:
        """Lines of the block that a pattern may match."""
        data, start, end = block.data, block.start, block.end
        found, far = self._look(slices(data, start, end))
        if any(self._s.parted_id in numbers for numbers in found.values()):
            # Parts of a line may lie in several slices, and only together hold what is looked for.
            found, far = self._look([Slice.joined(data, start, end)])
            for numbers in found.values():
                numbers.discard(self._s.parted_id)
        return {begin: numbers for begin, numbers in found.items() if numbers}, far

    def _look(self, pieces: Iterable[Slice]) -> _Candidates:
        found: dict[int, set[int]] = {}
        far: dict[int, int] = {}
        for piece in pieces:
            # Without one of the triggers nothing matches, and nearly no line holds one.
            for begin, number, stop in piece.matches(self._s.database, piece.lines_with(self._s.triggers)):
                found.setdefault(begin, set()).add(number)
                if stop > 3 * SHOWN:
                    far[begin] = max(stop, far.get(begin, 0))
        return found, far

    def _sample(self, block: Block, region: Region) -> None:
        """Time stamps of the first and last lines of the region: for the clock and for the coverage."""
        data, result, size = block.data, self._result, region.end - region.start
        is_early = region.number < EARLY_REGIONS
        many = SAMPLES if is_early else SAMPLES_LATER
        starts = {region.start}
        for part in range(many):
            position = data.find(b"\n", region.start + size * part // many, region.end) + 1
            if 0 < position < region.end:
                starts.add(position)
        position = region.end
        for _ in range(LAST_SAMPLES if is_early or region.is_last else 0):
            position = data.rfind(b"\n", region.start, max(position - 1, region.start)) + 1
            if position <= region.start:
                break
            starts.add(position)
        if is_early and self._stream.source is not Source.APPLOG:
            for told in _TELL_TIME:
                place = data.find(told, region.start, region.end)
                if place >= 0:
                    starts.add(max(data.rfind(b"\n", 0, place) + 1, region.start))
            if region.number == 0:
                head = data[region.start : region.end].split(b"\n", HEADER_LINES)[:HEADER_LINES]
                result.head = [raw[:400].decode("utf-8", "replace") for raw in head]
        for start in sorted(starts):
            line = self._clean(line_at(block, start))
            if line.host is not None and len(result.hosts) < MOST_HOSTS:
                result.hosts.add(line.host)
            if line.stamp is None:
                continue
            if len(result.ordinary) < MOST_SAMPLES and block.base + start not in self._candidates:
                result.ordinary.append(line.stamp)
            if len(result.samples) < MOST_SAMPLES:
                result.samples += [(stamp, line.text) for stamp in line.stamps]
            result.first = result.first or line.stamp
            result.last = line.stamp
            if self._stream.source is Source.APPLOG and len(result.heard) < MOST_HEARD:
                result.heard[(*line.lane, line.host, line.mentioned_rank)] = (line, line.stamp)

    def _examine(self, block: Block, start: int, number: int, ids: set[int]) -> None:
        offset = block.base + start
        line = self._line(block, start)
        if self._s.traceback_id in ids:
            self._read_traceback(block, start, number)
        matched: list[_Matched] = []
        for matcher_id, which in self._s.numbering.matchers_of(ids).items():
            matcher = self._s.matchers[matcher_id]
            if self._admitted.isdisjoint(matcher.spec.source):
                continue
            for text in line.texts:
                captures = matcher.match(text, which)
                if captures is not None and matcher.spec.id.startswith("origin."):
                    self._keep(block, start, number, line, matcher.meaning(captures), captures, text)
                    break
                if captures is not None:
                    if not self._only_quoted(matcher, which, captures, text):
                        matched.append(_Matched(matcher_id, matcher, which, captures, text))
                    break
        if matched:
            # max() takes the first of equals: the order of the rules decides then.
            best = matched[0] if len(matched) == 1 else max(matched, key=self._weight)
            self._keep(block, start, number, line, best.matcher.meaning(best.captures), best.captures, best.text)
            if len(matched) > 1:
                self._keep_consequences(block, start, number, line, best, matched)
        elif self._s.bare_id in ids and offset not in self._in_traceback and self._stream.source is Source.APPLOG:
            self._bare_exception(block, start, number, line)

    def _keep_consequences(
        self, block: Block, start: int, number: int, line: Line, best: _Matched, matched: list[_Matched]
    ) -> None:
        """A line that tells of a consequence in the words of several families is shown under each of them."""
        families = {best.matcher.spec.id.partition(".")[0]}
        told = [one for one in matched if one.matcher.spec.id.partition(".")[0] not in families]
        if len(told) > 1:
            told.sort(key=lambda one: (-self._weight(one), one.number))
        for one in told:
            rule = one.matcher.meaning(one.captures)
            if rule.role in _CONSEQUENCES and rule.family not in families:
                families.add(rule.family)
                self._keep(block, start, number, line, rule, one.captures, one.text)

    def _only_quoted(self, matcher: Matcher, which: Sequence[int], captures: dict[str, str], text: str) -> bool:
        """A job's log quotes errors; what may be a root must have happened."""
        if self._stream.source is not Source.APPLOG or matcher.meaning(captures).role not in _MAY_BE_ROOT:
            return False
        if is_echo(text):
            return True
        # What another writer says (the kernel, the scheduler) begins a line, or stands behind its writer's name.
        first = min(found.start() for place in which if (found := matcher.regex(place).search(text)))
        head = text[:first].rstrip()
        return Source.APPLOG not in matcher.spec.source and head[-1:].isalnum()

    def _whole_line(self, block: Block, start: int) -> Line:
        """The cleaned line, put together where it was written in parts."""
        return self._clean(parts.whole(block.data, start, block.end))

    def _line(self, block: Block, start: int, end: int | None = None) -> Line:
        """The cleaned line, put together where it was written in parts, cut around its match where it is very long."""
        raw = parts.whole(block.data, start, block.end if end is None else end)
        return self._clean(window(raw, self._far[start]) if start in self._far else raw)

    def _weight(self, one: _Matched) -> int:
        """The longest literal of the patterns that match: the line says just that."""
        literals = self._s.literals[one.number]
        return max(literals[place] for place in one.which if one.matcher.regex(place).search(one.text))

    def _bare_exception(self, block: Block, start: int, number: int, line: Line) -> None:
        for text in line.texts:
            found = tracebacks.EXCEPTION.search(text)
            if not found:
                continue
            if _HANDLED.search(text, 0, found.start()) or is_echo(text):
                return
            said = text[found.start() :]
            chosen = self._exception_rule(said, "")
            if chosen is not None:
                self._keep(block, start, number, line, *chosen, said, bare=True)
            return

    def _find_exception_rule(self, text: str, frames: str) -> tuple[Rule, dict[str, str]] | None:
        for matcher in self._s.exceptions:
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
        before = line_before(block, start, start - BACK)
        if before is not None and tracebacks.IGNORED.encode() in block.data[before:start]:
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
        told_in = self._clean(line_at(block, position))
        self._keep(block, position, told[1], told_in, rule, captures, text, frames=frames)
        if rule.family != "python":
            self._keep_exception(block, position, told[1], told_in, rule, text, frames)

    def _keep_exception(
        self, block: Block, position: int, number: int, line: Line, rule: Rule, text: str, frames: str
    ) -> None:
        """That a process ended with an exception is a consequence of its own, whoever knows its words better."""
        general = self._exception_rule(text, frames)
        if general is not None and general[0].family != rule.family and general[0].role in _CONSEQUENCES:
            self._keep(block, position, number, line, *general, text)

    def _find_exception_meaning(self, text: str, frames: str) -> tuple[Rule, dict[str, str]] | None:
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
        matched: list[_Matched] = []
        for matcher_id, which in self._s.numbering.matchers_of(self._s.database.found_in(text.encode())).items():
            matcher = self._s.matchers[matcher_id]
            captures = matcher.match(text, which)
            if captures is not None and not self._admitted.isdisjoint(matcher.spec.source):
                matched.append(_Matched(matcher_id, matcher, which, captures, text))
        best = max(matched, key=self._weight, default=None)
        return (best.matcher, best.captures) if best is not None else None

    def _lines_from(self, block: Block, start: int, number: int) -> Iterator[tuple[int, int, Line]]:
        """The lines in which a traceback that begins at `start` can stand."""
        yield block.base + start, number, self._line(block, start)
        end = line_end(block, start)
        reach = min(end + TRACEBACK, len(block.data))
        for more, (start, _) in enumerate(lines_after(block, end, TRACEBACK), 1):
            yield block.base + start, number + more, self._line(block, start, reach)

    def _keep(
        self,
        block: Block,
        start: int,
        number: int,
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
        if kept and kept[-1].hit.offset == offset:
            return
        stamp, few = line.stamp, FEW_SAMPLES
        if stamp is None and "AT 20" in text:
            stamp, few = find_stamp(text), MOST_SAMPLES
        if stamp is not None and len(self._told) < (few if few == FEW_SAMPLES else 2 * MOST_SAMPLES):
            self._told.append((few, stamp, text))
        self._shown[rule.id] += 1
        hit = Hit(rule, captures, self._stream.name, self._stream.source, offset, number, text, line, stamp)
        hit.frames, hit.bare = frames, bare
        if len(kept) > FIRST_KEPT:
            dropped = kept.pop()
            dropped.alive = False
            hit.count += dropped.hit.count
        kept.append(_Kept(hit, start, self._shown[rule.id] <= MOST_CONTEXTS, len(kept) == FIRST_KEPT))
        self._fresh.append(kept[-1])

    def _complete_later(self, blocks: int) -> None:
        """Complete the hits that still stay, of all blocks but the last ones."""
        while len(self._later) > blocks:
            block, near, waiting = self._later.popleft()
            for kept in waiting:
                if kept.alive:
                    self._complete(block, near, kept)

    def _complete(self, block: Block, near: Neighbours, kept: _Kept) -> None:
        """What a hit needs of the lines around it, read when it is known to stay."""
        hit = kept.hit
        hit.text = printable(hit.text)
        if hit.rule.family == "origin" and hit.source is Source.APPLOG:
            return  # it tells where a rank or an address is, and no more is asked of it
        if hit.stamp is None:
            hit.stamp, hit.inherited = near.stamp(kept.start, hit.line, hit.cleaned.lane)
            hit.earliest_unknown = hit.inherited is not None and hit.inherited.endswith("after it")
        hit.sha256 = hashlib.sha256(line_at(block, kept.start)).hexdigest()
        if kept.shows_context:
            hit.around = around(block, kept.start)


class _Kept:
    """A hit that stays for now, and what is needed to complete it."""

    __slots__ = ("alive", "hit", "is_last", "shows_context", "start")

    def __init__(self, hit: Hit, start: int, shows_context: bool, is_last: bool) -> None:
        """`is_last`: the next hit of its kind takes its place."""
        self.hit, self.start, self.shows_context, self.is_last = hit, start, shows_context, is_last
        self.alive = True


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
