"""Incidents: the list, one with its timeline and what people do with it, and the report drafted from it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_POST

from triage import words
from triage.access.rights import responders, signed_in
from triage.models import Incident, Severity, Ticket
from triage.selectors import incident_lists as lists
from triage.selectors import incidents as select
from triage.selectors.attempts import CursorError
from triage.selectors.filters import read_moment
from triage.selectors.guides import guide
from triage.selectors.threads import MANY, SHOWN_AT_FIRST, Group, incident_state, incident_thread
from triage.services import incidents as act
from triage.web import undo
from triage.web.discussion import compose
from triage.web.forms import incident_number, number
from triage.web.found import incident_or_404
from triage.web.htmx import etag_of, fragment, is_htmx, is_known
from triage.web.incident_report import incident_report
from triage.web.incident_view import ORDERS, SEVERITIES, VIEWS, ListView
from triage.web.markdown import render as render_markdown
from triage.web.tables import csv_answer
from triage.web.views.attempts import download

MAX_NEWS = 99
CSV_COLUMNS = (
    "incident", "title", "status", "severity", "assignee", "domain", "sub_domain", "rule", "attempts", "gpu_hours_lost",
    "nodes_blamed_most", "nodes_blamed", "first_seen", "last_seen",
)  # fmt: skip
GROUPS = ((Group.COMMENTS, "Comments"), (Group.DECISIONS, "Decisions"), (Group.ATTEMPTS, "Attempts"))
ALL_ATTEMPTS = 1_000
ALL = 5_000
"""Entries of a timeline that a page shows at most."""


@signed_in
def index(request: HttpRequest) -> HttpResponse:
    """The list, open ones first. Everything it is narrowed to is in its address."""
    asked = ListView.of(request.GET)
    narrowed = asked.narrowed(request.user)
    cursor = request.GET.get("cursor", "")
    try:
        found = lists.list_incidents(narrowed, order=asked.order, cursor=cursor)
    except (CursorError, OverflowError):
        return redirect(f"{reverse('incidents')}?{asked.params()}")
    counts = lists.incident_counts(request.user)
    newest = found.incidents[0].last_at if found.incidents else None
    renews = asked.order == lists.IncidentOrder.LAST and not cursor and newest is not None
    context = {
        "section": "incidents",
        "views": [(name, label, counts[name]) for name, label in VIEWS],
        "asked": asked,
        "total": lists.count_incidents(narrowed) if asked.filtered else counts[asked.view],
        "domains": [(name, words.domain(name)) for name in words.DOMAINS if name != "unattributed"],
        "people": select.people(),
        "severities": SEVERITIES,
        "orders": ORDERS.items(),
        "rows": found.incidents,
        "cursor": cursor,
        "older_url": f"?{asked.params(cursor=found.older)}" if found.older else "",
        "newest_url": f"?{asked.params()}",
        "clear_url": f"?{ListView(view=asked.view).params()}",
        "csv_url": f"{reverse('incidents-csv')}?{asked.params()}",
        "feed_url": f"{reverse('following')}?{urlencode({'kind': 'incidents', 'about': asked.params()})}",
        "any": counts["open"] + counts["resolved"],
        "poll_url": _news_url(asked, newest) if renews and newest else "",
    }
    return render(request, "incident/list.html", context)


@signed_in
def news(request: HttpRequest) -> HttpResponse:
    """How many incidents of the list failed again since `since`."""
    asked = ListView.of(request.GET)
    since = read_moment(request.GET.get("since"))
    again = min(lists.count_since(asked.narrowed(request.user), since), MAX_NEWS) if since else 0
    context = {
        "newer": again,
        "newer_more": again == MAX_NEWS,
        "show_url": f"{reverse('incidents')}?{asked.params()}",
        "poll_url": _news_url(asked, since) if since else "",
    }
    return fragment(request, "incident/_news.html", context, context["show_url"], str(again))


def _news_url(asked: ListView, since: datetime) -> str:
    return f"{reverse('incidents-news')}?{asked.params(since=since.isoformat())}"


@signed_in
def as_csv(request: HttpRequest) -> HttpResponse:
    """Every incident of the list, in its order."""
    asked = ListView.of(request.GET)
    rows = lists.all_incidents(asked.narrowed(request.user), asked.order)
    return csv_answer("incidents", CSV_COLUMNS, map(_csv_row, rows))


def _csv_row(one: Incident) -> tuple[Any, ...]:
    return (
        one.name, one.title, one.status, one.severity, one.assignee.get_username() if one.assignee else None,
        one.domain, one.sub_domain, one.rule, one.attempts_count, round(one.gpu_hours, 3), " ".join(one.nodes),
        one.nodes_count, one.first_at.isoformat() if one.first_at else None,
        one.last_at.isoformat() if one.last_at else None,
    )  # fmt: skip


@signed_in
def page(request: HttpRequest, pk: int) -> HttpResponse:
    """One incident. A merged one leads to what it was merged into."""
    incident = incident_or_404(pk)
    if incident.merged_into_id is not None:
        target = select.in_force(incident)
        if target is None:
            raise Http404
        messages.info(request, f"{incident.name} was merged into this incident.")
        return redirect("incident", pk=target.pk)
    every = request.GET.get("attempts") == "all"
    shown = ALL_ATTEMPTS if every else select.MAX_ATTEMPTS
    detail = select.incident_detail(pk, attempts=shown, among=max(select.AMONG, shown))
    return render(
        request,
        "incident/page.html",
        {
            "section": "incidents",
            "incident": detail.incident,
            "subject": detail.incident,
            "detail": detail,
            "most_system": MANY,
            "parts": select.ordered_parts(detail.incident),
            "related": detail.related,
            "beside": lists.beside(detail.incident),
            "guide": guide(detail.incident.rule, detail.incident.title) if detail.incident.rule else None,
            "span": _span(detail.incident),
            "people": select.people(),
            "statuses": [(str(status), str(status.label)) for status in act.BY_HAND],
            "severities": Severity.choices,
            "undoable": {merged.pk for merged in detail.merged},
            "compose": compose(request, detail.incident),
            "elsewhere": True,
            **_timeline(request, pk),
        },
    )


def _span(incident: Incident) -> int:
    """Days from the first attempt to the last, at least one."""
    if incident.first_at is None or incident.last_at is None:
        return 0
    return max(1, (incident.last_at - incident.first_at).days)


@signed_in
def timeline(request: HttpRequest, pk: int) -> HttpResponse:
    """The timeline as a fragment that renews itself."""
    incident = incident_or_404(pk)
    state_ = incident_state(pk)
    context: dict[str, Any] = {"thread_url": _timeline_url(request, pk)}
    if is_htmx(request) and not is_known(request, state_):
        merged = {merged.pk for merged in incident.merged.all()}
        context |= {"incident": incident, "subject": incident, "undoable": merged, "elsewhere": True}
        context |= _timeline(request, pk)
    back = reverse("incident", args=[pk]) + "#discussion"
    return fragment(request, "incident/_thread_news.html", context, back, state_)


def _groups(request: HttpRequest) -> list[str]:
    chosen = [kind for kind in request.GET.getlist("kind") if kind in list(Group)]
    return chosen or [str(group) for group in SHOWN_AT_FIRST]


def _timeline_url(request: HttpRequest, pk: int) -> str:
    return f"{reverse('incident-timeline', args=[pk])}?{urlencode({'kind': _groups(request)}, doseq=True)}"


def _timeline(request: HttpRequest, pk: int) -> dict[str, Any]:
    groups = _groups(request)
    everything = request.GET.get("entries") == "all"
    thread = incident_thread(pk, groups, **({"limit": ALL} if everything else {}))
    query = urlencode({"kind": groups, "entries": "all"}, doseq=True)
    return {
        "thread": thread,
        "thread_url": _timeline_url(request, pk),
        "thread_etag": etag_of(incident_state(pk)),
        "groups": [(str(group), label, str(group) in groups) for group, label in GROUPS],
        "system_shown": Group.SYSTEM in groups,
        "all_url": "" if everything else f"?{query}#discussion",
    }


@require_POST
@responders
def state(request: HttpRequest, pk: int) -> HttpResponse:
    """Status, assignee, severity and title at once; each only when it was changed in the form."""
    incident_or_404(pk)
    sent, user = request.POST.copy(), request.user
    if "take" in sent:
        sent["assignee"] = str(user.pk)
    changes: dict[str, Callable[[str, str], bool]] = {
        "status": lambda new, old: act.set_status(pk, user, new, seen=old, note=sent.get("note", "")),
        "assignee": lambda new, old: act.assign(pk, user, number(new), seen=number(old)),
        "severity": lambda new, old: act.set_severity(pk, user, number(new), seen=number(old)),
        "title": lambda new, old: act.rename(pk, user, new, seen=old),
    }
    saved: list[tuple[str, str, str]] = []
    for name, change in changes.items():
        new, old = sent.get(name), sent.get(f"was_{name}", "")
        if new is None or new == old:
            continue
        try:
            if change(new, old):
                saved.append((name, old, new))
        except (act.IncidentRefused, act.IncidentConflict) as trouble:
            messages.warning(request, f"{trouble} Yours was not saved.")
    if saved:
        named = ", ".join(name for name, _, _ in saved)
        undo.offer(request, "incident-state", f"Saved: {named}.", incident=pk, changes=saved)
    return redirect("incident", pk=pk)


@undo.undoes("incident-state")
def _state_back(user: User, facts: dict[str, Any]) -> str:
    pk = facts["incident"]
    changes: dict[str, Callable[[str, str], bool]] = {
        "status": lambda old, new: act.set_status(pk, user, old, seen=new, undo=True),
        "assignee": lambda old, new: act.assign(pk, user, number(old), seen=number(new)),
        "severity": lambda old, new: act.set_severity(pk, user, number(old), seen=number(new)),
        "title": lambda old, new: act.rename(pk, user, old, seen=new),
    }
    done, trouble = [], []
    for name, old, new in facts["changes"]:
        try:
            if changes[name](old, new):
                done.append(name)
        except (act.IncidentRefused, act.IncidentConflict) as error:
            trouble.append(str(error))
    if trouble and not done:
        raise undo.NotUndone(" ".join(trouble))
    return " ".join([f"As before: {', '.join(done)}.", *trouble])


@require_POST
@responders
def merge(request: HttpRequest, pk: int) -> HttpResponse:
    """Another incident (`other`: its number or its address) becomes part of this one."""
    incident_or_404(pk)
    other = incident_number(request.POST.get("other", ""))
    if other is None:
        messages.warning(request, "Write the number or paste the address of the other incident, for example INC-97.")
        return redirect("incident", pk=pk)
    try:
        target = act.merge(other, pk, request.user)
    except act.IncidentRefused as refused:
        messages.warning(request, str(refused))
        return redirect("incident", pk=pk)
    undo.offer(request, "incident-merge", f"INC-{other} is part of this incident now.", source=other)
    return redirect("incident", pk=target.pk)


@undo.undoes("incident-merge")
def _merge_back(user: User, facts: dict[str, Any]) -> str:
    if not act.unmerge(facts["source"], user):
        raise undo.NotUndone(f"INC-{facts['source']} stands on its own already.")
    return f"INC-{facts['source']} stands on its own again."


@require_POST
@responders
def unmerge(request: HttpRequest, pk: int) -> HttpResponse:
    """Takes this incident out of the one that it was merged into."""
    incident = incident_or_404(pk)
    target = incident.merged_into_id
    if act.unmerge(pk, request.user):
        said = f"INC-{pk} stands on its own again."
        undo.offer(request, "incident-unmerge", said, source=pk, target=target)
    return redirect("incident", pk=pk)


@undo.undoes("incident-unmerge")
def _unmerge_back(user: User, facts: dict[str, Any]) -> str:
    try:
        target = act.merge(facts["source"], facts["target"], user)
    except act.IncidentRefused as refused:
        raise undo.NotUndone(str(refused)) from None
    return f"INC-{facts['source']} is part of {target.name} again."


@require_POST
@responders
def split(request: HttpRequest, pk: int) -> HttpResponse:
    """The chosen attempts become an incident of their own."""
    incident_or_404(pk)
    chosen = [pk_ for value in request.POST.getlist("attempt") if (pk_ := number(value)) is not None]
    try:
        new = act.split(pk, chosen, request.user, title=request.POST.get("title", ""))
    except act.IncidentRefused as refused:
        messages.warning(request, str(refused))
        return HttpResponseRedirect(reverse("incident", args=[pk]) + "#at")
    undo.offer(request, "incident-unmerge", f"Split off from INC-{pk}.", source=new.pk, target=pk)
    return redirect("incident", pk=new.pk)


@require_POST
@responders
def not_the_same(request: HttpRequest, pk: int) -> HttpResponse:
    """The proposal is wrong: these two are different."""
    incident_or_404(pk)
    other = number(request.POST.get("other")) or 0
    try:
        if act.say_not_the_same(pk, other, request.user):
            said = f"INC-{other} will not be proposed here again."
            undo.offer(request, "incident-not-the-same", said, one=pk, other=other)
    except act.IncidentRefused as refused:
        messages.warning(request, str(refused))
    return redirect("incident", pk=pk)


@undo.undoes("incident-not-the-same")
def _maybe_the_same(user: User, facts: dict[str, Any]) -> str:
    if not act.say_maybe_the_same(facts["one"], facts["other"], user):
        raise undo.NotUndone("Somebody took it back already.")
    return f"INC-{facts['other']} can be proposed here again."


@require_POST
@responders
def add_ticket(request: HttpRequest, pk: int) -> HttpResponse:
    """A link to where else it is worked on."""
    incident_or_404(pk)
    sent = request.POST
    try:
        act.link_ticket(
            pk, request.user, url=sent.get("url", ""), label=sent.get("label", ""), note=sent.get("note", "")
        )
    except act.IncidentRefused as refused:
        messages.warning(request, str(refused))
    return redirect("incident", pk=pk)


@require_POST
@responders
def remove_ticket(request: HttpRequest, pk: int) -> HttpResponse:
    """Takes a link away."""
    ticket = Ticket.objects.filter(pk=pk).first()
    if ticket is None:
        raise Http404
    if act.unlink_ticket(pk, request.user):
        facts = {"incident": ticket.incident_id, "url": ticket.url, "label": ticket.label, "note": ticket.note}
        undo.offer(request, "incident-ticket", f"Took {ticket.label} away.", **facts)
    return redirect("incident", pk=ticket.incident_id)


@undo.undoes("incident-ticket")
def _ticket_back(user: User, facts: dict[str, Any]) -> str:
    try:
        ticket = act.link_ticket(facts["incident"], user, url=facts["url"], label=facts["label"], note=facts["note"])
    except act.IncidentRefused as refused:
        raise undo.NotUndone(str(refused)) from None
    return f"{ticket.label} is linked again."


@signed_in
def report(request: HttpRequest, pk: int) -> HttpResponse:
    """The report as a page to print."""
    incident = incident_or_404(pk)
    text = incident_report(incident, request.build_absolute_uri("/"))
    context = {"section": "incidents", "incident": incident, "report": render_markdown(text, headings_from=1)}
    return render(request, "incident/report.html", context)


@signed_in
def report_markdown(request: HttpRequest, pk: int) -> HttpResponse:
    """The report to go on writing in."""
    incident = incident_or_404(pk)
    text = incident_report(incident, request.build_absolute_uri("/"))
    return download(text, "text/markdown; charset=utf-8", f"{incident.name}.md")
