"""What a page needs to show a discussion: its thread, the form, and the quotes that wait to be sent with it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any

from django.http import HttpRequest
from django.urls import reverse

from triage.models import Attempt, Incident, Stream
from triage.selectors.threads import attempt_state, attempt_thread
from triage.services.comments import MAX_QUOTES
from triage.services.quotes import Quote, QuoteRefused, quote_form, read_quote
from triage.web.htmx import etag_of

MAX_DRAFT = 1500
"""Characters of a text that travel in an address while a quote is added without script."""


@dataclass(frozen=True)
class Compose:
    """The form under a discussion."""

    action: str
    form_key: str
    text: str = ""
    quotes: list[tuple[str, Quote]] = field(default_factory=list)
    """Each with the form that names its lines again."""
    errors: list[str] = field(default_factory=list)
    streams: list[str] = field(default_factory=list)
    """Names to choose from; empty on an incident, which has many attempts."""


def compose(request: HttpRequest, subject: Attempt | Incident, **changes: Any) -> Compose:
    """The form, with what the address brings: `?quote=stream:from-to` (repeatable) and `?text=`."""
    quotes, errors = read_quotes(request.GET.getlist("quote"), subject)
    values: dict[str, Any] = {
        "action": reverse("attempt-comment" if isinstance(subject, Attempt) else "incident-comment", args=[subject.pk]),
        "form_key": str(uuid.uuid4()),
        "text": request.GET.get("text", "")[:MAX_DRAFT],
        "quotes": [(quote_form(quote), quote) for quote in quotes],
        "errors": errors,
        "streams": stream_names(subject),
    }
    return Compose(**{**values, **changes})


def read_quotes(forms: list[str], subject: Attempt | Incident) -> tuple[list[Quote], list[str]]:
    """The quotes that these forms name, and a sentence for each that names none."""
    quotes, errors = [], []
    for form in list(dict.fromkeys(filter(None, forms)))[:MAX_QUOTES]:
        try:
            quotes.append(read_quote(form, subject.pk if isinstance(subject, Attempt) else None))
        except QuoteRefused as refused:
            errors.append(str(refused))
    return quotes, errors


def stream_names(subject: Attempt | Incident) -> list[str]:
    if not isinstance(subject, Attempt):
        return []
    kept = Stream.objects.filter(attempt=subject).exclude(blob="").order_by("source", "name")
    return list(kept.values_list("name", flat=True)[:200])


def discussion(request: HttpRequest, attempt: Attempt) -> dict[str, Any]:
    """The discussion of an attempt for its page."""
    thread = attempt_thread(attempt)
    return {
        "thread": thread,
        "comments": sum(entry.comment is not None and entry.comment.deleted_at is None for entry in thread.entries),
        "compose": compose(request, attempt),
        "thread_url": reverse("attempt-discussion", args=[attempt.pk]),
        "thread_etag": etag_of(attempt_state(attempt)),
        "subject": attempt,
    }


def show_quote(quote: Quote | dict[str, Any]) -> dict[str, Any]:
    """A kept quote with the address of its lines."""
    span = f"L{quote['first']}" if quote["first"] == quote["last"] else f"L{quote['first']}-L{quote['last']}"
    where = reverse("stream", args=[quote["attempt"], quote["stream"]])
    return {**quote, "url": f"{where}?line={quote['first']}#{span}"}
