"""The metrics of an attempt: as data for the plots beneath its timeline, and as a table on a page."""

from __future__ import annotations

from typing import Any

from django.core.cache import cache
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import reverse

from triage import times
from triage.access.rights import signed_in
from triage.selectors.metric_plots import MAX_TABLE, as_plain, charts, measured, metric_streams, rows
from triage.selectors.timeline import View, picture
from triage.text import printable_tree
from triage.web import timeline
from triage.web.found import attempt_or_404, diagnosed_or_404
from triage.web.views.evidence import story_or_none

KEPT_SECONDS = 600


@signed_in
def data(request: HttpRequest, pk: int) -> HttpResponse:
    """What `metrics.js` draws. Thinned out here: at most two samples of a series a pixel or so."""
    found = diagnosed_or_404(pk)
    asked = timeline.asked(request, found.started_at, found.ended_at)
    view = View(first=asked.view.first, last=asked.view.last)
    key = f"metrics:{found.pk}:{found.diagnosis.pk}:{times.zone()}:{view.first}:{view.last}"
    plain: dict[str, Any] | None = cache.get(key)
    if plain is None:
        contract = found.diagnosis.contract
        drawn = picture(printable_tree(contract), view)
        if drawn is None:
            raise Http404("Nothing in this diagnosis has a time.")
        read = measured(found, metric_streams(found))
        made, left_out = charts(read, contract, drawn.axis)
        plain = as_plain(drawn, made, left_out, read.troubles)
        cache.set(key, plain, KEPT_SECONDS)
    plain = plain | {"zone": request.zone.name, "evidence": reverse("evidence-first", args=[pk])}  # type: ignore[attr-defined]
    return JsonResponse(plain, json_dumps_params={"ensure_ascii": True, "separators": (",", ":")})


@signed_in
def table(request: HttpRequest, pk: int) -> HttpResponse:
    """Every series in figures: what the plots show, without a picture."""
    found = attempt_or_404(pk)
    story = story_or_none(found)
    streams = metric_streams(found)
    read = measured(found, streams)
    made = rows(read, found.diagnosis.contract) if found.diagnosis else []
    context = {
        "section": "failures",
        "attempt": found,
        "story": story,
        "streams": streams,
        "rows": made[:MAX_TABLE],
        "rows_left": max(0, len(made) - MAX_TABLE),
        "troubles": read.troubles,
        "root": story.contract["root_cause"] if story else None,
    }
    return render(request, "attempt/metrics.html", context)
