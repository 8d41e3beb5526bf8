"""Confirm, correct, keep, undo: a person's word on the diagnosis of an attempt."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST

from triage import words
from triage.access.rights import responders
from triage.models import Attempt, VerdictKind
from triage.selectors.verdicts import said, taxonomy
from triage.services import verdicts
from triage.text import printable
from triage.web import correction
from triage.web.discussion import show_quote
from triage.web.found import diagnosed_or_404
from triage.web.views.attempts import story_of

KINDS = (
    (VerdictKind.WRONG_CAUSE, "Wrong cause", "something else failed"),
    (VerdictKind.WRONG_NODE, "Wrong node", "right cause, other place"),
    (VerdictKind.INCOMPLETE, "Incomplete", "right, and there is more"),
)
MAX_NODES_SHOWN = 64
"""Boxes for nodes; further ones are written into the field beside them."""


@require_POST
@responders
def confirm(request: HttpRequest, pk: int) -> HttpResponse:
    """The diagnosis is right."""
    found = diagnosed_or_404(pk)
    diagnosis = correction.number(request.POST.get("diagnosis")) or 0
    seen = correction.number(request.POST.get("seen"))
    try:
        verdict = verdicts.confirm(found.pk, request.user, diagnosis_id=diagnosis, seen=seen)
    except verdicts.VerdictConflict as conflict:
        messages.warning(request, f"{conflict} Look again.")
    else:
        if verdict.by_id != request.user.pk:
            messages.info(request, "It was confirmed already.")
    return redirect("attempt", pk=pk)


@require_POST
@responders
def keep(request: HttpRequest, pk: int) -> HttpResponse:
    """The earlier word stays, against the newer diagnosis."""
    found = diagnosed_or_404(pk)
    diagnosis, seen = (
        correction.number(request.POST.get("diagnosis")) or 0,
        correction.number(request.POST.get("seen")) or 0,
    )
    try:
        verdicts.keep(found.pk, request.user, diagnosis_id=diagnosis, verdict_id=seen)
    except verdicts.VerdictConflict as conflict:
        messages.warning(request, f"{conflict} Look again.")
    return redirect("attempt", pk=pk)


@require_POST
@responders
def withdraw(request: HttpRequest, pk: int) -> HttpResponse:
    """Takes back what was said."""
    found = diagnosed_or_404(pk)
    if not verdicts.withdraw(found.pk, request.user, verdict_id=correction.number(request.POST.get("seen")) or 0):
        messages.info(request, "It was taken back already, or something newer stands in its place.")
    return redirect("attempt", pk=pk)


@responders
def correct(request: HttpRequest, pk: int) -> HttpResponse:
    """The form for what is right, beside what the engine says; a page of its own. `?quote=` brings lines, `?new=1`
    drops what was half filled in.
    """
    found = diagnosed_or_404(pk)
    if request.method != "POST":
        if request.GET.get("new"):
            correction.forget(request, pk)
            return redirect("verdict-correct", pk=pk)
        return render(request, "attempt/correct.html", _form(found, *_opened(request, found)))
    values = correction.sent(request)
    if request.POST.get("do") == "pick":
        correction.keep(request, pk, values)
        return redirect(_log_to_pick_from(found))
    errors: dict[str, str] = {}
    quotes, wrong = correction.read_lines(values, found.pk)
    if wrong:
        errors["lines"] = wrong
    else:
        try:
            verdicts.correct(
                found.pk,
                request.user,
                diagnosis_id=values.diagnosis or 0,
                seen=values.seen,
                kind=values.kind,
                reason=values.reason,
                answer=_answer(found, values, [quote for _, quote in quotes]),
            )
            correction.forget(request, pk)
            return redirect("attempt", pk=pk)
        except verdicts.VerdictRefused as refused:
            errors[refused.field] = str(refused)
        except verdicts.VerdictConflict as conflict:
            errors["conflict"] = f"{conflict} Your answers are kept below: look at the attempt, then send them again."
            found = diagnosed_or_404(pk)
            values = replace(values, diagnosis=found.diagnosis_id, seen=found.verdict_id)
    return render(request, "attempt/correct.html", _form(found, values, errors), status=422)


# ---------- parts ----------


def _opened(request: HttpRequest, found: Attempt) -> tuple[correction.Values, dict[str, str], bool]:
    """The form as it was left or as it opens, with the lines that the address brings."""
    kept = correction.kept(request, found.pk)
    values = kept or correction.opened(found)
    forms = request.GET.getlist("quote")
    errors: dict[str, str] = {}
    if forms:
        values = correction.with_quotes(values, forms)
        quotes, wrong = correction.read_lines(replace(values, lines=""), found.pk)
        if wrong:
            errors["lines"] = wrong
        values = replace(values, quotes=[form for form, _ in quotes])
        if kept:
            correction.keep(request, found.pk, values)
    return values, errors, kept is not None


def _log_to_pick_from(found: Attempt) -> str:
    return reverse("evidence-first", args=[found.pk]) + "?for=correction"


def _answer(found: Attempt, values: correction.Values, lines: list[Any]) -> verdicts.Answer:
    assert found.diagnosis is not None
    domain, _, sub_domain = values.cause.partition("/")
    nodes = [*values.nodes, *values.more_nodes.replace(",", " ").split()]
    known = {printable(node): node for node in [*found.nodes, *found.blamed_nodes]}
    nodes = list(dict.fromkeys(known.get(node, node) for node in nodes if node))[:1000]
    title = " ".join(values.title.split())
    if not title and values.kind == VerdictKind.INCOMPLETE:
        title = found.diagnosis.title
    elif not title and values.kind == VerdictKind.WRONG_NODE:
        title = _titled((found.diagnosis.root_cause or {}).get("title") or found.diagnosis.title, nodes)
    elif not title and values.kind == VerdictKind.WRONG_CAUSE:
        same = (domain, sub_domain) == (found.diagnosis.domain, found.diagnosis.sub_domain)
        title = "" if same else _titled(words.sub_domain(sub_domain) or words.domain(domain), nodes)
    return verdicts.Answer(domain, sub_domain, title, nodes, values.evidence, lines)


def _titled(what: str, nodes: list[str]) -> str:
    """`NVSwitch on node-02`; more than three nodes are counted."""
    if not nodes:
        return what
    return f"{what} on {', '.join(nodes) if len(nodes) <= 3 else words.count(len(nodes), 'node')}"


def _form(
    found: Attempt, values: correction.Values, errors: dict[str, str] | None = None, is_kept: bool = False
) -> dict[str, Any]:
    assert found.diagnosis is not None
    story = story_of(found.diagnosis, found.pk)
    blamed = [*story.contract["affected_nodes"]]
    named = list(dict.fromkeys([*found.blamed_nodes, *[node["node"] for node in blamed], *found.nodes]))
    picked = set(values.nodes)
    shown = [node for node in named if node in picked] + [node for node in named if node not in picked]
    causes = [
        (domain, words.domain(domain), [(f"{domain}/{sub}", words.sub_domain(sub) or "No cause") for sub in subs])
        for domain, subs in taxonomy()
    ]
    kinds = [(str(kind), label, hint) for kind, label, hint in KINDS]
    picked_lines, _ = correction.read_lines(replace(values, lines=""), found.pk)
    return {
        "section": "failures",
        "attempt": found,
        "d": story.contract,
        "story": story,
        "root": story.contract["root_cause"],
        "said": said(found),
        "values": values,
        "errors": errors or {},
        "kinds": kinds,
        "causes": causes,
        "nodes": [(printable(node), node in picked or printable(node) in picked) for node in shown[:MAX_NODES_SHOWN]],
        "nodes_left": max(0, len(shown) - MAX_NODES_SHOWN),
        "quotes": [(form, show_quote(quote)) for form, quote in picked_lines],
        "is_kept": is_kept,
        "has_log": found.streams.exclude(blob="").exists(),
        "example": next((item.stream_raw for item in story.trail.values()), ""),
    }
