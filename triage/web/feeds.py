"""Lists as Atom feeds, and attempts as badges: what is in them. Who may have them is asked before."""

from __future__ import annotations

import hashlib
from datetime import datetime
from urllib.parse import urlsplit

from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, QueryDict
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.utils.cache import get_conditional_response
from django.utils.feedgenerator import Atom1Feed
from django.utils.html import escape

from triage import words
from triage.models import Attempt, Incident
from triage.selectors.attempts import get_attempt, list_attempts
from triage.selectors.incident_lists import list_incidents
from triage.text import printable
from triage.web.badge import badge, verdict_in_short
from triage.web.inbox import View
from triage.web.incident_view import ListView

ENTRIES = 50
ATOM = "application/atom+xml; charset=utf-8"


class NotUnderstood(ValueError):
    """A search that isn't one; one line."""


def failures_feed(request: HttpRequest, user: User, params: QueryDict) -> HttpResponseBase:
    """The newest diagnosed failures that the page with these parameters lists. Raises NotUnderstood."""
    view = View.of(params)
    if view.query.errors:
        raise NotUnderstood(" ".join(view.query.errors))
    about = str(view.query)
    feed = _feed(request, "Failures" + (f": {about}" if about else ""), view.address())
    for attempt in list_attempts(view.narrowed(user), limit=ENTRIES).attempts:
        if attempt.diagnosis is not None:
            _add_attempt(request, feed, attempt)
    return _atom(request, feed)


def incidents_feed(request: HttpRequest, user: User, params: QueryDict) -> HttpResponseBase:
    """The incidents that the page with these parameters lists first."""
    asked = ListView.of(params)
    page = list_incidents(asked.narrowed(user), order=asked.order)
    feed = _feed(request, f"Incidents: {asked.title}", f"{reverse('incidents')}?{asked.params()}")
    for incident in page.incidents[:ENTRIES]:
        _add_incident(request, feed, incident)
    return _atom(request, feed)


def attempt_badge(request: HttpRequest, attempt_id: int, *, newest: bool = False) -> HttpResponseBase:
    """Of an attempt, or of the newest one of its workload that the reader sees. Raises Attempt.DoesNotExist."""
    attempt = get_attempt(attempt_id)
    if newest:
        last = Attempt.objects.filter(workload=attempt.workload_id).order_by("-number", "-id").values_list("pk").first()
        attempt = get_attempt(last[0]) if last else attempt
    said, colour = verdict_in_short(attempt)
    picture = badge(f"attempt {attempt.number}", said, colour)
    return answered(request, picture.encode(), "image/svg+xml; charset=utf-8")


def answered(request: HttpRequest, content: bytes, content_type: str) -> HttpResponseBase:
    """With an ETag, so that who asks often is sent little."""
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    response = HttpResponse(content, content_type=content_type)
    response.headers["ETag"] = etag
    response.headers["Cache-Control"] = "private, no-cache"
    return get_conditional_response(request, etag=etag, response=response) or response


# --- parts ------------------------------------------------------------------------------------------------------------


def _feed(request: HttpRequest, title: str, address: str) -> Atom1Feed:
    return Atom1Feed(
        title=f"Faultline: {printable(title)}",
        link=request.build_absolute_uri(address),
        description="",
        feed_url=request.build_absolute_uri(),
        author_name="Faultline",
        language="en",
    )


def _add_attempt(request: HttpRequest, feed: Atom1Feed, attempt: Attempt) -> None:
    diagnosis, verdict, workload = attempt.diagnosis, attempt.verdict, attempt.workload
    assert diagnosis is not None
    cause = ", ".join(filter(None, [words.domain(attempt.domain), words.sub_domain(attempt.sub_domain)]))
    told = [
        f"{words.outcome(attempt.outcome)}: {cause}",
        _nodes(attempt.blamed_nodes),
        f"{workload.name} {workload.workload_id}, attempt {attempt.number}, on {attempt.cluster.name}".strip(),
        f"user {attempt.user}" if attempt.user else "",
        _lost(attempt.lost_gpu_hours),
        attempt.get_verdict_status_display(),
    ]
    changed = max(filter(None, [diagnosis.created_at, verdict.created_at if verdict else None]))
    address = request.build_absolute_uri(reverse("attempt", args=[attempt.pk]))
    _add(feed, address, attempt.title, told, attempt.created_at, changed, [attempt.domain, attempt.sub_domain])


def _add_incident(request: HttpRequest, feed: Atom1Feed, incident: Incident) -> None:
    told = [
        incident.get_status_display(),
        words.count(incident.attempts_count, "attempt"),
        ", ".join(filter(None, [words.domain(incident.domain), words.sub_domain(incident.sub_domain)])),
        _nodes(incident.nodes),
        _lost(incident.gpu_hours),
        f"severity {incident.severity}" if incident.severity else "",
    ]
    changed = max(filter(None, [incident.last_at, incident.status_at, incident.created_at]))
    address = request.build_absolute_uri(reverse("incident", args=[incident.pk]))
    title = f"{incident.name}: {incident.title}"
    _add(feed, address, title, told, incident.created_at, changed, [incident.domain, incident.sub_domain])


def _add(
    feed: Atom1Feed, address: str, title: str, told: list[str], made: datetime, changed: datetime, terms: list[str]
) -> None:
    parts = urlsplit(address)
    summary = ". ".join(printable(part) for part in told if part) + "."
    feed.add_item(
        title=printable(title),
        link=address,
        description=escape(summary),  # summaries are taken for HTML
        unique_id=f"tag:{parts.hostname},{made:%Y-%m-%d}:{parts.path}",
        pubdate=made,
        updateddate=changed,
        categories=tuple(term for term in terms if term and term != "none"),
    )


def _nodes(nodes: list[str]) -> str:
    shown = ", ".join(nodes[:5]) + (f" and {len(nodes) - 5} more" if len(nodes) > 5 else "")
    return f"on {shown}" if nodes else "no node blamed"


def _lost(hours: float | None) -> str:
    return f"{hours:,.1f} GPU-hours lost" if hours else ""


def _atom(request: HttpRequest, feed: Atom1Feed) -> HttpResponseBase:
    return answered(request, feed.writeString("utf-8").encode(), ATOM)
