"""The timeline of a diagnosis as a picture: which marks stand where. Geometry only; a template draws it as SVG.

One lane a node. The axis changes its scale once, drawn as a break, when what matters takes a small part of the attempt:
most attempts run for hours and die within seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from triage import times

WIDTH = 904.0
LEFT = 96.0
RIGHT = 888.0
TOP = 46.0
LANE = 48.0
MAX_LANES = 14
NEAR = 9.0
"""Marks of one kind closer than this become one mark with a count."""
GAP = 5.0
STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800)
SHAPES = {"cause": "warn", "symptom": "sym", "teardown": "tear", "context": "ctx", "progress": "dot"}


@dataclass(frozen=True, slots=True)
class Tick:
    x: str
    text: str


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
class Picture:
    height: str
    bottom: str
    plot_height: str
    ticks_y: str
    notes_y: str
    lanes: tuple[Lane, ...]
    ticks: tuple[Tick, ...]
    notes: tuple[Label, ...]
    """What each part of a broken axis spans."""
    breaks: tuple[str, ...]
    root: Label | None
    root_x: str | None
    end: Label | None
    end_x: str | None
    stall: tuple[str, str] | None
    """x and width of the time without progress."""
    stall_text: Label | None
    hidden_lanes: int
    left_out: int
    """Entries outside the picture: long before the attempt, or without a time."""
    description: str
    axis: Axis


@dataclass(slots=True)
class Axis:
    """Where a moment (epoch seconds) stands, in the picture's own units."""

    start: float
    end: float
    turn: float | None = None
    """Where the scale changes; None when it doesn't."""
    middle: float = field(default=LEFT + (RIGHT - LEFT) * 0.34)

    def x(self, at: float) -> float:
        at = min(max(at, self.start), self.end)
        if self.turn is None:
            return LEFT + (RIGHT - LEFT) * (at - self.start) / max(self.end - self.start, 1e-9)
        if at <= self.turn:
            return LEFT + (self.middle - GAP / 2 - LEFT) * (at - self.start) / max(self.turn - self.start, 1e-9)
        first = self.middle + GAP / 2
        return first + (RIGHT - first) * (at - self.turn) / max(self.end - self.turn, 1e-9)


def _n(value: float) -> str:
    return f"{value:.1f}"


def _epoch(value: Any) -> float | None:
    moment = times.parse(value)
    return moment.timestamp() if moment else None


def _axis(start: float, end: float, focus: float | None) -> Axis:
    span = end - start
    if focus is None or span <= 0:
        return Axis(start, end)
    turn = focus - max((end - focus) * 0.35, span * 0.002, 1.0)
    if end - turn > 0.3 * span or turn <= start:
        return Axis(start, end)
    return Axis(start, end, turn)


def _ticks(axis: Axis) -> list[Tick]:
    parts = [(axis.start, axis.end, RIGHT - LEFT)]
    if axis.turn is not None:
        parts = [(axis.start, axis.turn, axis.middle - LEFT), (axis.turn, axis.end, RIGHT - axis.middle)]
    found = []
    for start, end, width in parts:
        span = max(end - start, 1e-9)
        step = next((s for s in STEPS if span / s * 72 <= width), None)
        if step is None:
            step = int(span / 4 / 604800 + 1) * 604800
        shift = _shift(start) if step >= 3600 else 0
        at = (int(start + shift) // step + 1) * step - shift
        last = -100.0
        while at < end:
            x = axis.x(at)
            moment = times.parse(float(at))
            assert moment is not None
            text = times.clock(moment) if step < 60 else times.minute(moment) if step < 86400 else times.day(moment)
            if x - last >= 60 and RIGHT - x >= 4:
                found.append(Tick(_n(x), text))
                last = x
            at += step
    return found


def _shift(at: float) -> int:
    """Seconds east of UTC in the zone in which times are told, so that ticks stand at its whole hours and days."""
    moment = times.parse(at)
    offset = times.told(moment).utcoffset() if moment else None
    return int(offset.total_seconds()) if offset else 0


def _lanes(nodes: Sequence[str], entries: Sequence[Mapping[str, Any]], root_nodes: set[str]) -> tuple[list[str], int]:
    """The names of the lanes, in the attempt's order, and how many nodes have none."""
    active: dict[str, int] = {}
    for entry in entries:
        node = entry.get("node")
        if node and entry["kind"] not in ("start", "end"):
            active.setdefault(node, len(active))
    names = list(dict.fromkeys([*nodes, *sorted(active)]))
    hidden = 0
    if len(names) > MAX_LANES:
        first = sorted((n for n in names if n in active), key=lambda n: (n not in root_nodes, active[n]))
        kept = set(first[:MAX_LANES] or names[:MAX_LANES])
        hidden = len(names) - len(kept)
        names = [name for name in names if name in kept]
    return names, hidden


def _text(entries: Sequence[Mapping[str, Any]]) -> str:
    """What a mark says: time and title of the first entries under it."""
    shown = [f"{times.clock(at)} {e['title']}" for e in entries[:4] if (at := times.parse(e["at"]))]
    return "; ".join(shown) + (f"; and {len(entries) - 4} more" if len(entries) > 4 else "")


def _marks(entries: Sequence[Mapping[str, Any]], axis: Axis, y: float, is_root: Any) -> tuple[list[Mark], list[Label]]:
    """Entries of one lane as marks, near ones of a kind joined, and the labels that fit beside them."""
    groups: list[tuple[str, float, list[Mapping[str, Any]]]] = []
    for entry in entries:
        at = _epoch(entry["at"])
        assert at is not None
        shape = "root" if is_root(entry) else SHAPES.get(entry["kind"], "ctx")
        x = axis.x(at)
        joins = ("sym", "tear") if shape == "tear" else (shape,)
        near = next((g for g in reversed(groups) if g[0] in joins and x - g[1] < NEAR), None)
        if near:
            near[2].append(entry)
        else:
            groups.append((shape, x, [entry]))
    marks, labels = [], []
    taken: list[tuple[float, float]] = []
    for shape, x, group in sorted(groups, key=lambda g: (g[0] != "root", g[0] not in ("sym", "warn"))):
        ref = next((ref for entry in group for ref in entry["evidence"]), None)
        marks.append(Mark(shape, _n(x), _n(y), _text(group), ref, _n(x - 12), _n(y - 12)))
        if shape in ("root", "tear", "ctx"):
            continue
        title = group[0]["title"]
        words = (title if len(title) <= 44 else title[:43] + "\u2026") + (
            f" \u00d7 {len(group)}" if len(group) > 1 else ""
        )
        length = len(words) * 6.3
        left = x > (LEFT + RIGHT) / 2
        begin, stop = (x - 12 - length, x - 12) if left else (x + 12, x + 12 + length)
        if begin < LEFT or stop > WIDTH or any(begin < b and a < stop for a, b in taken):
            continue
        taken.append((begin, stop))
        labels.append(Label(_n(stop if left else begin), _n(y - 9), "end" if left else "start", words))
    marks.sort(key=lambda mark: (mark.shape == "root", float(mark.x)))
    return marks, labels


def _description(entries: Sequence[Mapping[str, Any]], root_at: float | None, end_at: float | None, lanes: int) -> str:
    parts = [f"{lanes} lanes."]
    for kind in ("cause", "symptom"):
        some = [e for e in entries if e["kind"] == kind]
        if some and (first := times.parse(some[0]["at"])):
            parts.append(f"{len(some)} {kind} marks, the first at {times.clock(first)}: {some[0]['title']}.")
    if root_at is not None and (moment := times.parse(root_at)):
        parts.append(f"The root stands at {times.clock(moment)}.")
    if end_at is not None and (moment := times.parse(end_at)):
        parts.append(f"The attempt ends at {times.clock(moment)}.")
    return " ".join(parts)


def _stall(progress: Sequence[float], later: Sequence[float], end: float, axis: Axis) -> tuple[float, float] | None:
    """From the last sign of progress to the first thing reported after it (or the end), when that can be seen."""
    if not progress:
        return None
    since = max(progress)
    until = min((at for at in later if at > since), default=end)
    return (since, until) if axis.x(until) - axis.x(since) > 30 and until - since > 20 else None


def picture(contract: Mapping[str, Any]) -> Picture | None:
    """The picture of one diagnosis (the contract as plain containers); None when no entry has a time."""
    attempt = contract["attempt"].get("attempt", contract["attempt"])
    root = contract.get("root_cause")
    root_refs = set(root["evidence"]) if root else set()
    root_nodes = set(root["nodes"]) if root else set()
    root_at = _epoch(root["at"]) if root else None
    timed = [e for e in contract["timeline"] if _epoch(e["at"]) is not None]
    timed.sort(key=lambda e: (_epoch(e["at"]), e["kind"]))
    if not timed:
        return None
    ats = [_epoch(e["at"]) or 0.0 for e in timed]
    start = _epoch(attempt.get("started_at")) or ats[0]
    end_at = _epoch(attempt.get("ended_at"))
    inner = [at for at, e in zip(ats, timed, strict=True) if e["kind"] != "context"] or ats
    start = min([start, *[at for at in inner if at >= start - 3600]])
    end = max(end_at or ats[-1], *[at for at in inner if end_at is None or at <= end_at + 600], start + 1)
    timed = [e for e, at in zip(timed, ats, strict=True) if start <= at <= end]
    first = {kind: next((_epoch(e["at"]) for e in timed if e["kind"] == kind), None) for kind in ("cause", "symptom")}
    focus = next((at for at in (root_at, first["cause"], first["symptom"]) if at is not None), None)
    axis = _axis(start, end, focus)

    nodes = list(attempt.get("nodes") or ())
    names, hidden = _lanes(nodes, timed, root_nodes)
    has_root = False

    def is_root(entry: Mapping[str, Any]) -> bool:
        nonlocal has_root
        found = entry["kind"] == "cause" and (
            bool(root_refs & set(entry["evidence"])) or (root_at is not None and entry["at"] == root["at"])
        )
        has_root = has_root or found
        return found

    rows: list[tuple[str, list[Mapping[str, Any]]]] = [
        (name, [e for e in timed if e["node"] == name and e["kind"] not in ("start", "end")]) for name in names
    ]
    loose = [e for e in timed if not e["node"] and e["kind"] not in ("start", "end")]
    if loose or not rows:
        rows.append(("job", loose))
    lanes = []
    for index, (name, entries) in enumerate(rows):
        y = TOP + LANE * (index + 0.62)
        progress = [at for e in entries if e["kind"] == "progress" and (at := _epoch(e["at"])) is not None]
        marks, labels = _marks(entries, axis, y, is_root)
        path: tuple[str, ...] = ()
        if progress:
            stop = axis.x(max(progress))
            path = (f"M{_n(axis.x(start))} {_n(y)}H{_n(stop)}", f"M{_n(stop)} {_n(y - 6)}v12")
            marks = [m for m in marks if m.shape != "dot" or float(m.x) < stop - NEAR or m.evidence]
        lanes.append(Lane(name, _n(y), _n(y + 4), name in root_nodes, tuple(marks), tuple(labels), path))
    bottom = TOP + LANE * len(rows) + 6

    progress = [at for e in timed if e["kind"] == "progress" and (at := _epoch(e["at"])) is not None]
    later = [at for e in timed if e["kind"] in ("symptom", "teardown") and (at := _epoch(e["at"])) is not None]
    still = _stall(progress, later, end, axis)
    root_label = root_x = None
    if root and root_at is not None and start <= root_at <= end:
        x = axis.x(root_at)
        title = root["title"] if len(root["title"]) <= 56 else root["title"][:55] + "\u2026"
        at = times.parse(root_at)
        side = x > (LEFT + RIGHT) / 2
        root_x = _n(x)
        root_label = Label(root_x, "14", "end" if side else "start", f"Root: {title}, {times.clock(at) if at else ''}")
    end_label = end_x = None
    if end_at is not None:
        end_x = _n(axis.x(end_at))
        code = f", exit {attempt['exit_code']}" if attempt.get("exit_code") else ""
        at = times.parse(end_at)
        end_label = Label(end_x, "32", "end", f"End{code}, {times.clock(at) if at else ''}")
    notes: list[Label] = []
    breaks: tuple[str, ...] = ()
    if axis.turn is not None:
        early, late = axis.turn - start, end - axis.turn
        scale = (early / (axis.middle - LEFT)) / max(late / (RIGHT - axis.middle), 1e-9)
        notes = [
            Label(_n((LEFT + axis.middle) / 2), "0", "middle", times.duration(early)),
            Label(
                _n((axis.middle + RIGHT) / 2), "0", "middle",
                f"the last {times.duration(late)}, {scale:,.0f} times wider",
            ),
        ]  # fmt: skip
        breaks = (_n(axis.middle - GAP / 2), _n(axis.middle + GAP / 2))
    stall_box = stall_text = None
    if still:
        a, b = axis.x(still[0]), axis.x(still[1])
        stall_box = (_n(a), _n(b - a))
        text = f"{times.duration(still[1] - still[0])} without progress"
        if b - a > len(text) * 6.6 + 24:
            stall_text = Label(_n((a + b) / 2), _n(bottom - 8), "middle", text)
    return Picture(
        height=_n(bottom + 44), bottom=_n(bottom), plot_height=_n(bottom - TOP), ticks_y=_n(bottom + 18),
        notes_y=_n(bottom + 38), lanes=tuple(lanes), ticks=tuple(_ticks(axis)), notes=tuple(notes), breaks=breaks,
        root=root_label, root_x=root_x, end=end_label, end_x=end_x, stall=stall_box, stall_text=stall_text,
        hidden_lanes=hidden, left_out=len(contract["timeline"]) - len(timed),
        description=_description(timed, root_at, end_at, len(lanes)), axis=axis,
    )  # fmt: skip
