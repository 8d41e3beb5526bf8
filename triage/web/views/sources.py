"""Sources: what is configured, whether it answers, and how to connect the first."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST

from connectors.base import ConfigError
from triage.access.rights import responders, signed_in
from triage.selectors.queue import queues
from triage.selectors.sources import sources
from triage.services.discovery import search_soon
from triage.web.htmx import etag_of, fragment


@signed_in
def index(request: HttpRequest) -> HttpResponse:
    """Every source by cluster."""
    context, state = _context()
    queue, stands = _queue()
    return render(
        request, "sources/page.html", {**context, **queue, "etag": etag_of(state), "queue_etag": etag_of(stands)}
    )


@signed_in
def news(request: HttpRequest) -> HttpResponse:
    """The table as a fragment that renews itself."""
    context, state = _context()
    return fragment(request, "sources/_table.html", context, reverse("sources"), state)


@signed_in
def waiting(request: HttpRequest) -> HttpResponse:
    """What waits to be diagnosed, as a fragment that renews itself."""
    context, state = _queue()
    return fragment(request, "sources/_queue.html", context, reverse("sources"), state)


@require_POST
@responders
def search(request: HttpRequest) -> HttpResponse:
    """Asks a worker to search a source at once."""
    key = request.POST.get("source", "")
    try:
        if key not in {row.key for row in sources().rows}:
            raise ConfigError(f"source {key!r} is not configured")
        search_soon(key)
    except ConfigError as error:
        messages.error(request, f"Not searched: {error}")
    else:
        messages.success(request, f"{key} is searched as soon as a worker is free; the result appears here.")
    return redirect("sources")


def _context() -> tuple[dict[str, Any], str]:
    found = sources()
    clusters: dict[str, list[Any]] = {}
    for row in found.rows:
        clusters.setdefault(row.cluster, []).append(row)
    state = repr([(row, row.searched_at) for row in found.rows])
    return {"found": found, "clusters": clusters.items(), "news_url": reverse("sources-news")}, state


def _queue() -> tuple[dict[str, Any], str]:
    rows = queues()
    return {"queues": rows, "queue_url": reverse("sources-queue")}, repr(rows)
