"""The timeline on a page: what its address asks for, and where its controls lead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.http import HttpRequest, QueryDict

from triage import times
from triage.selectors.timeline import SHORTEST, Picture, View
from triage.selectors.timeline_axis import Axis
from triage.selectors.timeline_events import KINDS, events_of
from triage.web.typed_time import typed_moment

ZOOM = 3.0
MAX_ROWS = 200
"""Of the table; further events come with a zoom or a filter."""
NAMES = {
    "cause": "root, cause",
    "warning": "warning, rival",
    "symptom": "symptom",
    "teardown": "clean-up",
    "progress": "progress",
    "context": "other line",
}
BUTTONS = (
    ("whole", "Whole", ""),
    ("failure", "The failure", ""),
    ("in", "+", "Zoom in"),
    ("out", "\u2212", "Zoom out"),
    ("earlier", "\u2190", "Earlier"),
    ("later", "\u2192", "Later"),
)
"""Name, sign and, where the sign is no word, words of what leads to another part of the time."""
OWN = ("by", "show", "from", "to", "only", "lanes")
"""What the timeline keeps in the address of its page."""


@dataclass(frozen=True)
class Asked:
    """The view that an address names, and what in it could not be understood."""

    view: View
    refused: tuple[str, ...] = ()


def asked(request: HttpRequest, first: datetime | None, last: datetime | None) -> Asked:
    """`?by=rank&show=cause&show=symptom&from=04:11&to=04:22:31&only=node-02&lanes=2`; `first` and `last` are the
    attempt's, for times of day.
    """
    sent = request.GET
    refused: list[str] = []
    ends: list[float | None] = []
    for key in ("from", "to"):
        text = sent.get(key, "").strip()
        moment = typed_moment(text, first, last, times.zone()) if text else None
        if text and moment is None:
            refused.append(text)
        ends.append(moment.timestamp() if moment else None)
    low, high = ends
    if low is not None and high is not None and low > high:
        low, high = high, low
    page = sent.get("lanes", "")
    view = View(
        by_rank=sent.get("by") == "rank",
        kinds=frozenset(KINDS) & set(sent.getlist("show")) if "show" in sent else frozenset(KINDS),
        first=low,
        last=high,
        only=sent.get("only", "").strip()[:200],
        page=int(page) if page.isascii() and page.isdecimal() and len(page) < 6 else 1,
    )
    return Asked(view, tuple(refused))


def context(request: HttpRequest, picture: Picture, refused: tuple[str, ...] = ()) -> dict[str, Any]:
    """What the section shows around the picture."""
    view, axis = picture.view, picture.axis
    current = "whole" if not view.is_zoomed else "failure" if _shows(axis, picture.failure) else ""
    begin, end = times.parse(axis.start), times.parse(axis.end)
    rows = picture.rows
    return {
        "kinds": [
            {"value": kind, "name": NAMES[kind], "on": kind in view.kinds, "count": picture.counts.get(kind, 0)}
            for kind in KINDS
        ],
        "ways": (ways := _ways(request, picture)),
        "buttons": [
            {"name": name, "text": text, "label": label, "query": ways[name], "current": current == name}
            for name, text, label in BUTTONS
            if name in ways
        ],
        "axis": {key: value for key, value in axis.as_plain().items() if key != "breaks" and value is not None},
        "from_text": _typed(begin) if view.is_zoomed and begin else "",
        "to_text": _typed(end) if view.is_zoomed and end else "",
        "whole_from": _typed(times.parse(picture.whole[0])),
        "whole_to": _typed(times.parse(picture.whole[1])),
        "span": times.duration(axis.end - axis.start),
        "refused": refused,
        "rows": [(row, times.parse(row.at)) for row in rows[:MAX_ROWS]],
        "rows_total": len(rows),
        "rows_left": max(0, len(rows) - MAX_ROWS),
        "kept": kept(request),
        "changed": any(key in request.GET for key in OWN),
        "metrics_query": _part(request, ("from", "to")),
    }


def timeless(contract: Mapping[str, Any]) -> dict[str, Any]:
    """The table alone, of a diagnosis in which nothing has a time."""
    rows = events_of(contract)
    return {
        "rows": [(row, None) for row in rows[:MAX_ROWS]],
        "rows_total": len(rows),
        "rows_left": max(0, len(rows) - MAX_ROWS),
    }


def _shows(axis: Axis, part: tuple[float, float] | None) -> bool:
    return part is not None and abs(axis.start - part[0]) < 0.01 and abs(axis.end - part[1]) < 0.01


def address(request: HttpRequest) -> str:
    """What goes into the page's address for the history: without what a form sends though nothing was chosen."""
    params = request.GET.copy()
    if set(params.getlist("show")) >= set(KINDS):
        params.pop("show")
    for key, usual in (("by", "node"), ("from", ""), ("to", ""), ("only", ""), ("lanes", "1")):
        if params.get(key, usual).strip() == usual:
            params.pop(key, None)
    return f"?{params.urlencode()}" if params else ""


def kept(request: HttpRequest) -> list[tuple[str, str]]:
    """What else the page's address holds, so that a control of the timeline doesn't lose it."""
    return [(key, value) for key, values in request.GET.lists() if key not in OWN for value in values][:40]


def _ways(request: HttpRequest, picture: Picture) -> dict[str, str]:
    """Query strings: in, out, back and forth in time, the failure, the whole; other lanes."""
    first, last = picture.axis.start, picture.axis.end
    span = last - first
    low, high = picture.whole
    root = picture.root_at
    focus = root if root is not None and first <= root <= last else (first + last) / 2
    ways = {"whole": _query(request, {"from": None, "to": None, "lanes": None})}
    closer = max(span / ZOOM, SHORTEST)
    before = (focus - first) / span * closer if span else 0.0
    ways["in"] = _span(request, focus - before, focus - before + closer)
    if picture.view.is_zoomed:
        wider = span * ZOOM
        begin = focus - (focus - first) * ZOOM
        inside = begin <= low and begin + wider >= high
        ways["out"] = ways["whole"] if inside else _span(request, begin, begin + wider)
        ways["earlier"] = _span(request, first - span / 2, last - span / 2)
        ways["later"] = _span(request, first + span / 2, last + span / 2)
    if picture.failure is not None:
        ways["failure"] = _span(request, *picture.failure)
    if picture.earlier is not None and not picture.view.is_zoomed:
        ways["before"] = _span(request, picture.earlier[1] - 1, low + (high - low) * 0.02)
    if picture.page > 1:
        ways["lanes_before"] = _query(request, {"lanes": str(picture.page - 1)})
    if picture.page < picture.pages:
        ways["lanes_after"] = _query(request, {"lanes": str(picture.page + 1)})
    return ways


def _span(request: HttpRequest, first: float, last: float) -> str:
    return _query(request, {"from": _machine(first), "to": _machine(last), "lanes": None})


def _query(request: HttpRequest, changes: dict[str, str | None]) -> str:
    params = request.GET.copy()
    for key, value in changes.items():
        if value is None:
            params.pop(key, None)
        else:
            params[key] = value
    return f"?{params.urlencode()}"


def _part(request: HttpRequest, keys: tuple[str, ...]) -> str:
    params = QueryDict(mutable=True)
    for key in keys:
        if request.GET.get(key):
            params[key] = request.GET[key]
    return f"?{params.urlencode()}" if params else ""


def _machine(at: float) -> str:
    moment = datetime.fromtimestamp(round(at, 3), UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def _typed(moment: datetime | None) -> str:
    """A moment as it can be typed again, to the millisecond where it has any."""
    if moment is None:
        return ""
    told = times.told(moment)
    return f"{told:%Y-%m-%d %H:%M:%S}" + (f".{told.microsecond // 1000:03d}" if told.microsecond >= 1000 else "")
