"""What the viewer of a log shows: lines with their marks, folded runs, the strip above, ways to more lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.http import HttpRequest
from django.urls import reverse
from django.utils.http import urlencode

from triage.models import Stream
from triage.selectors import stream_bytes, streams
from triage.selectors.evidence import EvidenceItem, Story
from triage.selectors.rule_marks import RuleMark, rule_marks
from triage.selectors.stream_search import MAX_LINE, Findings, Query
from triage.text import cut, decode, printable

AROUND = 25
"""Lines before and after the one that was asked for."""
STEP = 50
"""Lines that "more" adds."""
LONG = 2_000
"""Characters of a line that are shown at first."""
PART = 32_768
"""Bytes of a very long line that are shown at once."""
RULER = 1000.0
FOLD = 6
"""Lines without a match that are worth a fold."""
NEAR = 2
"""Lines beside a match that never fold."""

_RANGE = re.compile(r"[Ll]?([0-9]{1,15})(?:\s*(?:-|\u2013|to)\s*[Ll]?([0-9]{1,15}))?")


@dataclass(frozen=True)
class LinePart:
    """Where in a very long line one reads: bytes, from 0."""

    start: int
    end: int
    total: int

    @property
    def before(self) -> int | None:
        return max(0, self.start - PART) if self.start else None

    @property
    def after(self) -> int | None:
        return self.end if self.end < self.total else None


@dataclass(frozen=True)
class ShownLine:
    """One line of a log as the page shows it."""

    number: int
    offset: int
    text: str
    left: int
    """Characters left out; 1 when the rest has not even been counted."""
    kind: str
    """cause (the one that was asked for), hit (evidence, a rule or the search matched), noise."""
    item: EvidenceItem | None
    rule: RuleMark | None = None
    explains: bool = False
    """Whether this line carries the explanation of its rule for the lines after it."""
    explained_at: int = 0
    """The line that does."""
    in_range: bool = False
    found: bool = False
    spans: tuple[tuple[int, int], ...] = ()
    part: LinePart | None = None

    @property
    def pieces(self) -> list[tuple[str, bool]]:
        """The text in pieces, each with whether the search matched it."""
        pieces, at = [], 0
        for start, end in self.spans:
            if start > at:
                pieces.append((self.text[at:start], False))
            pieces.append((self.text[start:end], True))
            at = end
        return [*pieces, (self.text[at:], False)] if at < len(self.text) or not pieces else pieces


@dataclass(frozen=True)
class Run:
    """Neighbouring lines that are shown, or folded because nothing in them matched."""

    lines: list[ShownLine] = field(default_factory=list)
    folded: bool = False

    @property
    def first(self) -> int:
        return self.lines[0].number

    @property
    def last(self) -> int:
        return self.lines[-1].number


def here(story: Story | None, stream: Stream) -> dict[int, EvidenceItem]:
    """Evidence of this stream by line; of several on one line, the one that counts most."""
    found: dict[int, EvidenceItem] = {}
    for evidence in story.trail.values() if story else ():
        if evidence.stream_raw == stream.name and (evidence.line not in found or evidence.is_root):
            found[evidence.line] = evidence
    return found


def shown(
    lines: Sequence[streams.StreamLine],
    evidence: Mapping[int, EvidenceItem],
    target: int | None = None,
    *,
    source: str = "",
    picked: tuple[int, int] | None = None,
    query: Query | None = None,
    found: Findings | None = None,
) -> list[ShownLine]:
    """Lines made printable, with all that is known of each. With `source` the engine's rules look at them too."""
    rules = rule_marks(lines, source) if source else {}
    first, last = picked or (0, -1)
    matching = found.among(lines[0].number, lines[-1].number) if found and lines else set()
    explained: dict[str, int] = {}
    made = []
    for line in lines:
        text, left = cut(printable(line.text), LONG)
        item, rule, hit = evidence.get(line.number), rules.get(line.number), line.number in matching
        kind = "cause" if line.number == target else "hit" if item or hit or (rule and rule.tells) else "noise"
        at = explained.setdefault(rule.rule, line.number) if rule else 0
        made.append(
            ShownLine(
                line.number, line.offset, text, left or int(line.cut), kind, item, rule,
                explains=at == line.number, explained_at=at, in_range=first <= line.number <= last, found=hit,
                spans=tuple(query.spans(text)) if query and hit else (),
            )
        )  # fmt: skip
    return made


def folds(lines: Sequence[ShownLine]) -> list[Run]:
    """Runs of lines, those without a match folded; nothing folds where nothing matched."""
    if not any(line.kind == "hit" for line in lines):
        return [Run(list(lines))] if lines else []
    near: set[int] = set()
    for index, line in enumerate(lines):
        if line.kind != "noise" or line.in_range:
            near.update(range(index - NEAR, index + NEAR + 1))
    runs: list[Run] = []
    for index, line in enumerate(lines):
        plain = index not in near
        if not runs or runs[-1].folded != plain:
            runs.append(Run([], plain))
        runs[-1].lines.append(line)
    return joined(Run(run.lines, run.folded and len(run.lines) >= FOLD) for run in runs)


def joined(runs: Iterable[Run]) -> list[Run]:
    """Neighbouring runs of a kind as one."""
    made: list[Run] = []
    for run in runs:
        if made and not made[-1].folded and not run.folded:
            made[-1].lines.extend(run.lines)
        else:
            made.append(run)
    return made


def with_part(
    request: HttpRequest, stream: Stream, lines: list[ShownLine], target: int | None, query: Query | None
) -> list[ShownLine]:
    """A very long target shows the part that `?from=` names, or the one in which the search matched."""
    start = number(request, "from")
    line = next((line for line in lines if line.number == target), None)
    if line is None:
        return lines
    if start is None and query and line.found and line.left and not line.spans:
        raw, _ = stream_bytes.line_part(stream, line.number, 0, MAX_LINE)
        end = query.first_end(raw)
        start = max(0, end - 400) if end is not None and end > LONG else None
    if start is None:
        return lines
    raw, total = stream_bytes.line_part(stream, line.number, start, PART)
    part = LinePart(min(start, total), min(start, total) + len(raw), total)
    text = printable(decode(raw))
    spans = tuple(query.spans(text)) if query and line.found else ()
    return [replace(one, text=text, left=0, part=part, spans=spans) if one is line else one for one in lines]


def more(request: HttpRequest, pk: int, stream: Stream, window: streams.StreamWindow) -> dict[str, Any]:
    """Addresses of more lines both ways: of the fragment, and of this page with a wider window."""
    base = reverse("stream-lines", args=[pk, stream.name])
    rest = kept_part(request)
    ways: dict[str, Any] = {"up": None, "down": None}
    if window.has_before:
        first = max(1, window.first - STEP)
        ways["up"] = {
            "fragment": f"{base}?first={first}&last={window.first - 1}&way=up{rest}",
            "page": f"?first={first}&last={window.last}{rest}",
            "from": first,
            "to": window.first - 1,
        }
    if window.has_after:
        last = min(window.total, window.last + STEP)
        ways["down"] = {
            "fragment": f"{base}?first={window.last + 1}&last={last}&way=down{rest}",
            "page": f"?first={window.first}&last={last}{rest}",
            "from": window.last + 1,
            "to": last,
        }
    return ways


KEPT = ("q", "regex", "case", "since", "for")
"""What an address of the viewer passes on to the next: the search, and what lines are picked for."""


def kept_part(request: HttpRequest) -> str:
    """What this address passes on, to be added to another one: `&q=...`; empty when there is nothing."""
    kept = {key: request.GET[key] for key in KEPT if request.GET.get(key)}
    return f"&{urlencode(kept)}" if kept else ""


def ruler(
    window: streams.StreamWindow,
    evidence: Mapping[int, EvidenceItem],
    target: int | None,
    found: Findings | None = None,
) -> dict[str, Any]:
    """The whole stream as a strip: what of it is shown, where the evidence lies, where the search matched."""
    total = max(window.total, 1)
    x = RULER * max(window.first - 1, 0) / total
    width = max(RULER * (window.last - window.first + 1) / total, 3.0)

    def place(line: int) -> str:
        return f"{min(RULER * (line - 1) / total, RULER - 4):.1f}"

    ticks = [
        {"x": place(line), "line": line, "now": line == target, "root": item.is_root}
        for line, item in sorted(evidence.items())[:500]
    ]
    matches = sorted({int(RULER * (line - 1) / total) // 2 * 2 for line in found.lines}) if found else []
    return {"x": f"{min(x, RULER - width):.1f}", "width": f"{width:.1f}", "ticks": ticks, "matches": matches}


def number(request: HttpRequest, key: str) -> int | None:
    """A whole number of the address; None for anything else."""
    value = request.GET.get(key, "")
    return int(value) if value.isascii() and value.isdecimal() and len(value) < 16 else None


def picked_range(request: HttpRequest) -> tuple[int, int] | None:
    """The lines that `?lines=120-131` or `?lines=120` picks."""
    return typed_range(request.GET.get("lines", ""))


def typed_range(text: str) -> tuple[int, int] | None:
    """`120-131`, `L120-L131`, `120 to 131` or one number as lines; None for anything else."""
    match = _RANGE.fullmatch(text.replace(",", "").strip())
    if match is None:
        return None
    low, high = sorted(int(value) for value in (match[1], match[2] or match[1]))
    return max(low, 1), max(high, 1)
