"""The timeline of an attempt: a part of its page, and a fragment when somebody zooms or filters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.cache import patch_vary_headers

from engine.model import Source
from triage.access.rights import signed_in
from triage.models import Attempt
from triage.selectors.evidence import tell
from triage.selectors.timeline import picture
from triage.web import timeline
from triage.web.found import diagnosed_or_404
from triage.web.htmx import is_htmx


@signed_in
def part(request: HttpRequest, pk: int) -> HttpResponse:
    """The timeline as the address asks for it. The page's own address goes into the history, never this one."""
    page = reverse("attempt", args=[pk]) + timeline.address(request)
    if not is_htmx(request):
        return redirect(f"{page}#timeline")
    found = diagnosed_or_404(pk)
    story = tell(found.diagnosis, reverse("evidence-first", args=[pk]))
    metrics = found.streams.filter(source=Source.METRIC.value).exclude(blob="").count()
    context = {"attempt": found, "d": story.contract, "trail": story.trail, "metric_count": metrics}
    context |= timeline_context(request, found, story.contract)
    answer = render(request, "attempt/_timeline.html", context)
    answer.headers["HX-Push-Url"] = page
    patch_vary_headers(answer, ("HX-Request", "Cookie"))
    return answer


def timeline_context(request: HttpRequest, attempt: Attempt, contract: Mapping[str, Any]) -> dict[str, Any]:
    """The picture (`t`) and its controls (`tl`). Without any time, all that is left is the table."""
    asked = timeline.asked(request, attempt.started_at, attempt.ended_at)
    drawn = picture(contract, asked.view)
    if drawn is None:
        return {"t": None, "tl": timeline.timeless(contract)}
    return {"t": drawn, "tl": timeline.context(request, drawn, asked.refused)}
