"""Evidence: a line in its stream, with what stands around it and what other nodes said at the same moment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode

from triage import times
from triage.models import Attempt, Stream
from triage.selectors import attempts, stream_bytes, streams
from triage.selectors.evidence import EvidenceItem, Story
from triage.selectors.guides import guide
from triage.text import cut, decode, printable
from triage.web.htmx import is_htmx, signed_in
from triage.web.views.attempts import story_of

AROUND = 25
"""Lines before and after the one that was asked for."""
STEP = 50
"""Lines that "more" adds."""
LONG = 2_000
"""Characters of a line that are shown at first."""
PART = 32_768
"""Bytes of a very long line that are shown at once."""
RULER = 1000.0


@dataclass(frozen=True)
class ShownLine:
    """One line of a log as the page shows it."""

    number: int
    offset: int
    text: str
    left: int
    """Characters left out; 1 when the rest has not even been counted."""
    kind: str
    """cause (the one that was asked for), hit (evidence), noise."""
    item: EvidenceItem | None
    part: LinePart | None = None


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
class Lane:
    """Another stream at the same moment."""

    stream: Stream
    name: str
    lines: tuple[tuple[ShownLine, str], ...]
    """Line and how far its time is from the moment."""


def _attempt(pk: int) -> Attempt:
    try:
        return attempts.get_attempt(pk)
    except (Attempt.DoesNotExist, OverflowError):
        raise Http404 from None


def _story(found: Attempt) -> Story | None:
    return story_of(found.diagnosis, found.pk) if found.diagnosis else None


@signed_in
def first(request: HttpRequest, pk: int) -> HttpResponse:
    """The decisive line, or the attempt when nothing decided."""
    story = _story(_attempt(pk))
    if story is None or story.decisive is None:
        return redirect("attempt", pk=pk)
    return HttpResponseRedirect(f"{story.decisive.url}#L{story.decisive.line}")


@signed_in
def item(request: HttpRequest, pk: int, ref: str) -> HttpResponse:
    """One piece of evidence in its stream; from what the diagnosis kept when the stream is gone."""
    found = _attempt(pk)
    story = _story(found)
    if story is None or ref not in story.trail:
        raise Http404("No such evidence in the current diagnosis.")
    evidence = story.trail[ref]
    refs = list(story.trail)
    at = refs.index(ref)
    context: dict[str, Any] = {
        "evidence": evidence,
        "position": at + 1,
        "previous": story.trail[refs[at - 1]] if at else None,
        "next": story.trail[refs[at + 1]] if at + 1 < len(refs) else None,
        "guide": guide(evidence.rule, evidence.data.get("title", "")),
        "cited_by": _cited_by(story, ref),
        "moment_url": reverse("evidence-moment", args=[pk, ref]),
    }
    try:
        stream_ = streams.get_stream(pk, evidence.stream_raw)
        window = _window(request, stream_, evidence.line, evidence.offset)
    except (Stream.DoesNotExist, streams.StreamGone):
        return render(request, "evidence/page.html", _kept(found, story, evidence) | context)
    context = _viewer(request, found, story, stream_, window, evidence.line, evidence) | context
    line = next((line.text for line in context["lines"] if line.number == evidence.line), "")
    context["derived"] = evidence.text not in line
    return render(request, "evidence/page.html", context)


@signed_in
def moment(request: HttpRequest, pk: int, ref: str) -> HttpResponse:
    """What the other streams said when this evidence was written: a fragment, because looking takes a while."""
    if not is_htmx(request):
        return redirect(reverse("evidence", args=[pk, ref]) + "?lanes=1")
    found = _attempt(pk)
    story = _story(found)
    at = times.parse(story.trail[ref].at) if story and ref in story.trail else None
    if story is None or at is None:
        raise Http404
    stream_ = _stream(pk, story.trail[ref].stream_raw)
    context = {"attempt": found, "moment": at, "lanes": _lanes(found, stream_, at, story)}
    answer = render(request, "evidence/_lanes.html", context)
    answer.headers["Vary"] = "HX-Request, Cookie"
    return answer


@signed_in
def stream(request: HttpRequest, pk: int, name: str) -> HttpResponse:
    """Any stream, at a line (`?line=`), a byte offset (`?offset=`) or its beginning."""
    found = _attempt(pk)
    stream_ = _stream(pk, name)
    line = _number(request, "line")
    try:
        window = _window(request, stream_, line, _number(request, "offset"))
    except streams.StreamGone:
        return render(
            request,
            "evidence/gone.html",
            {"section": "failures", "attempt": found, "stream": stream_, "name": printable(stream_.name)},
            status=410,
        )
    story = _story(found)
    return render(request, "evidence/page.html", _viewer(request, found, story, stream_, window, line, None))


@signed_in
def lines(request: HttpRequest, pk: int, name: str) -> HttpResponse:
    """More lines, as a fragment that takes the place of a "more" link: `?first=&last=&way=up|down`."""
    first_, last = _number(request, "first") or 1, _number(request, "last") or 1
    if not is_htmx(request):
        return redirect(reverse("stream", args=[pk, name]) + "?" + urlencode({"first": first_, "last": last}))
    found = _attempt(pk)
    stream_ = _stream(pk, name)
    try:
        window = streams.stream_lines(stream_, first_, max(1, min(last - first_ + 1, streams.MAX_LINES)))
    except streams.StreamGone:
        raise Http404 from None
    context = {
        "way": request.GET.get("way"),
        "rest_url": reverse("stream", args=[pk, stream_.name]),
        "lines": _shown(window.lines, _here(_story(found), stream_)),
        **_more(request, pk, stream_, window),
    }
    answer = render(request, "evidence/_lines.html", context)
    answer.headers["Vary"] = "HX-Request, Cookie"
    return answer


@signed_in
def raw(request: HttpRequest, pk: int, name: str) -> HttpResponseBase:
    """The bytes as they are stored, as a file to keep: lines `?first=&last=`, or the whole stream."""
    stream_ = _stream(pk, name)
    first_ = max(1, _number(request, "first") or 1)
    last = max(first_, min(_number(request, "last") or stream_.lines, stream_.lines))
    try:
        blocks = stream_bytes.line_range(stream_, first_, last)
    except streams.StreamGone:
        raise Http404 from None
    answer = StreamingHttpResponse(blocks, content_type="application/octet-stream")
    base = re.sub(r"[^A-Za-z0-9._-]+", "-", stream_.name).strip("-.") or "stream"
    whole = first_ == 1 and last == stream_.lines
    answer.headers["Content-Disposition"] = (
        f'attachment; filename="{pk}-{base[-100:]}"'
        if whole
        else f'attachment; filename="{pk}-{base[-100:]}-L{first_}-L{last}"'
    )
    return answer


# ---------- parts ----------


def _stream(pk: int, name: str) -> Stream:
    try:
        return streams.get_stream(pk, name)
    except (Stream.DoesNotExist, OverflowError, ValueError):
        raise Http404 from None


def _number(request: HttpRequest, key: str) -> int | None:
    value = request.GET.get(key, "")
    return int(value) if value.isascii() and value.isdecimal() and len(value) < 16 else None


def _window(request: HttpRequest, stream_: Stream, line: int | None, offset: int | None) -> streams.StreamWindow:
    """The range that the URL names (`first`, `last`), else the lines around one."""
    first_, last = _number(request, "first"), _number(request, "last")
    if first_ is not None and last is not None and last >= first_:
        return streams.stream_lines(stream_, first_, min(last - first_ + 1, streams.MAX_LINES))
    if line is not None:
        return streams.lines_around_line(stream_, line, before=AROUND, after=AROUND)
    if offset is not None:
        return streams.lines_around_offset(stream_, offset, before=AROUND, after=AROUND)
    return streams.stream_lines(stream_, 1, 2 * AROUND)


def _here(story: Story | None, stream_: Stream) -> dict[int, EvidenceItem]:
    """Evidence of this stream by line; of several on one line, the one that counts most."""
    here: dict[int, EvidenceItem] = {}
    for evidence in story.trail.values() if story else ():
        if evidence.stream_raw == stream_.name and (evidence.line not in here or evidence.is_root):
            here[evidence.line] = evidence
    return here


def _shown(
    found: list[streams.StreamLine], here: Mapping[int, EvidenceItem], target: int | None = None
) -> list[ShownLine]:
    shown = []
    for line in found:
        text, left = cut(printable(line.text), LONG)
        evidence = here.get(line.number)
        kind = "cause" if line.number == target else "hit" if evidence else "noise"
        shown.append(ShownLine(line.number, line.offset, text, left or int(line.cut), kind, evidence))
    return shown


def _with_part(request: HttpRequest, stream_: Stream, shown: list[ShownLine], target: int | None) -> list[ShownLine]:
    """With `?from=` the line that was asked for shows that part of it instead of its beginning."""
    start = _number(request, "from")
    if start is None or target is None:
        return shown
    raw_part, total = stream_bytes.line_part(stream_, target, start, PART)
    part = LinePart(min(start, total), min(start, total) + len(raw_part), total)
    text = printable(decode(raw_part))
    return [replace(line, text=text, left=0, part=part) if line.number == target else line for line in shown]


def _more(request: HttpRequest, pk: int, stream_: Stream, window: streams.StreamWindow) -> dict[str, Any]:
    """Addresses of more lines both ways: of the fragment, and of this page with a wider window."""
    base = reverse("stream-lines", args=[pk, stream_.name])
    more: dict[str, Any] = {"up": None, "down": None}
    if window.has_before:
        first_ = max(1, window.first - STEP)
        more["up"] = {
            "fragment": f"{base}?first={first_}&last={window.first - 1}&way=up",
            "page": f"?first={first_}&last={window.last}",
            "from": first_,
            "to": window.first - 1,
        }
    if window.has_after:
        last = min(window.total, window.last + STEP)
        more["down"] = {
            "fragment": f"{base}?first={window.last + 1}&last={last}&way=down",
            "page": f"?first={window.first}&last={last}",
            "from": window.last + 1,
            "to": last,
        }
    return more


def _viewer(
    request: HttpRequest,
    found: Attempt,
    story: Story | None,
    stream_: Stream,
    window: streams.StreamWindow,
    line: int | None,
    evidence: EvidenceItem | None,
) -> dict[str, Any]:
    target = min(line, window.total) if line else None
    if target is None and (offset := _number(request, "offset")) is not None:
        target = max((shown.number for shown in window.lines if shown.offset <= offset), default=None)
    here = _here(story, stream_)
    moment = times.parse(evidence.at) if evidence else None
    return {
        "section": "failures",
        "attempt": found,
        "story": story,
        "stream": stream_,
        "name": printable(stream_.name),
        "window": window,
        "target": target,
        "lines": _with_part(request, stream_, _shown(window.lines, here, target), target),
        "ruler": _ruler(window, here, target),
        "moment": moment,
        "lanes": _lanes(found, stream_, moment, story) if moment and request.GET.get("lanes") else None,
        **_more(request, found.pk, stream_, window),
    }


def _ruler(window: streams.StreamWindow, here: Mapping[int, EvidenceItem], target: int | None) -> dict[str, Any]:
    """The whole stream as a strip: what of it is shown, and where the evidence lies."""
    total = max(window.total, 1)
    x = RULER * max(window.first - 1, 0) / total
    width = max(RULER * (window.last - window.first + 1) / total, 3.0)
    ticks = [
        {
            "x": f"{min(RULER * (line - 1) / total, RULER - 4):.1f}",
            "line": line,
            "now": line == target,
            "root": evidence.is_root,
        }
        for line, evidence in sorted(here.items())[:500]
    ]
    return {"x": f"{min(x, RULER - width):.1f}", "width": f"{width:.1f}", "ticks": ticks}


def _lanes(found: Attempt, stream_: Stream, moment: Any, story: Story | None) -> list[Lane]:
    lanes = []
    nodes = [node["node"] for node in story.diagnosis.contract["affected_nodes"]] if story else []
    prefer = [node for node in dict.fromkeys([stream_.node or "", *nodes]) if node]
    for window in streams.same_moment(found, moment, but=stream_, prefer=prefer):
        shown = _shown(window.lines, _here(story, window.stream))
        apart = [_apart(line.at, moment) for line in window.lines]
        lanes.append(Lane(window.stream, printable(window.stream.name), tuple(zip(shown, apart, strict=True))))
    return lanes


def _apart(at: Any, moment: Any) -> str:
    if at is None:
        return ""
    seconds = (at - moment).total_seconds()
    if abs(seconds) < 0.5:
        return "same second"
    return f"{times.duration(seconds)} {'later' if seconds > 0 else 'before'}"


def _cited_by(story: Story, ref: str) -> list[tuple[str, str]]:
    """Who names this line: the root, rivals and symptoms, with their titles."""
    contract = story.contract
    named = []
    if contract["root_cause"] and ref in contract["root_cause"]["evidence"]:
        named.append(("root", contract["root_cause"]["title"]))
    named += [("rival", rival["title"]) for rival in contract["candidates"] if ref in rival["evidence"]]
    named += [("symptom", symptom["title"]) for symptom in contract["symptoms"] if ref in symptom["evidence"]]
    return named[:6]


def _kept(found: Attempt, story: Story, evidence: EvidenceItem) -> dict[str, Any]:
    """The page when the stream is gone: the line and the context that the diagnosis kept."""
    before, after = list(evidence.before), list(evidence.after)
    numbered = [
        *((evidence.line - len(before) + index, text) for index, text in enumerate(before)),
        (evidence.line, evidence.text),
        *((evidence.line + 1 + index, text) for index, text in enumerate(after)),
    ]
    here = {other.line: other for other in story.trail.values() if other.stream_raw == evidence.stream_raw}
    found_lines = [streams.StreamLine(number, 0, text, False) for number, text in numbered]
    return {
        "section": "failures",
        "attempt": found,
        "story": story,
        "stream": None,
        "name": evidence.stream,
        "lines": _shown(found_lines, here, evidence.line),
        "target": evidence.line,
        "moment": times.parse(evidence.at),
        "lanes": [],
        "gone": True,
    }
