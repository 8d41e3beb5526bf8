"""Rules: the list with how each fared, and a page for each that says what it proves and what not."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render

from triage.access.rights import signed_in
from triage.selectors import rules as select
from triage.selectors.filters import printable_value
from triage.web import figures

ORDERS = {
    select.RuleOrder.ROOT: "Most often the root",
    select.RuleOrder.PRECISION: "Lowest precision",
    select.RuleOrder.VERDICTS: "Fewest verdicts",
    select.RuleOrder.NAME: "By name",
}
ROLES = {
    "cause": "May be the root of a failure.",
    "either": "The root only if nothing else explains it.",
    "symptom": "Reports a failure, never its cause.",
    "teardown": "Clean-up after the end was decided; never a cause.",
    "confirmation": "Strengthens a cause at the same place; nothing alone.",
    "progress": "Proof that the job still worked.",
    "context": "Worth showing; explains nothing.",
}


@signed_in
def index(request: HttpRequest) -> HttpResponse:
    """The list, narrowed by words or by a line of a log that is pasted."""
    search = printable_value(request.GET.get("q", ""))
    order = request.GET.get("sort", "")
    order = select.RuleOrder(order) if order in ORDERS else select.RuleOrder.ROOT
    number = request.GET.get("page", "")
    number = int(number) if number.isdecimal() and len(number) < 6 else 1
    family = request.GET.get("family", "")
    page = select.list_rules(search=search, family=family, order=order, page=number)
    loaded = select.ruleset()
    scale = figures.Scale(1.0, 6, 168)
    found, corrected, judged = select.confusions()
    number = min(max(1, number), page.pages)
    context = {
        "section": "rules",
        "page": page,
        "rows": [(row, scale.interval(row.precision)) for row in page.rows],
        "number": number,
        "begin": (number - 1) * select.PAGE_SIZE,
        "last": (number - 1) * select.PAGE_SIZE + len(page.rows),
        "older": number + 1 if number < page.pages else None,
        "newer": number - 1 if number > 1 else None,
        "fingerprint": loaded.fingerprint if loaded else "",
        "count": len(select.known_ids()),
        "families": select.families(),
        "family": family,
        "orders": ORDERS.items(),
        "order": order,
        "search": search,
        "confusions": found,
        "corrected": corrected,
        "judged": judged,
        "days": select.DAYS,
    }
    return render(request, "rules/list.html", context)


@signed_in
def rule(request: HttpRequest, rule_id: str) -> HttpResponse:
    """One rule as it stands today."""
    detail = select.rule_detail(rule_id)
    if detail is None:
        raise Http404
    spec = detail.matcher.spec
    context = {
        "section": "rules",
        "detail": detail,
        "rule": detail.rule,
        "row": detail.row,
        "spec": spec,
        "role": ROLES.get(detail.rule.role, ""),
        "others": [
            one for one in detail.meanings[1:] if one.guide != detail.rule.guide or one.title != detail.rule.title
        ],
        "precision": figures.Scale(1.0, 6, 288).interval(detail.row.precision),
        "days": select.DAYS,
        "references": [url for url in detail.rule.references if url.startswith(("https://", "http://"))],
    }
    return render(request, "rules/rule.html", context)
