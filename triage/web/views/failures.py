"""Failures: the list, newest first, filters in the URL; and the poll that keeps it current without moving a row."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone

from engine.model import Outcome
from triage.models import Attempt, TriageState
from triage.selectors import attempts as select
from triage.web import words
from triage.web.htmx import fragment, signed_in

ENDED = {"24h": ("Last 24 hours", 24), "7d": ("Last 7 days", 168), "30d": ("Last 30 days", 720)}
FAILED_OUTCOMES = ("", *[outcome.value for outcome in Outcome if outcome is not Outcome.SUCCEEDED])
"""What the list shows unless an outcome is asked for; the empty one is not diagnosed yet."""
FACETS = (
    ("status", "Triage"),
    ("domain", "Domain"),
    ("node", "Node blamed"),
    ("outcome", "Outcome"),
    ("cluster", "Cluster"),
    ("user", "User"),
)
FILTERS = ("domain", "sub_domain", "cluster", "node", "user", "outcome", "status", "ended", "since", "until", "text")
MAX_NEWS = 99


@dataclass(frozen=True)
class Choice:
    """One box of a facet."""

    value: str
    label: str
    count: int
    selected: bool


@dataclass(frozen=True)
class Drop:
    """A filter in force, and the list's address without it."""

    label: str
    url: str


def read_filter(query: QueryDict) -> tuple[select.AttemptFilter, select.AttemptFilter]:
    """What the person chose, and what the list is narrowed to (successes hidden, relative times resolved)."""
    chosen = select.AttemptFilter.from_query(query)
    if chosen.until and len(query.get("until", "")) == 10:
        chosen = replace(chosen, until=chosen.until + timedelta(days=1))  # a day is meant whole
    narrowed = chosen
    if not chosen.outcome:
        narrowed = replace(narrowed, outcome=FAILED_OUTCOMES)
    if query.get("ended") in ENDED:
        since = timezone.now() - timedelta(hours=ENDED[query["ended"]][1])
        narrowed = replace(narrowed, since=max(since, narrowed.since) if narrowed.since else since)
    return chosen, narrowed


@signed_in
def failures(request: HttpRequest) -> HttpResponse:
    """The list. Every filter and the place in it are in the URL, so Back and a copied link restore them."""
    chosen, narrowed = read_filter(request.GET)
    try:
        page = select.list_attempts(narrowed, cursor=request.GET.get("cursor"))
    except select.CursorError:
        return redirect(_address(request.GET))
    filtered = any(request.GET.get(name) for name in FILTERS)
    succeeded = replace(narrowed, outcome=(Outcome.SUCCEEDED.value,)) if not chosen.outcome else None
    context = {
        "section": "failures",
        "page": page,
        "rows": page.attempts,
        "total": select.count_attempts(narrowed),
        "succeeded": select.count_attempts(succeeded) if succeeded else 0,
        "succeeded_url": _address(request.GET, outcome=Outcome.SUCCEEDED.value),
        "facets": _facets(chosen, narrowed),
        "filtered": filtered,
        "drops": _drops(request.GET),
        "ended": request.GET.get("ended", ""),
        "ended_choices": [(value, label) for value, (label, _) in ENDED.items()],
        "text": chosen.text,
        "sub_domains": chosen.sub_domain,
        "counts": select.triage_counts(),
        "cursor": request.GET.get("cursor", ""),
        "older_url": _address(request.GET, cursor=page.older) if page.older else "",
        "newer_url": _address(request.GET, cursor=page.newer) if page.newer else "",
        **_poll(request.GET, page.attempts, bool(request.GET.get("cursor"))),
    }
    return render(request, "failures/list.html", context)


@signed_in
def news(request: HttpRequest) -> HttpResponse:
    """What changed since the list was made: how many newer rows there are, and the rows that were still being triaged.

    `top` is the first row of the list (0: it was empty, nothing: not the first page), `rows` are `id:state` of
    unfinished ones.
    """
    _, narrowed = read_filter(request.GET)
    top = request.GET.get("top", "")
    newer = 0
    if top == "0":
        newer = min(select.count_attempts(narrowed), MAX_NEWS)
    elif top.isdecimal():
        first = Attempt.objects.only("sort_at").filter(pk=int(top[:18])).first()
        newer = min(select.count_newer(narrowed, first), MAX_NEWS) if first else 0
    known = dict(pair.split(":", 1) for pair in request.GET.get("rows", "").split(",")[:200] if ":" in pair)
    ids = [int(pk) for pk in known if pk.isdecimal() and len(pk) < 19]
    rows = select.attempt_rows(ids) if ids else []
    changed = [row for row in rows if known.get(str(row.pk)) != row.triage_state]
    poll = _poll(request.GET, rows, not top, top=top)
    context = {
        "newer": newer,
        "newer_more": newer == MAX_NEWS,
        "show_url": _address(request.GET),
        "changed": changed,
        "poll_url": poll["poll_url"],
    }
    return fragment(request, "failures/_news.html", context, _address(request.GET), f"{newer}|{poll['poll_url']}")


def _poll(query: QueryDict, rows: list[Attempt], inner: bool, top: str | None = None) -> dict[str, Any]:
    params = _params(query)
    if not inner:
        params["top"] = top if top is not None else str(rows[0].pk if rows else 0)
    waiting = [
        f"{row.pk}:{row.triage_state}" for row in rows if row.triage_state not in (TriageState.DONE, TriageState.FAILED)
    ]
    if waiting:
        params["rows"] = ",".join(waiting)
    return {"poll_url": f"{reverse('failures-news')}?{params.urlencode()}", "poll": bool(waiting) or not inner}


def _params(query: QueryDict) -> QueryDict:
    params = QueryDict(mutable=True)
    for name in FILTERS:
        values = [value for value in query.getlist(name) if value]
        if values:
            params.setlist(name, values)
    return params


def _address(query: QueryDict, **changes: str | None) -> str:
    """The list's address with the filters of `query` and some changes."""
    params = _params(query)
    for name, value in changes.items():
        if value is not None:
            params[name] = value
    encoded = params.urlencode()
    return reverse("failures") + (f"?{encoded}" if encoded else "")


def _facets(chosen: select.AttemptFilter, narrowed: select.AttemptFilter) -> list[tuple[str, str, list[Choice]]]:
    counts = select.facet_counts(narrowed)
    no_node = select.count_attempts(replace(narrowed, node=(select.NO_NODE,)))
    facets = []
    for name, label in FACETS:
        picked: tuple[str, ...] = getattr(chosen, name)
        choices = [
            Choice(item.value, _label(name, item.value), item.count, item.value in picked)
            for item in counts[name]
            if item.value != select.NO_NODE and item.value.isprintable() and (item.count or item.value in picked)
        ]
        if name == "node" and (no_node or select.NO_NODE in picked):
            choices.append(Choice(select.NO_NODE, "No node to blame", no_node, select.NO_NODE in picked))
        if choices:
            facets.append((name, label, choices))
    return facets


def _label(facet: str, value: str) -> str:
    if facet == "status":
        return str(TriageState(value).label) if value in TriageState.values else value
    if facet in ("domain", "outcome"):
        return getattr(words, facet)(value)
    return value


def _drops(query: QueryDict) -> list[Drop]:
    drops = []
    for name in FILTERS:
        values = [value for value in query.getlist(name) if value]
        for value in values:
            left = _params(query)
            rest = [other for other in values if other != value]
            if rest:
                left.setlist(name, rest)
            else:
                left.pop(name, None)
            shown = ENDED[value][0].lower() if name == "ended" and value in ENDED else value.replace("_", " ")
            encoded = left.urlencode()
            drops.append(
                Drop(f"{name.replace('_', '-')}: {shown}", reverse("failures") + (f"?{encoded}" if encoded else ""))
            )
    return drops
