"""Evidence: a line in its stream, with what stands around it and what other nodes said at the same moment."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode

from triage import times
from triage.access.rights import signed_in
from triage.models import Attempt, Stream
from triage.selectors import stream_bytes, streams
from triage.selectors.evidence import EvidenceItem, Story
from triage.selectors.guides import guide
from triage.selectors.stream_search import Findings, Query, SearchRefused, search
from triage.text import printable
from triage.web import logview
from triage.web.found import attempt_or_404
from triage.web.htmx import is_htmx
from triage.web.logview import AROUND, ShownLine, number
from triage.web.typed_time import typed_moment
from triage.web.views.attempts import story_of

MAX_LOGS = 200
"""Other logs that the viewer offers."""


@dataclass(frozen=True)
class Lane:
    """Another stream at the same moment."""

    stream: Stream
    name: str
    lines: tuple[tuple[ShownLine, str], ...]
    """Line and how far its time is from the moment."""


def story_or_none(found: Attempt) -> Story | None:
    return story_of(found.diagnosis, found.pk) if found.diagnosis else None


@signed_in
def first(request: HttpRequest, pk: int) -> HttpResponse:
    """The decisive line, or the attempt when nothing decided; who wants to pick lines gets to a log in any case."""
    found = attempt_or_404(pk)
    story = story_or_none(found)
    picking = f"?for={picked_for}" if (picked_for := _picked_for(request)) else ""
    if story is not None and story.decisive is not None and not (picking and _is_gone(found, story.decisive)):
        return HttpResponseRedirect(f"{story.decisive.url}{picking}#L{story.decisive.line}")
    logs = streams.kept_logs(pk, 1) if picking else []
    if logs:
        return HttpResponseRedirect(reverse("stream", args=[pk, logs[0].name]) + picking)
    return redirect("attempt", pk=pk)


@signed_in
def item(request: HttpRequest, pk: int, ref: str) -> HttpResponse:
    """One piece of evidence in its stream; from what the diagnosis kept when the stream is gone."""
    found = attempt_or_404(pk)
    story = story_or_none(found)
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
    found = attempt_or_404(pk)
    story = story_or_none(found)
    at = times.parse(story.trail[ref].at) if story and ref in story.trail else None
    if story is None or at is None:
        raise Http404
    stream_ = _stream(pk, story.trail[ref].stream_raw)
    context = {"attempt": found, "stream": stream_, "moment": at, "lanes": _lanes(found, stream_, at, story)}
    answer = render(request, "evidence/_lanes.html", context)
    answer.headers["Vary"] = "HX-Request, Cookie"
    return answer


@signed_in
def stream(request: HttpRequest, pk: int, name: str) -> HttpResponse:
    """Any stream, at a line (`?line=`), lines (`?lines=120-131`), a byte offset (`?offset=`), what a search finds
    (`?q=`), or its beginning. `?jump=` takes a line or a time and leads to it.
    """
    found = attempt_or_404(pk)
    stream_ = _stream(pk, name)
    try:
        if request.GET.get("jump", "").strip():
            answer = _jump(request, found, stream_)
            if answer is not None:
                return answer
        searched = _search(request, stream_)
        line = _line(request, searched)
        window = _window(request, stream_, line, number(request, "offset"))
        context = _viewer(request, found, story_or_none(found), stream_, window, line, None, searched)
    except streams.StreamGone:
        return render(
            request,
            "evidence/gone.html",
            {"section": "failures", "attempt": found, "stream": stream_, "name": printable(stream_.name)},
            status=410,
        )
    return render(request, "evidence/page.html", context)


@signed_in
def lines(request: HttpRequest, pk: int, name: str) -> HttpResponse:
    """More lines, as a fragment that takes the place of a "more" link: `?first=&last=&way=up|down`."""
    first_, last = number(request, "first") or 1, number(request, "last") or 1
    if not is_htmx(request):
        return redirect(reverse("stream", args=[pk, name]) + "?" + urlencode({"first": first_, "last": last}))
    found = attempt_or_404(pk)
    stream_ = _stream(pk, name)
    try:
        searched = _search(request, stream_)
        window = streams.stream_lines(stream_, first_, max(1, min(last - first_ + 1, streams.MAX_LINES)))
    except streams.StreamGone:
        raise Http404 from None
    shown = logview.shown(
        window.lines,
        logview.here(story_or_none(found), stream_),
        source=stream_.source,
        query=searched.query,
        found=searched.found,
    )
    context = {
        "way": request.GET.get("way"),
        "rest_url": reverse("stream", args=[pk, stream_.name]),
        "runs": logview.folds(shown),
        **logview.more(request, pk, stream_, window),
    }
    answer = render(request, "evidence/_lines.html", context)
    answer.headers["Vary"] = "HX-Request, Cookie"
    return answer


@signed_in
def raw(request: HttpRequest, pk: int, name: str) -> HttpResponseBase:
    """The bytes as they are stored, as a file to keep: lines `?first=&last=`, or the whole stream."""
    stream_ = _stream(pk, name)
    first_ = max(1, number(request, "first") or 1)
    last = max(first_, min(number(request, "last") or stream_.lines, stream_.lines))
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


def _picked_for(request: HttpRequest) -> str:
    """What lines are picked for: `correction`, or nothing in particular."""
    return "correction" if request.GET.get("for") == "correction" else ""


def _is_gone(found: Attempt, evidence: EvidenceItem) -> bool:
    return not found.streams.filter(name=evidence.stream_raw).exclude(blob="").exists()


def _stream(pk: int, name: str) -> Stream:
    try:
        return streams.get_stream(pk, name)
    except (Stream.DoesNotExist, OverflowError, ValueError):
        raise Http404 from None


def _window(request: HttpRequest, stream_: Stream, line: int | None, offset: int | None) -> streams.StreamWindow:
    """The range that the URL names (`first`, `last`), else the lines around one."""
    first_, last = number(request, "first"), number(request, "last")
    picked = logview.picked_range(request)
    if picked is not None and line == picked[0]:
        reach = min(picked[1] - picked[0] + 1 + AROUND, streams.MAX_LINES - AROUND)
        return streams.lines_around_line(stream_, line, before=AROUND, after=reach)
    if first_ is not None and last is not None and last >= first_:
        return streams.stream_lines(stream_, first_, min(last - first_ + 1, streams.MAX_LINES))
    if line is not None:
        return streams.lines_around_line(stream_, line, before=AROUND, after=AROUND)
    if offset is not None:
        return streams.lines_around_offset(stream_, offset, before=AROUND, after=AROUND)
    return streams.stream_lines(stream_, 1, 2 * AROUND)


@dataclass(frozen=True)
class Searched:
    """What was asked for in this stream, and what came of it."""

    query: Query | None = None
    found: Findings | None = None
    refused: str = ""


def _search(request: HttpRequest, stream_: Stream) -> Searched:
    """The search that the address names: `?q=`, `&regex=1`, `&case=1`, `&since=` a line. Raises StreamGone."""
    text = request.GET.get("q", "")
    if not text:
        return Searched()
    query = Query(text, regex=bool(request.GET.get("regex")), case=bool(request.GET.get("case")))
    try:
        return Searched(query, search(stream_, query, since=number(request, "since") or 1))
    except SearchRefused as refused:
        return Searched(refused=str(refused))


def _line(request: HttpRequest, searched: Searched) -> int | None:
    """The line that the page is about: named, picked, or the first match at or after `?near=`."""
    picked = logview.picked_range(request)
    line = number(request, "line") or (picked[0] if picked else None)
    if line is None and searched.found is not None and number(request, "first") is None:
        return searched.found.at_or_after(number(request, "near") or 1)
    return line


def _jump(request: HttpRequest, found: Attempt, stream_: Stream) -> HttpResponse | None:
    """To the line or the moment that was typed; None when it can't be understood. Raises StreamGone."""
    text = request.GET["jump"].strip()
    page = reverse("stream", args=[found.pk, stream_.name])
    kept = {key: request.GET[key] for key in logview.KEPT if request.GET.get(key)}
    line: int | None = None
    if (typed := logview.typed_range(text)) is not None:
        line, last = (max(1, min(number_, stream_.lines)) for number_ in typed)
        if last > line:
            query = urlencode({"lines": f"{line}-{last}", **kept})
            return HttpResponseRedirect(f"{page}?{query}#L{line}-L{last}")
    elif (moment_ := typed_moment(text, stream_.first_at, stream_.last_at, times.zone())) is not None:
        window = streams.lines_around_time(stream_, moment_, before=0, after=1)
        line = window.first if window and window.lines else None
    if not line:
        return None
    return HttpResponseRedirect(f"{page}?{urlencode({'line': line, **kept})}#L{line}")


def _viewer(
    request: HttpRequest,
    found: Attempt,
    story: Story | None,
    stream_: Stream,
    window: streams.StreamWindow,
    line: int | None,
    evidence: EvidenceItem | None,
    searched: Searched | None = None,
) -> dict[str, Any]:
    searched = searched or Searched()
    target = min(line, window.total) if line else None
    if target is None and (offset := number(request, "offset")) is not None:
        target = max((shown.number for shown in window.lines if shown.offset <= offset), default=None)
    here = logview.here(story, stream_)
    picked = logview.picked_range(request)
    shown = logview.shown(
        window.lines, here, target, source=stream_.source, picked=picked, query=searched.query, found=searched.found
    )
    shown = logview.with_part(request, stream_, shown, target, searched.query)
    moment = times.parse(evidence.at) if evidence else None
    return {
        "section": "failures",
        "attempt": found,
        "story": story,
        "stream": stream_,
        "name": printable(stream_.name),
        "window": window,
        "target": target,
        "picked": picked or ((target, target) if target else None),
        "lines": shown,
        "runs": [logview.Run(shown)] if request.GET.get("fold") == "0" else logview.folds(shown),
        "ruler": logview.ruler(window, here, target, searched.found),
        "search": _search_context(request, searched, target or window.first),
        "not_understood": request.GET.get("jump", ""),
        "picked_for": _picked_for(request),
        "logs": _logs(request, found.pk, stream_),
        "moment": moment,
        "lanes": _lanes(found, stream_, moment, story) if moment and request.GET.get("lanes") else None,
        **logview.more(request, found.pk, stream_, window),
    }


def _logs(request: HttpRequest, pk: int, stream_: Stream) -> list[tuple[Stream, str, str]]:
    """The attempt's logs with their names and addresses, to go to another one."""
    kept = f"?for={picked_for}" if (picked_for := _picked_for(request)) else ""
    return [
        (log, printable(log.name), reverse("stream", args=[pk, log.name]) + kept)
        for log in streams.kept_logs(pk, MAX_LOGS)
        if log.pk != stream_.pk
    ]


def _search_context(request: HttpRequest, searched: Searched, line: int) -> dict[str, Any]:
    found = searched.found
    return {
        "q": request.GET.get("q", ""),
        "regex": bool(request.GET.get("regex")),
        "case": bool(request.GET.get("case")),
        "refused": searched.refused,
        "found": found,
        "rest": logview.kept_part(request),
        "place": found.place(line) if found else None,
        "next": found.next(line) if found else None,
        "previous": found.previous(line) if found else None,
    }


def _lanes(found: Attempt, stream_: Stream, moment: datetime, story: Story | None) -> list[Lane]:
    lanes = []
    nodes = [node["node"] for node in story.diagnosis.contract["affected_nodes"]] if story else []
    prefer = [node for node in dict.fromkeys([stream_.node or "", *nodes]) if node]
    for window in streams.same_moment(found, moment, but=stream_, prefer=prefer):
        shown = logview.shown(window.lines, logview.here(story, window.stream))
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
        "lines": (shown := logview.shown(found_lines, here, evidence.line)),
        "runs": [logview.Run(shown)],
        "target": evidence.line,
        "moment": times.parse(evidence.at),
        "lanes": [],
        "gone": True,
    }
