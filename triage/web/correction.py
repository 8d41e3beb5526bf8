"""The form of a correction while it is being filled in: kept in the session while lines are picked in a log."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from django.http import HttpRequest

from triage.models import Attempt
from triage.selectors.verdicts import said
from triage.services.quotes import Quote, QuoteRefused, quote_form, read_quote

MAX_QUOTES = 20
MAX_KEPT = 5
"""Attempts whose half-filled form is kept in one session."""
_KEY = "corrections"


@dataclass(frozen=True)
class Values:
    """What the form holds. `diagnosis` and `seen` are what the person saw when it was opened."""

    diagnosis: int | None = None
    seen: int | None = None
    kind: str = ""
    cause: str = ""
    title: str = ""
    nodes: list[str] = field(default_factory=list)
    more_nodes: str = ""
    evidence: list[str] = field(default_factory=list)
    quotes: list[str] = field(default_factory=list)
    """Picked lines, each as `stream:from-to`."""
    lines: str = ""
    """The same, typed."""
    reason: str = ""


def opened(found: Attempt) -> Values:
    """The form as it opens: the answer that stands."""
    now = said(found)
    assert found.diagnosis is not None
    verdict = found.verdict
    evidence = verdict.evidence if verdict else (found.diagnosis.root_cause or {}).get("evidence", [])
    return Values(
        diagnosis=found.diagnosis_id,
        seen=found.verdict_id,
        cause=f"{now.domain}/{now.sub_domain}",
        nodes=list(found.blamed_nodes),
        evidence=list(evidence),
        quotes=[quote_form(quote) for quote in verdict.lines] if verdict and verdict.is_correction else [],
    )


def sent(request: HttpRequest) -> Values:
    """The form as it was sent."""
    data = request.POST
    return Values(
        diagnosis=number(data.get("diagnosis")),
        seen=number(data.get("seen")),
        kind=data.get("kind", ""),
        cause=data.get("cause", ""),
        title=data.get("title", ""),
        nodes=data.getlist("node"),
        more_nodes=data.get("more_nodes", ""),
        evidence=data.getlist("evidence"),
        quotes=list(dict.fromkeys(data.getlist("quote"))),
        lines=data.get("lines", ""),
        reason=data.get("reason", ""),
    )


def with_quotes(values: Values, forms: list[str]) -> Values:
    """The same with more lines."""
    return replace(values, quotes=list(dict.fromkeys([*values.quotes, *filter(None, forms)])))


def keep(request: HttpRequest, pk: int, values: Values) -> None:
    """Remembers a half-filled form for as long as the session lasts."""
    kept = {key: value for key, value in request.session.get(_KEY, {}).items() if key != str(pk)}
    for key in list(kept)[: max(0, len(kept) - MAX_KEPT + 1)]:
        del kept[key]
    request.session[_KEY] = {**kept, str(pk): asdict(values)}


def kept(request: HttpRequest, pk: int) -> Values | None:
    """The form that was left half filled."""
    found: dict[str, Any] | None = request.session.get(_KEY, {}).get(str(pk))
    return Values(**found) if found else None


def forget(request: HttpRequest, pk: int) -> None:
    if str(pk) in (kept := request.session.get(_KEY, {})):
        request.session[_KEY] = {key: value for key, value in kept.items() if key != str(pk)}


def read_lines(values: Values, pk: int) -> tuple[list[tuple[str, Quote]], str]:
    """The lines that the form names, each with its form, and what is wrong with the first that names none."""
    typed = (line.strip() for line in values.lines.splitlines())
    forms = list(dict.fromkeys(filter(None, [*values.quotes, *typed])))
    if len(forms) > MAX_QUOTES:
        return [], f"At most {MAX_QUOTES} lines or ranges."
    read: dict[str, Quote] = {}
    error = ""
    for form in forms:
        try:
            quote = read_quote(form, pk)
            read[quote_form(quote)] = quote
        except QuoteRefused as refused:
            error = error or str(refused)
    return list(read.items()), error


def number(value: str | None) -> int | None:
    """A row's number as a form sends it."""
    return int(value) if value and value.isascii() and value.isdecimal() and len(value) < 19 else None
