"""Tags of the pages on which people work: what they said of a diagnosis, who they are, comments and events."""

from __future__ import annotations

from typing import Any

from django import template
from django.contrib.auth.models import User
from django.utils.html import format_html
from django.utils.safestring import SafeString

from triage import words
from triage.models import Attempt, Comment, Incident, IncidentStatus, Severity, VerdictStatus
from triage.templatetags.faultline import daytime, icon, status
from triage.text import cut, printable, readable
from triage.web.discussion import show_quote
from triage.web.markdown import render

register = template.Library()

VERDICTS = {
    VerdictStatus.UNCONFIRMED: ("open", "circle", "Unconfirmed"),
    VerdictStatus.CONFIRMED: ("confirmed", "checkc", "Confirmed"),
    VerdictStatus.CORRECTED: ("corrected", "pencil", "Corrected"),
    VerdictStatus.DISAGREES: ("disagrees", "diff", "Engine now disagrees"),
}
"""State, icon and word of each status."""
STATUSES = {
    IncidentStatus.NEW: ("open", "circle"),
    IncidentStatus.INVESTIGATING: ("corrected", "eye"),
    IncidentStatus.MITIGATED: ("partial", "wrench"),
    IncidentStatus.RESOLVED: ("confirmed", "checkc"),
    IncidentStatus.REGRESSED: ("error", "repeat"),
}
ICONS = {
    "comment": "msg",
    "verdict.corrected": "pencil",
    "verdict.withdrawn": "left",
    "verdict.disagrees": "diff",
    "verdict": "checkc",
    "incident.opened": "plus",
    "incident.joined": "link",
    "incident.left": "split",
    "incident.regressed": "repeat",
    "incident.assigned": "user",
    "incident.severity": "flag",
    "incident.renamed": "pencil",
    "incident.merged": "merge",
    "incident.unmerged": "split",
    "incident.split": "split",
    "incident.not_same": "split",
    "incident.added": "merge",
    "incident.put_back": "split",
    "incident.may_be_same": "link",
    "incident": "wrench",
    "ticket": "link",
    "share": "share",
    "diagnosis": "play",
    "triage": "play",
    "source": "server",
}


@register.filter
def person(user: User | None) -> str:
    """The name of somebody; the engine's when nobody did it."""
    return printable(user.get_full_name() or user.get_username()) if user is not None else "Faultline"


@register.filter
def initials(user: User | None) -> str:
    names = person(user).split()
    return "".join(name[0] for name in names[:2]).upper()


@register.filter
def incident_name(pk: Any) -> str:
    return f"INC-{pk}"


@register.simple_tag
def verdict_status(attempt: Attempt, detail: bool = False) -> SafeString:
    """What people said of an attempt: icon and word; with `detail` also who and when."""
    state, symbol, word = VERDICTS.get(VerdictStatus(attempt.verdict_status), VERDICTS[VerdictStatus.UNCONFIRMED])
    verdict = attempt.verdict
    if not detail or verdict is None or attempt.verdict_status == VerdictStatus.DISAGREES:
        return status(state, symbol, word)
    return format_html(
        '<span class="status" data-s="{}">{}<span>{} by {}, {}</span></span>',
        state,
        icon(symbol),
        word,
        person(verdict.by),
        daytime(verdict.created_at),
    )


@register.simple_tag
def incident_status(incident: Incident) -> SafeString:
    state, symbol = STATUSES[IncidentStatus(incident.status)]
    return status(state, symbol, IncidentStatus(incident.status).label)


@register.filter
def status_word(value: str) -> str:
    return str(IncidentStatus(value).label).lower() if value in IncidentStatus.values else words.plain(value)


@register.filter
def severity_word(value: Any) -> str:
    return f"severity {value}" if value in Severity.values else "no severity"


@register.filter
def comment_html(comment: Comment) -> SafeString:
    return render(comment.text, comment.mentions)


@register.filter
def quote_of(quote: dict[str, Any]) -> dict[str, Any]:
    """A kept quote, printable, with its address."""
    shown = show_quote(quote)
    shown["name"], _ = cut(printable(quote["stream"]), 120)
    shown["lines"] = [printable(line) for line in quote["lines"]]
    return shown


@register.simple_tag
def event_icon(kind: str) -> SafeString:
    return icon(ICONS.get(kind) or ICONS.get(kind.partition(".")[0], "dot"))


@register.filter
def multiline(text: str) -> str:
    """Plain text of several lines, each made printable."""
    return readable(text)


@register.simple_tag(takes_context=True)
def dropped(context: dict[str, Any], form: str) -> str:
    """The query string of this page without one quote."""
    params = context["request"].GET.copy()
    kept = [quote for quote in params.getlist("quote") if quote != form and not form.endswith(f":{quote}")]
    params.setlist("quote", kept)
    encoded = params.urlencode()
    return f"?{encoded}" if encoded else "?"
