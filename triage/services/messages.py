"""What is said to the outside about an event: a title, a few sentences, facts for programs. Never a line of a log."""

from __future__ import annotations

from typing import Any

import msgspec
from django.conf import settings
from django.urls import reverse
from django.utils import timezone

from triage import words
from triage.channels.base import Message
from triage.models import Attempt, Incident, IncidentStatus, News, TimelineEvent
from triage.services.facts import short
from triage.text import printable

MAX_NODES = 8


def compose(news: News, thread: str, event: TimelineEvent, *, covers: int = 1) -> Message:
    """The message about an event. `covers` is how many attempts a repeat tells of."""
    incident, attempt = event.incident, event.attempt
    about = _of_incident(incident) if incident is not None else {}
    about |= _of_attempt(attempt) if attempt is not None else {}
    return Message(
        news=news,
        thread=thread,
        title=_title(news, event, covers),
        lines=tuple(filter(None, (*_where(incident, attempt), _advice(attempt, news)))),
        url=_url(incident, attempt),
        at=event.happened_at.isoformat(),
        since=incident.first_at.isoformat() if incident is not None and incident.first_at else "",
        settled=news == News.SETTLED,
        facts=about,
    )


def trial(name: str) -> Message:
    """What a test of a channel sends."""
    return Message(
        news="test",
        thread="test",
        title=f"Faultline can reach {name}",
        lines=("This is a test. No attempt failed.",),
        url=site_url("/"),
        at=timezone.now().isoformat(),
        settled=True,
    )


def as_plain(message: Message) -> dict[str, Any]:
    """For the database."""
    plain: dict[str, Any] = msgspec.to_builtins(message)
    return plain


def site_url(path: str) -> str:
    """An address on this site; empty when FAULTLINE_URL is not set."""
    return settings.FAULTLINE_URL + path if settings.FAULTLINE_URL else ""


def _title(news: News, event: TimelineEvent, covers: int) -> str:
    incident, attempt = event.incident, event.attempt
    what = _plain(incident.title if incident is not None else attempt.title if attempt is not None else "", 200)
    name = f"{incident.name}: " if incident is not None else ""
    match news:
        case News.REPEATED if covers > 1:
            return f"{name}{covers} more times: {what}"
        case News.REPEATED:
            return f"{name}Again: {what}"
        case News.REGRESSED:
            return f"{name}Back after it was settled: {what}"
        case News.SETTLED:
            return f"{name}{IncidentStatus(event.payload['after']).label}: {what}"
        case News.UNATTRIBUTED:
            return f"Failed without a known cause: {_named(attempt)}" if attempt is not None else what
    return f"{name}{what}"


def _where(incident: Incident | None, attempt: Attempt | None) -> list[str]:
    lines = []
    if attempt is not None:
        nodes = f" on {_listed(attempt.blamed_nodes)}" if attempt.blamed_nodes else ""
        cause = ", ".join(filter(None, (words.domain(attempt.domain), words.sub_domain(attempt.sub_domain))))
        lines.append(f"{cause or 'Cause not known'}{nodes}")
        user = f" of {_plain(attempt.user, 60)}" if attempt.user else ""
        outcome = words.outcome(attempt.outcome).lower()
        lines.append(f"{_named(attempt)}{user} on {_plain(attempt.cluster.name, 60)}: {outcome}")
    if incident is not None:
        hours = f", {incident.gpu_hours:,.1f} GPU-hours lost" if incident.gpu_hours else ""
        severity = f", severity {incident.severity}" if incident.severity else ""
        lines.append(f"{words.count(incident.attempts_count, 'attempt')}{hours}{severity}")
    return lines


def _advice(attempt: Attempt | None, news: News) -> str:
    if attempt is None or attempt.diagnosis is None or news == News.SETTLED:
        return ""
    advice = attempt.diagnosis.contract["recommendation"]
    return f"Do next: {words.action(advice['action'], [_plain(node, 80) for node in advice['exclude_nodes']])}"


def _url(incident: Incident | None, attempt: Attempt | None) -> str:
    if incident is not None:
        return site_url(reverse("incident", args=[incident.pk]))
    return site_url(reverse("attempt", args=[attempt.pk])) if attempt is not None else site_url("/")


def _of_incident(incident: Incident) -> dict[str, Any]:
    return {
        "incident": incident.name,
        "domain": incident.domain,
        "sub_domain": incident.sub_domain,
        "rule": incident.rule,
        "status": incident.status,
        "severity": incident.severity,
        "attempts": incident.attempts_count,
        "gpu_hours": round(incident.gpu_hours, 3),
    }


def _of_attempt(attempt: Attempt) -> dict[str, Any]:
    return {
        "attempt": attempt.pk,
        "workload": attempt.workload.workload_id,
        "workload_name": attempt.workload.name,
        "number": attempt.number,
        "user": attempt.user,
        "clusters": [attempt.cluster.name],
        "outcome": attempt.outcome,
        "domain": attempt.domain,
        "sub_domain": attempt.sub_domain,
        "rule": attempt.rule,
        "nodes": list(attempt.blamed_nodes),
    }


def _named(attempt: Attempt) -> str:
    workload = attempt.workload
    name = f"{workload.name} {workload.workload_id}" if workload.name != workload.workload_id else workload.name
    return f"{_plain(name, 120)}, attempt {attempt.number}"


def _listed(nodes: list[str]) -> str:
    shown = ", ".join(_plain(node, 80) for node in nodes[:MAX_NODES])
    return shown + (f" and {len(nodes) - MAX_NODES} more" if len(nodes) > MAX_NODES else "")


def _plain(text: str, length: int) -> str:
    """One line without anything hidden."""
    return short(printable(" ".join(text.split())), length)
