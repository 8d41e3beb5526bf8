"""Incidents: the list, one with its timeline and what people do with it, and the report drafted from it."""

from __future__ import annotations

from collections.abc import Callable
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
from triage.selectors import incidents as select
from triage.selectors.attempts import CursorError
from triage.selectors.threads import SHOWN_AT_FIRST, Group, incident_state, incident_thread
from triage.services import incidents as act
from triage.web import undo
from triage.web.discussion import compose
from triage.web.forms import incident_number, number
from triage.web.htmx import etag_of, fragment, is_htmx, is_known
from triage.web.incident_report import incident_report
from triage.web.markdown import render as render_markdown
from triage.web.views.attempts import download

VIEWS = (("open", "Open"), ("mine", "Yours"), ("resolved", "Resolved"))
GROUPS = ((Group.COMMENTS, "Comments"), (Group.DECISIONS, "Decisions"), (Group.ATTEMPTS, "Attempts"))
ALL_ATTEMPTS = 1_000
ALL = 5_000
"""Entries of a timeline that a page shows at most."""


def incident_or_404(pk: int) -> Incident:
    try:
        return select.get_incident(pk)
    except (Incident.DoesNotExist, OverflowError):
        raise Http404 from None


@signed_in
def index(request: HttpRequest) -> HttpResponse:
    """The list, open ones first; a view is chosen by `?view=`."""
    view = request.GET.get("view", "open")
    view = view if view in dict(VIEWS) else "open"
    domain = request.GET.get("domain", "")
    try:
        page_ = select.list_incidents(
            "resolved" if view == "resolved" else "open",
            assignee=request.user.pk if view == "mine" else None,
            domain=domain if domain in words.DOMAINS else "",
            cursor=request.GET.get("cursor"),
        )
    except CursorError:
        return redirect(f"{reverse('incidents')}?{urlencode({'view': view})}")
    counts = select.incident_counts(request.user)
    context = {
        "section": "incidents",
        "views": [(name, label, counts[name]) for name, label in VIEWS],
        "view": view,
        "domain": domain,
        "domains": [(name, words.domain(name)) for name in words.DOMAINS if name != "unattributed"],
        "page": page_,
        "rows": page_.incidents,
        "cursor": request.GET.get("cursor", ""),
        "total": sum(counts[name] for name in ("open", "resolved")),
    }
    return render(request, "incident/list.html", context)


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
    detail = select.incident_detail(pk, attempts=ALL_ATTEMPTS if every else select.MAX_ATTEMPTS)
    return render(
        request,
        "incident/page.html",
        {
            "section": "incidents",
            "incident": detail.incident,
            "subject": detail.incident,
            "detail": detail,
            "parts": select.ordered_parts(detail.incident),
            "related": select.related(detail.incident),
            "beside": select.beside(detail.incident),
            "people": select.people(),
            "statuses": [(str(status), str(status.label)) for status in act.BY_HAND],
            "severities": Severity.choices,
            "undoable": {merged.pk for merged in detail.merged},
            "compose": compose(request, detail.incident),
            "elsewhere": True,
            **_timeline(request, pk),
        },
    )


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
    sent, user = request.POST, request.user
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
