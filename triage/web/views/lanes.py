"""Streams of several nodes or ranks as lanes of one log, merged by time."""

from __future__ import annotations

import re
from collections.abc import Sequence
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
from triage.web.found import attempt_or_404
from triage.web.logview import ShownLine
from triage.web.typed_time import typed_moment
from triage.web.views.evidence import story_or_none

MAX_LISTED = 200
"""Streams that the form offers."""
LETTERS = "ABCDEFGH"
MAX_RANKS = 256
"""That can be asked for; MAX_LANES of those that write are shown."""
Fails = dict[tuple[str, int | None], tuple[datetime, str]]
_PARTS = re.compile(r"[\s,]+")
_RANKS = re.compile(r"([0-9]{1,7})(?:-([0-9]{1,7}))?")


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
    """`?stream=..&stream=..&at=..&ranks=24-31`; without them the streams of the diagnosis around its root."""
    found = attempt_or_404(pk)
    story = story_or_none(found)
    streams = list(found.streams.filter(source__in=("applog", "syslog", "scheduler")).exclude(blob="")[:5000])
    chosen = _chosen(request, streams, story)
    contract = story.diagnosis.contract if story else None
    fails: Fails = first_failures(contract) if contract else {}
    at, refused = _moment(request, found, chosen, story)
    ranks = typed_ranks(request.GET.get("ranks", ""))
    corrected = corrections(contract) if contract else {}
    merged = merge(found, chosen, at, corrected, ranks=ranks or ()) if at and chosen else None
    picked = {stream.pk for stream in chosen}
    context: dict[str, Any] = {
        "section": "failures",
        "attempt": found,
        "story": story,
        "at": at,
        "refused": refused,
        "too_many": len(request.GET.getlist("stream")) > MAX_LANES,
        "ranks": request.GET.get("ranks", "").strip()[:200],
        "ranks_refused": ranks is None,
        "by_rank": bool(ranks),
        "most": MAX_LANES,
        "streams": [(stream, printable(stream.name), stream.pk in picked) for stream in _listed(streams, picked)],
        "streams_left": max(0, len(streams) - MAX_LISTED),
        "merged": merged,
    }
    if merged is not None and at is not None:
        context |= _shown(request, found, story, merged, fails, at)
    return render(request, "evidence/lanes.html", context)


def typed_ranks(text: str) -> list[int] | None:
    """`24-31, 3` as ranks in their order; none for an empty text, None for what isn't ranks."""
    ranks: list[int] = []
    for word in filter(None, _PARTS.split(text.strip())):
        match = _RANKS.fullmatch(word)
        if match is None:
            return None
        low, high = sorted((int(match[1]), int(match[2] or match[1])))
        ranks += range(low, min(high, low + MAX_RANKS - 1) + 1)
    return sorted(set(ranks))[:MAX_RANKS]


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
    fails: Fails,
    moment: datetime,
) -> dict[str, Any]:
    order = sorted((fails[_key(lane)][0], lane.number) for lane in merged.lanes if _key(lane) in fails)
    first_of_all = order[0] if order else None
    places = {number: index + 1 for index, (_, number) in enumerate(order)}
    ranks = request.GET.get("ranks", "").strip()
    at = request.GET.get("at", "")
    heads = []
    for lane in merged.lanes:
        failed = fails.get(_key(lane))
        since = (failed[0] - first_of_all[0]).total_seconds() if failed and first_of_all else 0.0
        rest = [other for other in merged.lanes if other.number != lane.number]
        heads.append(
            LaneShown(
                LETTERS[lane.number], lane.number + 1, lane, printable(lane.stream.name),
                failed[0] if failed else None, places.get(lane.number), times.duration(since) if since else "",
                _address(rest, ranks, at) if rest else "",
            )
        )  # fmt: skip
    first_ref = fails[_key(merged.lanes[first_of_all[1]])][1] if first_of_all else None
    return {
        "heads": heads,
        "rows": _rows(found, story, merged, first_ref, moment),
        "earlier": _address(merged.lanes, ranks, _machine(merged.first)) if merged.has_before else "",
        "later": _address(merged.lanes, ranks, _machine(merged.last)) if merged.has_after else "",
        "skewed": [head for head in heads if head.info.correction],
    }


def _key(lane: LaneInfo) -> tuple[str, int | None]:
    return lane.stream.name, lane.rank


def _address(lanes: Sequence[LaneInfo], ranks: str, at: str) -> str:
    """Of the page with these lanes. Ranks stay as they were typed, or are those of the lanes that are left."""
    pairs = [("stream", name) for name in dict.fromkeys(lane.stream.name for lane in lanes)]
    if ranks:
        own = [lane.rank if lane.rank is not None else lane.stream.rank for lane in lanes]
        left = sorted({rank for rank in own if rank is not None})
        pairs.append(("ranks", ",".join(map(str, left)) if left else ranks))
    return "?" + urlencode(pairs + ([("at", at)] if at else []))


def _machine(at: datetime | None) -> str:
    return times.machine(at) if at else ""


def _rows(
    found: Attempt, story: Story | None, merged: Merged, first_ref: str | None, moment: datetime
) -> list[MergedShown]:
    by_lane: dict[tuple[int, int], ShownLine] = {}
    for lane in merged.lanes:
        lines = [row.line for row in merged.lines if row.lane == lane.number]
        for shown in logview.shown(lines, logview.here(story, lane.stream), source=lane.stream.source):
            by_lane[(lane.number, shown.number)] = shown
    addresses = [reverse("stream", args=[found.pk, lane.stream.name]) for lane in merged.lanes]
    owners = [_owner(lane) for lane in merged.lanes]
    rows = []
    before: datetime | None = None
    is_past = False
    for row in merged.lines:
        shown = by_lane[(row.lane, row.line.number)]
        wait = (row.at - before).total_seconds() if before else 0.0
        rows.append(
            MergedShown(
                LETTERS[row.lane], row.lane + 1, _who(owners[row.lane], row), shown, row,
                f"{addresses[row.lane]}?line={row.line.number}#L{row.line.number}",
                bool(first_ref and shown.item and shown.item.id == first_ref),
                times.duration(wait) if wait >= 30 else "", not is_past and row.at >= moment,
            )
        )  # fmt: skip
        before, is_past = row.at, is_past or row.at >= moment
    return rows


def _owner(lane: LaneInfo) -> str:
    stream = lane.stream
    if lane.rank is not None:
        return f"rank {lane.rank}"
    return printable(stream.node or (f"rank {stream.rank}" if stream.rank is not None else stream.name))


def _who(owner: str, row: MergedLine) -> str:
    """The lane's owner; of a log that many ranks write, with the rank of this line."""
    return owner if row.rank is None or owner.startswith("rank ") else f"{owner} r{row.rank}"
