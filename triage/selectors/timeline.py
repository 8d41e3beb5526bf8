"""The timeline of a diagnosis as a picture: which marks stand where. Geometry only; a template draws it as SVG.

One lane a node, or one a rank. What it shows is a `View`: the kinds of marks, a part of the time, some of the lanes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from triage import times
from triage.selectors.timeline_axis import LEFT, RIGHT, Axis, Tick, ticks, whole_axis
from triage.selectors.timeline_events import KINDS, Event, epoch, events_of, spread_over_ranks
from triage.selectors.timeline_lanes import (
    LANE,
    TOP,
    WHOLE,
    Label,
    Lane,
    Lanes,
    View,
    lane_names,
    lanes_of,
    number,
    shortened,
)

__all__ = ["MARGIN", "SHORTEST", "Picture", "View", "picture"]

SHORTEST = 0.5
"""Seconds of the shortest part that can be zoomed to."""
MARGIN = 366 * 86400.0
"""Seconds before and after the attempt beyond which nothing is shown."""


@dataclass(frozen=True, slots=True)
class Picture:
    view: View
    axis: Axis
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
    counts: dict[str, int]
    """How many marks of each kind the part has, shown or not."""
    lanes_total: int
    page: int
    pages: int
    whole: tuple[float, float]
    """The time of the whole attempt."""
    failure: tuple[float, float] | None
    """The part from shortly before the root (or the first symptom) to the last sign of it."""
    root_at: float | None
    earlier: tuple[int, float] | None
    """How many events lie before the whole attempt, and when the first of them was."""
    description: str
    rows: tuple[Event, ...]
    """What the picture shows, for a table: all its lanes, in the order of time."""


def picture(contract: Mapping[str, Any], view: View = WHOLE) -> Picture | None:
    """The picture of one diagnosis (the contract as plain containers); None when nothing in it has a time."""
    attempt = contract["attempt"].get("attempt", contract["attempt"])
    events = events_of(contract)
    timed = [event for event in events if event.at is not None]
    if not timed:
        return None
    root = contract.get("root_cause")
    root_at = epoch(root["at"]) if root else None
    whole = _span(attempt, timed)
    failure = _failure(timed, root_at, whole)
    axis = _axis(view, whole, timed, root_at)
    inside = [event for event in timed if axis.start <= (event.at or 0.0) <= axis.end]
    if view.by_rank:
        inside += [e for e in spread_over_ranks(contract, timed) if axis.start <= (e.at or 0.0) <= axis.end]
    shown = [event for event in inside if event.kind in view.kinds]
    lanes = lanes_of(view, attempt, shown, root, axis)
    bottom = TOP + LANE * len(lanes.drawn) + 6
    end_at = epoch(attempt.get("ended_at"))
    stall, stall_text = _stall(view, timed, whole[1], axis, bottom)
    root_label = _root_label(root, root_at, axis)
    end_label = _end_label(attempt, end_at, axis)
    return Picture(
        view=view, axis=axis, height=number(bottom + 44), bottom=number(bottom), plot_height=number(bottom - TOP),
        ticks_y=number(bottom + 18), notes_y=number(bottom + 38), lanes=lanes.drawn, ticks=tuple(ticks(axis)),
        notes=_notes(axis), breaks=tuple(number(x) for x in axis.breaks), root=root_label,
        root_x=root_label.x if root_label else None, end=end_label, end_x=end_label.x if end_label else None,
        stall=stall, stall_text=stall_text,
        counts=dict(Counter(event.kind for event in inside if event.kind in KINDS)),
        lanes_total=lanes.total, page=lanes.page, pages=lanes.pages, whole=whole, failure=failure, root_at=root_at,
        earlier=_earlier(timed, whole[0]),
        description=_description(shown, root_at, end_at, len(lanes.drawn), axis),
        rows=_rows(view, events, lanes, axis),
    )  # fmt: skip


# --- time -------------------------------------------------------------------------------------------------------------


def _span(attempt: Mapping[str, Any], timed: Sequence[Event]) -> tuple[float, float]:
    """From the start to the end of the attempt, with what belongs to it and lies near."""
    ats = [event.at or 0.0 for event in timed]
    start = epoch(attempt.get("started_at")) or ats[0]
    end_at = epoch(attempt.get("ended_at"))
    inner = [event.at or 0.0 for event in timed if event.kind not in ("context", "warning")] or ats
    start = min([start, *[at for at in inner if at >= start - 3600]])
    end = max(end_at or ats[-1], *[at for at in inner if end_at is None or at <= end_at + 600], start + 1)
    return start, end


def _earlier(timed: Sequence[Event], start: float) -> tuple[int, float] | None:
    before = [event.at for event in timed if event.at is not None and event.at < start]
    return (len(before), min(before)) if before else None


def _failure(timed: Sequence[Event], root_at: float | None, whole: tuple[float, float]) -> tuple[float, float] | None:
    signs = [event.at for event in timed if event.at is not None and event.kind in ("cause", "symptom", "teardown")]
    since = root_at if root_at is not None else min(signs, default=None)
    if since is None:
        return None
    until = max([at for at in signs if at >= since], default=since)
    room = max((until - since) * 0.12, 5.0)
    first, last = since - room, until + room
    return (first, last) if last - first < (whole[1] - whole[0]) * 0.9 else None


def _axis(view: View, whole: tuple[float, float], timed: Sequence[Event], root_at: float | None) -> Axis:
    if not view.is_zoomed:
        firsts = (next((e.at for e in timed if e.kind == kind), None) for kind in ("cause", "symptom"))
        return whole_axis(*whole, next((at for at in (root_at, *firsts) if at is not None), None))
    first = view.first if view.first is not None else min(whole[0], (view.last or 0.0) - SHORTEST)
    last = view.last if view.last is not None else max(whole[1], first + SHORTEST)
    first, last = (min(max(at, whole[0] - MARGIN), whole[1] + MARGIN) for at in (first, last))
    if last - first < SHORTEST:
        middle = (first + last) / 2
        first, last = middle - SHORTEST / 2, middle + SHORTEST / 2
    return Axis(first, last, part=True)


def _notes(axis: Axis) -> tuple[Label, ...]:
    if axis.turn is None:
        return ()
    early, late = axis.turn - axis.start, axis.end - axis.turn
    scale = (early / (axis.middle - LEFT)) / max(late / (RIGHT - axis.middle), 1e-9)
    text = f"the last {times.duration(late)}, {scale:,.0f} times wider"
    return (
        Label(number((LEFT + axis.middle) / 2), "0", "middle", times.duration(early)),
        Label(number((axis.middle + RIGHT) / 2), "0", "middle", text),
    )


def _stall(
    view: View, timed: Sequence[Event], end: float, axis: Axis, bottom: float
) -> tuple[tuple[str, str] | None, Label | None]:
    """From the last sign of progress to the first thing reported after it (or the end), when that can be seen."""
    progress = [event.at for event in timed if event.kind == "progress" and event.at is not None]
    if not progress or "progress" not in view.kinds:
        return None, None
    since = max(progress)
    later = [event.at for event in timed if event.kind in ("symptom", "teardown") and event.at is not None]
    until = min((at for at in later if at > since), default=end)
    if until <= axis.start or since >= axis.end:
        return None, None
    left, right = axis.x(since), axis.x(until)
    if right - left <= 30 or until - since <= 20:
        return None, None
    text = f"{times.duration(until - since)} without progress"
    fits = right - left > len(text) * 6.6 + 24
    label = Label(number((left + right) / 2), number(bottom - 8), "middle", text) if fits else None
    return (number(left), number(right - left)), label


# --- words ------------------------------------------------------------------------------------------------------------


def _root_label(root: Mapping[str, Any] | None, at: float | None, axis: Axis) -> Label | None:
    if root is None or at is None or not axis.start <= at <= axis.end:
        return None
    x, moment = axis.x(at), times.parse(at)
    side = "end" if x > (LEFT + RIGHT) / 2 else "start"
    return Label(
        number(x), "14", side, f"Root: {shortened(root['title'], 56)}, {times.clock(moment) if moment else ''}"
    )


def _end_label(attempt: Mapping[str, Any], at: float | None, axis: Axis) -> Label | None:
    if at is None or not axis.start <= at <= axis.end:
        return None
    code = f", exit {attempt['exit_code']}" if attempt.get("exit_code") else ""
    x, moment = axis.x(at), times.parse(at)
    side = "end" if x > (LEFT + RIGHT) / 2 else "start"
    return Label(number(x), "32", side, f"End{code}, {times.clock(moment) if moment else ''}")


def _description(shown: Sequence[Event], root_at: float | None, end_at: float | None, lanes: int, axis: Axis) -> str:
    parts = [f"{lanes} lane{'' if lanes == 1 else 's'}."]
    for kind in ("cause", "symptom"):
        some = [event for event in shown if event.kind == kind and not event.spread]
        if some and (first := times.parse(some[0].at)):
            marks = f"{kind} mark" if len(some) == 1 else f"{kind} marks"
            parts.append(f"{len(some)} {marks}, the first at {times.clock(first)}: {some[0].title}.")
    for at, words in ((root_at, "The root stands at"), (end_at, "The attempt ends at")):
        if at is not None and axis.start <= at <= axis.end and (moment := times.parse(at)):
            parts.append(f"{words} {times.clock(moment)}.")
    return " ".join(parts)


def _rows(view: View, events: Iterable[Event], lanes: Lanes, axis: Axis) -> tuple[Event, ...]:
    """The events of the picture on all its lanes; the whole timeline has those without a time too."""
    rows = []
    for event in events:
        if event.kind in KINDS and event.kind not in view.kinds:
            continue
        if view.is_zoomed and (event.at is None or not axis.start <= event.at <= axis.end):
            continue
        if view.only and not lanes.names.intersection(lane_names(event, view.by_rank)):
            continue
        rows.append(event)
    return tuple(rows)
