"""Streams of several nodes or ranks as lanes of one log, merged by time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.http import urlencode

from triage import times
from triage.access.rights import signed_in
from triage.models import Attempt, Stream
from triage.selectors.evidence import Story
from triage.selectors.merged import MAX_LANES, LaneInfo, Merged, MergedLine, corrections, first_failures, merge
from triage.text import printable
from triage.web import logview
from triage.web.logview import ShownLine
from triage.web.typed_time import typed_moment
from triage.web.views.evidence import attempt_or_404, story_or_none

MAX_LISTED = 200
"""Streams that the form offers."""
LETTERS = "ABCDEFGH"


@dataclass(frozen=True)
class LaneShown:
    """A lane as the page's head names it."""

    letter: str
    number: int
    info: LaneInfo
    name: str
    fails_at: datetime | None
    order: int | None
    """1 for the lane that failed first."""
    after: str
    """How long after the first one."""
    alone: str
    """Address of the merge without this lane."""


@dataclass(frozen=True)
class MergedShown:
    letter: str
    number: int
    who: str
    """Whose lane it is: node or rank, else the stream's own name."""
    shown: ShownLine
    merged: MergedLine
    url: str
    is_first: bool
    """The line with which the first lane of all failed."""
    gap: str
    """How long nothing was written before it, when that is long."""
    is_moment: bool
    """The first line at or after the moment that was asked for."""


@signed_in
def lanes(request: HttpRequest, pk: int) -> HttpResponse:
    """`?stream=..&stream=..&at=..`; without them the streams of the diagnosis around its root."""
    found = attempt_or_404(pk)
    story = story_or_none(found)
    streams = list(found.streams.filter(source__in=("applog", "syslog", "scheduler")).exclude(blob="")[:5000])
    chosen = _chosen(request, streams, story)
    contract = story.diagnosis.contract if story else None
    fails = first_failures(contract) if contract else {}
    at, refused = _moment(request, found, chosen, story)
    merged = merge(found, chosen, at, corrections(contract) if contract else {}) if at and chosen else None
    picked = {stream.pk for stream in chosen}
    context: dict[str, Any] = {
        "section": "failures",
        "attempt": found,
        "story": story,
        "at": at,
        "refused": refused,
        "too_many": len(request.GET.getlist("stream")) > MAX_LANES,
        "most": MAX_LANES,
        "streams": [(stream, printable(stream.name), stream.pk in picked) for stream in _listed(streams, picked)],
        "streams_left": max(0, len(streams) - MAX_LISTED),
        "merged": merged,
    }
    if merged is not None and at is not None:
        context |= _shown(request, found, story, merged, fails, at)
    return render(request, "evidence/lanes.html", context)


def _listed(streams: list[Stream], picked: set[int]) -> list[Stream]:
    """The chosen ones first, then as many others as the form holds."""
    return sorted(streams, key=lambda stream: stream.pk not in picked)[:MAX_LISTED]


def _chosen(request: HttpRequest, streams: list[Stream], story: Story | None) -> list[Stream]:
    names = list(dict.fromkeys(request.GET.getlist("stream")))
    by_name = {stream.name: stream for stream in streams}
    if not names and story is not None:
        names = list(dict.fromkeys(item.stream_raw for item in story.trail.values()))
        nodes = {node["node"] for node in story.diagnosis.contract["affected_nodes"]}
        names += [stream.name for stream in streams if stream.node in nodes and stream.name not in names]
    if not any(name in by_name for name in names):
        names = list(by_name)
    return [by_name[name] for name in names if name in by_name][:MAX_LANES]


def _moment(
    request: HttpRequest, found: Attempt, chosen: list[Stream], story: Story | None
) -> tuple[datetime | None, str]:
    """The moment to show, and what was typed when it is none."""
    root = story.contract["root_cause"] if story else None
    first = min((stream.first_at for stream in chosen if stream.first_at), default=found.started_at)
    last = max((stream.last_at for stream in chosen if stream.last_at), default=found.ended_at)
    usual = times.parse(root["at"]) if root else None
    usual = usual or (times.parse(story.decisive.at) if story and story.decisive else None) or found.ended_at or last
    text = request.GET.get("at", "").strip()
    if not text:
        return usual, ""
    typed = typed_moment(text, first, last, times.zone(), near=usual)
    return (typed, "") if typed else (usual, text)


def _shown(
    request: HttpRequest,
    found: Attempt,
    story: Story | None,
    merged: Merged,
    fails: dict[str, tuple[datetime, str]],
    moment: datetime,
) -> dict[str, Any]:
    order = sorted((fails[lane.stream.name][0], lane.number) for lane in merged.lanes if lane.stream.name in fails)
    first_of_all = order[0] if order else None
    places = {number: index + 1 for index, (_, number) in enumerate(order)}
    names = [lane.stream.name for lane in merged.lanes]
    at = request.GET.get("at", "")
    heads = []
    for lane in merged.lanes:
        failed = fails.get(lane.stream.name)
        since = (failed[0] - first_of_all[0]).total_seconds() if failed and first_of_all else 0.0
        others = [name for name in names if name != lane.stream.name]
        heads.append(
            LaneShown(
                LETTERS[lane.number], lane.number + 1, lane, printable(lane.stream.name),
                failed[0] if failed else None, places.get(lane.number), times.duration(since) if since else "",
                "?" + urlencode([("stream", name) for name in others] + ([("at", at)] if at else [])) if others else "",
            )
        )  # fmt: skip
    first_ref = fails[merged.lanes[first_of_all[1]].stream.name][1] if first_of_all else None
    return {
        "heads": heads,
        "rows": _rows(found, story, merged, first_ref, moment),
        "earlier": _paged(names, merged.first) if merged.has_before else "",
        "later": _paged(names, merged.last) if merged.has_after else "",
        "skewed": [head for head in heads if head.info.correction],
    }


def _paged(names: list[str], at: datetime | None) -> str:
    return "?" + urlencode([*(("stream", name) for name in names), ("at", times.machine(at))]) if at else ""


def _rows(
    found: Attempt, story: Story | None, merged: Merged, first_ref: str | None, moment: datetime
) -> list[MergedShown]:
    by_lane: dict[tuple[int, int], ShownLine] = {}
    for lane in merged.lanes:
        lines = [row.line for row in merged.lines if row.lane == lane.number]
        for shown in logview.shown(lines, logview.here(story, lane.stream), source=lane.stream.source):
            by_lane[(lane.number, shown.number)] = shown
    addresses = [reverse("stream", args=[found.pk, lane.stream.name]) for lane in merged.lanes]
    owners = [_owner(lane.stream) for lane in merged.lanes]
    rows = []
    before: datetime | None = None
    is_past = False
    for row in merged.lines:
        shown = by_lane[(row.lane, row.line.number)]
        wait = (row.at - before).total_seconds() if before else 0.0
        rows.append(
            MergedShown(
                LETTERS[row.lane], row.lane + 1, owners[row.lane], shown, row,
                f"{addresses[row.lane]}?line={row.line.number}#L{row.line.number}",
                bool(first_ref and shown.item and shown.item.id == first_ref),
                times.duration(wait) if wait >= 30 else "", not is_past and row.at >= moment,
            )
        )  # fmt: skip
        before, is_past = row.at, is_past or row.at >= moment
    return rows


def _owner(stream: Stream) -> str:
    return printable(stream.node or (f"rank {stream.rank}" if stream.rank is not None else stream.name))
