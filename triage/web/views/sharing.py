"""Share links: made and revoked by people who signed in, opened by whoever has the address."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST

from triage import words
from triage.access.address import client_address, network_of
from triage.access.rights import open_to_all, responders
from triage.access.sight import seeing
from triage.access.viewer import viewer_of
from triage.models import Attempt, Incident, ShareLink
from triage.selectors.incidents import incident_detail, ordered_parts
from triage.selectors.shared import plain_title, shared_attempt, shared_incident
from triage.selectors.verdicts import said
from triage.services import sharing
from triage.text import printable
from triage.web.found import diagnosed_or_404, incident_or_404
from triage.web.incident_report import attempt_summary, incident_summary
from triage.web.open_addresses import LINK_RATE, private, too_often
from triage.web.views.attempts import story_of


@responders
def share_attempt(request: HttpRequest, pk: int) -> HttpResponse:
    """Links to one attempt, and its summary for a chat."""
    attempt = diagnosed_or_404(pk, "There is nothing to share before the diagnosis.")
    address = request.build_absolute_uri(reverse("attempt", args=[pk]))
    summary = attempt_summary(attempt, story_of(attempt.diagnosis, pk), address)
    name = printable(f"{attempt.workload.workload_id}, attempt {attempt.number}")
    return _share(request, attempt, summary, name, printable(attempt.title))


@responders
def share_incident(request: HttpRequest, pk: int) -> HttpResponse:
    """Links to one incident, and its summary for a chat."""
    incident = incident_or_404(pk)
    address = request.build_absolute_uri(reverse("incident", args=[pk]))
    return _share(
        request, incident, incident_summary(incident, incident_detail(pk), address), incident.name,
        printable(incident.title),
    )  # fmt: skip


def _share(request: HttpRequest, subject: Attempt | Incident, summary: str, name: str, title: str) -> HttpResponse:
    page = reverse("attempt" if isinstance(subject, Attempt) else "incident", args=[subject.pk])
    if request.method == "POST":
        try:
            days = int(request.POST.get("days", sharing.DEFAULT_DAYS))
            sharing.make_share(subject, request.user, days=days, note=request.POST.get("note", ""))
        except ValueError:
            messages.warning(request, "Choose how long the link lasts.")
        return redirect(f"{page}share/")
    links = subject.shares.select_related("by", "revoked_by").prefetch_related("openings")[:50]
    context = {
        "section": "failures" if isinstance(subject, Attempt) else "incidents",
        "subject": subject,
        "name": name,
        "title": title,
        "page": page,
        "summary": summary,
        "days": [(days, days == sharing.DEFAULT_DAYS) for days in sharing.DAYS],
        "links": [_row(request, share) for share in links],
    }
    return render(request, "share/manage.html", context)


def _row(request: HttpRequest, share: ShareLink) -> dict[str, Any]:
    openings = list(share.openings.all())
    return {
        "share": share,
        "open": sharing.is_open(share),
        "url": request.build_absolute_uri(reverse("shared", args=[sharing.share_token(share)])),
        "times": sum(opening.times for opening in openings),
        "readers": len(openings),
        "last_at": max((opening.last_at for opening in openings), default=None),
    }


@require_POST
@responders
def revoke(request: HttpRequest, pk: int) -> HttpResponse:
    """Ends a link now."""
    share = ShareLink.objects.filter(pk=pk).first()
    if share is None:
        raise Http404
    sharing.revoke_share(pk, request.user)
    if share.incident_id is not None:
        return redirect("incident-share", pk=share.incident_id)
    return redirect("attempt-share", pk=share.attempt_id)


@open_to_all
@require_GET
def shared(request: HttpRequest, token: str) -> HttpResponse:
    """What a link shows. No sign-in, no names, no way to anything else. Who asks too often waits, also for links that
    never were: addresses can't be guessed.
    """
    address = client_address(request)
    if (left := too_often(f"share:{network_of(address)}", 1)) is not None:
        return _wait(request, left)
    share = sharing.find_share(token)
    if share is None:
        return private(render(request, "share/ended.html", {"share": None}, status=404))
    if not sharing.is_open(share):
        return private(render(request, "share/ended.html", {"share": share}, status=410))
    if (left := too_often(f"share-link:{share.pk}", LINK_RATE)) is not None:
        return _wait(request, left)
    with seeing(viewer_of(share.by).sight):
        return private(_opened(request, share, address))


def _opened(request: HttpRequest, share: ShareLink, address: str | None) -> HttpResponse:
    """What the link shows: never more than who made it sees now."""
    try:
        if share.incident_id is not None:
            template, context = "share/incident.html", _incident(share.incident_id)
        else:
            template, context = "share/attempt.html", _attempt(share.attempt_id or 0)
    except (Attempt.DoesNotExist, Incident.DoesNotExist):
        return render(request, "share/ended.html", {"share": None}, status=404)
    sharing.record_opening(share, address=address, browser=request.headers.get("User-Agent", ""))
    return render(request, template, {"share": share, **context})


def _wait(request: HttpRequest, left: float) -> HttpResponse:
    seconds = int(left) + 1
    answer = render(request, "share/ended.html", {"share": None, "wait": seconds}, status=429)
    answer.headers["Retry-After"] = str(seconds)
    return private(answer)


def _attempt(pk: int) -> dict[str, Any]:
    attempt, story, mask = shared_attempt(pk)
    if story is None:
        raise Attempt.DoesNotExist
    contract = story.contract
    now = said(attempt)
    advice = contract["recommendation"]
    title = mask.text(now.title)
    corrected = now.is_correction
    return {
        "attempt": attempt,
        "story": story,
        "d": contract,
        "root": contract["root_cause"],
        "trail": story.trail,
        "said": now,
        "title": title,
        "reason": mask.text(now.verdict.reason) if now.verdict and corrected else "",
        "nodes": [mask.text(node) for node in now.nodes],
        "advice": advice,
        "advice_title": words.action(advice["action"], advice["exclude_nodes"]),
        "missing": [part for part in contract["coverage"] if part["status"] != "ok"],
        "workload": mask.text(printable(f"{attempt.workload.name} {attempt.workload.workload_id}".strip())),
        "og_title": _preview(
            attempt, now.domain, now.sub_domain, [node for node in attempt.blamed_nodes if node in attempt.nodes]
        ),
        "og_text": f"{words.outcome(contract['outcome'])}, {attempt.get_verdict_status_display().lower()}. Read only.",
    }


def _incident(pk: int) -> dict[str, Any]:
    detail, mask = shared_incident(pk)
    incident = detail.incident
    rows = [
        {
            "attempt": attempt,
            "name": mask.text(printable(f"{attempt.workload.name} {attempt.workload.workload_id}".strip())),
            "nodes": [mask.text(printable(node)) for node in attempt.blamed_nodes[:3]],
        }
        for attempt in detail.attempts
    ]
    return {
        "incident": incident,
        "detail": detail,
        "title": mask.text(printable(incident.title)),
        "parts": [(key, mask.text(printable(value))) for key, value in ordered_parts(incident)],
        "rows": rows,
        "nodes": [(mask.text(printable(share.node)), share.times) for share in detail.nodes],
        "og_title": f"{incident.name}: {_preview(incident, incident.domain, incident.sub_domain, ())}",
        "og_text": f"{words.count(incident.attempts_count, 'attempt')}, "
        f"{incident.get_status_display().lower()}. Read only.",
    }


def _preview(subject: Attempt | Incident, domain: str, sub_domain: str, nodes: Any) -> str:
    """A title for previews that holds nothing out of a log."""
    what = plain_title(subject) or ", ".join(filter(None, (words.domain(domain), words.sub_domain(sub_domain))))
    shown = ", ".join(printable(node) for node in nodes[:3])
    return f"{what} on {shown}" if shown else what
