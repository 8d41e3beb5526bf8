"""Failures: the list, everything in its address; and the poll that keeps it current without moving a row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from engine.model import Outcome
from triage.access.rights import signed_in
from triage.models import Attempt, TriageState
from triage.selectors import attempts as select
from triage.selectors.facets import counts
from triage.selectors.incidents import people
from triage.selectors.query import FIELDS, Query, Term
from triage.selectors.repeats import repeats
from triage.selectors.sources import any_configured, troubles
from triage.selectors.suggestions import suggest
from triage.services.saved_views import teams_of
from triage.web import inbox
from triage.web.htmx import fragment

MAX_NEWS = 99


@signed_in
def failures(request: HttpRequest) -> HttpResponse:
    """The list. Every filter and the place in it are in the URL, so Back and a copied link restore them."""
    if not request.GET:
        chosen = inbox.default_address(request.user)
        if chosen:
            return redirect(chosen)
    view = inbox.View.of(request.GET)
    if view.query.errors:
        return _not_understood(request, view)
    narrowed = view.narrowed(request.user)
    try:
        page = select.list_attempts(narrowed, order=view.order, cursor=request.GET.get("cursor"))
    except select.CursorError:
        return redirect(view.address())
    counted = counts(narrowed)
    hidden = not view.query.values("outcome")
    context = {
        **_frame(request, view, counted.total if counted.since is None else None),
        "rows": with_repeats(page.attempts),
        "counted": counted,
        "succeeded": counted.succeeded if hidden else 0,
        "succeeded_more": counted.succeeded_more,
        "succeeded_url": view.asking(view.query.plus(Term("outcome", Outcome.SUCCEEDED))).address(),
        "boxes": inbox.boxes(view, counted),
        "drops": inbox.drops(view, request.user, count=not page.attempts and not request.GET.get("cursor")),
        "cursor": request.GET.get("cursor", ""),
        "older_url": view.address(cursor=page.older) if page.older else "",
        "newer_url": view.address(cursor=page.newer) if page.newer else "",
        "people": people(),
        "troubles": troubles(narrowed.cluster),
        "connected": bool(page.attempts) or any_configured(),
        **_poll(view, page.attempts, bool(request.GET.get("cursor")) or view.order is not select.Order.NEWEST),
    }
    return render(request, "failures/list.html", context)


@signed_in
def news(request: HttpRequest) -> HttpResponse:
    """What changed since the list was made: how many newer rows there are, and the rows that were still being triaged.

    `top` is the first row of the list (0: it was empty, nothing: not the first page), `rows` are `id:state` of
    unfinished ones.
    """
    view = inbox.View.of(request.GET)
    narrowed = view.narrowed(request.user)
    top = request.GET.get("top", "")
    newer = 0
    if top == "0":
        newer = select.count_attempts(narrowed, limit=MAX_NEWS)
    elif top.isdecimal():
        first = Attempt.objects.only("sort_at").filter(pk=int(top[:18])).first()
        newer = select.count_newer(narrowed, first, limit=MAX_NEWS) if first else 0
    known = dict(pair.split(":", 1) for pair in request.GET.get("rows", "").split(",")[:200] if ":" in pair)
    ids = [int(pk) for pk in known if pk.isdecimal() and len(pk) < 19]
    rows = select.attempt_rows(ids) if ids else []
    changed = [row for row in rows if known.get(str(row.pk)) != row.triage_state]
    poll = _poll(view, rows, not top, top=top)
    context = {
        "view": view,
        "newer": newer,
        "newer_more": newer == MAX_NEWS,
        "show_url": view.address(),
        "changed": with_repeats(changed),
        "poll_url": poll["poll_url"],
    }
    return fragment(request, "failures/_news.html", context, view.address(), f"{newer}|{poll['poll_url']}")


@signed_in
def suggestions(request: HttpRequest) -> HttpResponse:
    """What the word that is being written could become. Asked for by the search box alone."""
    text = request.GET.get("q", "")
    found = suggest(text, request.user)
    state = f"{text}|{[(one.text, one.note) for one in found]}"
    return fragment(request, "failures/_suggest.html", {"suggestions": found}, inbox.list_address(text), state)


def with_repeats(rows: list[Attempt]) -> list[Attempt]:
    """Gives each row its `repeat`."""
    found = repeats(rows)
    for row in rows:
        row.repeat = found.get(row.pk)  # type: ignore[attr-defined]
    return rows


def _frame(request: HttpRequest, view: inbox.View, total: int | None = None) -> dict[str, Any]:
    """What the page shows whatever the list holds."""
    return {
        "section": "failures",
        "view": view,
        "query": str(view.query),
        "filtered": bool(view.query.terms),
        "tabs": inbox.tabs(view, request.user, total),
        "teams": teams_of(request.user),
        "period": inbox.period(view.query),
        "kept": inbox.kept(view),
        "ended_choices": inbox.ENDED.items(),
        "orders": inbox.ORDERS.items(),
        "columns": inbox.COLUMNS.items(),
        "address": view.address(),
        "search": inbox.encoded(view.params()),
        "csv_url": view.address("failures-csv"),
        "json_url": view.address("failures-json"),
        "feed_url": f"{reverse('following')}?{inbox.encoded({'kind': 'failures', 'about': str(view.query)})}",
        "all_url": inbox.list_address(),
        "fields": FIELDS.values(),
    }


def _not_understood(request: HttpRequest, view: inbox.View) -> HttpResponse:
    """Nothing is listed for a search that is not understood: a list that ignores a word would mislead."""
    understood = Query(view.query.terms)
    context = {**_frame(request, view), "errors": view.query.errors, "understood": str(understood)}
    context["understood_url"] = view.asking(understood).address()
    return render(request, "failures/list.html", context)


def _poll(view: inbox.View, rows: list[Attempt], inner: bool, top: str | None = None) -> dict[str, Any]:
    more: dict[str, str] = {}
    if not inner:
        more["top"] = top if top is not None else str(rows[0].pk if rows else 0)
    waiting = [
        f"{row.pk}:{row.triage_state}" for row in rows if row.triage_state not in (TriageState.DONE, TriageState.FAILED)
    ]
    if waiting:
        more["rows"] = ",".join(waiting)
    address = replace(view).params(**more)
    return {"poll_url": f"{reverse('failures-news')}?{inbox.encoded(address)}", "poll": bool(waiting) or not inner}
