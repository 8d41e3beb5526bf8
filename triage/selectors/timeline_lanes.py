"""The lanes of the timeline: which nodes or ranks have one, and which marks and words stand on it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from triage import times
from triage.selectors.timeline_axis import LEFT, RIGHT, WIDTH, Axis
from triage.selectors.timeline_events import KINDS, Event, epoch

TOP = 46.0
LANE = 48.0
MAX_LANES = 14
NEAR = 9.0
"""Marks of one kind closer than this become one mark with a count."""
SHAPES = {"cause": "warn", "warning": "warn", "symptom": "sym", "teardown": "tear", "context": "ctx", "progress": "dot"}
_WORDS = re.compile(r"[\s,]+")
_RANKS = re.compile(r"(\d{1,7})(?:-(\d{1,7}))?")


@dataclass(frozen=True, slots=True)
class View:
    """What of the timeline is asked for."""

    by_rank: bool = False
    kinds: frozenset[str] = frozenset(KINDS)
    first: float | None = None
    last: float | None = None
    only: str = ""
    """Lanes: parts of node names, or ranks such as `8-11, 24`; empty for all."""
    page: int = 1

    @property
    def is_zoomed(self) -> bool:
        return self.first is not None or self.last is not None


WHOLE = View()


@dataclass(frozen=True, slots=True)
class Mark:
    """One thing to see and to click. `shape` is root, warn, sym, tear, ctx or dot."""

    shape: str
    x: str
    y: str
    text: str
    evidence: str | None
    hit_x: str
    hit_y: str


@dataclass(frozen=True, slots=True)
class Label:
    x: str
    y: str
    anchor: str
    text: str


@dataclass(frozen=True, slots=True)
class Lane:
    name: str
    y: str
    text_y: str
    root: bool
    marks: tuple[Mark, ...]
    labels: tuple[Label, ...]
    progress: tuple[str, ...] = ()
    """Path data: how long the lane proved to be alive."""


@dataclass(frozen=True, slots=True)
class Lanes:
    drawn: tuple[Lane, ...]
    names: frozenset[str]
    """Every lane that the view admits, on this page or not."""
    total: int
    page: int
    pages: int


@dataclass(slots=True)
class _Sorted:
    """Events by the lane on which they stand."""

    by_lane: dict[str, list[Event]] = field(default_factory=dict)
    loose: list[Event] = field(default_factory=list)


def lane_names(event: Event, by_rank: bool) -> list[str]:
    """The lanes on which an event stands; none for one of the whole job."""
    if by_rank:
        return [f"rank {rank}" for rank in event.ranks]
    return [event.node] if event.node else []


def lanes_of(
    view: View, attempt: Mapping[str, Any], shown: Sequence[Event], root: Mapping[str, Any] | None, axis: Axis
) -> Lanes:
    found = _Sorted()
    for event in shown:
        names = lane_names(event, view.by_rank)
        for name in names:
            found.by_lane.setdefault(name, []).append(event)
        if not names:
            found.loose.append(event)
    if view.by_rank:
        everyone = sorted(found.by_lane, key=lambda name: int(name[5:]))
        roots = {f"rank {rank}" for rank in root["ranks"]} if root else set()
    else:
        everyone = list(dict.fromkeys([*(attempt.get("nodes") or ()), *sorted(found.by_lane)]))
        roots = set(root["nodes"]) if root else set()
    names = _admitted(everyone, view)
    on_page, page, pages = _page(names, found, roots, view.page)
    rows = [(name, found.by_lane.get(name, [])) for name in on_page]
    if not view.only and (found.loose or not rows):
        rows.append(("no rank" if view.by_rank else "job", found.loose))
    root_refs = set(root["evidence"]) if root else set()
    root_at = epoch(root["at"]) if root else None
    drawn = tuple(
        _lane(name, TOP + LANE * (index + 0.62), events, axis, name in roots, root_refs, root_at)
        for index, (name, events) in enumerate(rows)
    )
    return Lanes(drawn, frozenset(names), len(names), page, pages)


def _admitted(names: Sequence[str], view: View) -> list[str]:
    words = [word for word in _WORDS.split(view.only.strip().lower()) if word]
    if not words:
        return list(names)
    if not view.by_rank:
        return [name for name in names if any(word in name.lower() for word in words)]
    spans = [match for word in words if (match := _RANKS.fullmatch(word.removeprefix("rank")))]
    wanted = [(int(match[1]), int(match[2] or match[1])) for match in spans]
    return [name for name in names if any(low <= int(name[5:]) <= high for low, high in wanted)]


def _page(names: Sequence[str], found: _Sorted, roots: set[str], page: int) -> tuple[list[str], int, int]:
    """As many lanes as fit: those of the root and those on which something happens first."""
    pages = max(1, -(-len(names) // MAX_LANES))
    page = min(max(1, page), pages)
    if pages == 1:
        return list(names), page, pages

    def weight(name: str) -> tuple[bool, float]:
        told = [event.at or 0.0 for event in found.by_lane.get(name, ()) if event.kind not in ("context", "progress")]
        return name not in roots, min(told, default=float("inf"))

    ranked = sorted(names, key=weight)
    kept = set(ranked[(page - 1) * MAX_LANES : page * MAX_LANES])
    return [name for name in names if name in kept], page, pages


def _lane(
    name: str, y: float, events: Sequence[Event], axis: Axis, is_root: bool, root_refs: set[str], root_at: float | None
) -> Lane:
    first_root = next(
        (e for e in events if e.kind == "cause" and (root_refs.intersection(e.refs) or e.at == root_at)), None
    )
    marks, labels = _marks(events, axis, y, first_root if root_at is not None else None)
    progress = [event.at for event in events if event.kind == "progress" and event.at is not None]
    path: tuple[str, ...] = ()
    if progress:
        stop = axis.x(max(progress))
        path = (f"M{number(axis.x(axis.start))} {number(y)}H{number(stop)}", f"M{number(stop)} {number(y - 6)}v12")
        marks = [mark for mark in marks if mark.shape != "dot" or float(mark.x) < stop - NEAR or mark.evidence]
    return Lane(name, number(y), number(y + 4), is_root, tuple(marks), tuple(labels), path)


def _marks(events: Sequence[Event], axis: Axis, y: float, first_root: Event | None) -> tuple[list[Mark], list[Label]]:
    """Events of one lane as marks, near ones of a kind joined, and the labels that fit beside them."""
    groups: list[tuple[str, float, list[Event]]] = []
    for event in sorted(events, key=lambda event: event.order):
        if event.kind in ("start", "end"):
            continue
        shape = "root" if event is first_root else SHAPES.get(event.kind, "ctx")
        x = axis.x(event.at or 0.0)
        joins = ("sym", "tear") if shape == "tear" else (shape,)
        near = next((g for g in reversed(groups) if g[0] in joins and x - g[1] < NEAR), None)
        if near:
            near[2].append(event)
        else:
            groups.append((shape, x, [event]))
    marks = [_mark(shape, x, y, group) for shape, x, group in groups]
    marks.sort(key=lambda mark: (mark.shape == "root", float(mark.x)))
    return marks, _labels(groups, y)


def _mark(shape: str, x: float, y: float, events: Sequence[Event]) -> Mark:
    evidence = next((ref for event in events for ref in event.refs), None)
    return Mark(shape, number(x), number(y), _text(events), evidence, number(x - 12), number(y - 12))


def _labels(groups: Sequence[tuple[str, float, list[Event]]], y: float) -> list[Label]:
    """Words beside the marks that have room for them."""
    labels: list[Label] = []
    taken = [(x - 14, x + 14) for shape, x, _ in groups if shape == "root"]
    for shape, x, group in sorted(groups, key=lambda g: g[0] not in ("sym", "warn")):
        if shape in ("root", "tear", "ctx"):
            continue
        words = shortened(group[0].title, 44) + (f" \u00d7 {len(group)}" if len(group) > 1 else "")
        length = len(words) * 6.3
        left = x > (LEFT + RIGHT) / 2
        begin, stop = (x - 12 - length, x - 12) if left else (x + 12, x + 12 + length)
        if begin < LEFT or stop > WIDTH or any(begin < b and a < stop for a, b in taken):
            continue
        taken.append((begin, stop))
        labels.append(Label(number(stop if left else begin), number(y - 9), "end" if left else "start", words))
    return labels


def number(value: float) -> str:
    return f"{value:.1f}"


def shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "\u2026"


def _text(events: Sequence[Event]) -> str:
    """What a mark says: time and title of the first events under it."""
    shown = [
        f"{times.clock(at)}{' or later' if event.spread else ''} {event.title}"
        for event in events[:4]
        if (at := times.parse(event.at))
    ]
    return "; ".join(shown) + (f"; and {len(events) - 4} more" if len(events) > 4 else "")
