"""One attempt against another of its workload: what differs, and nothing else."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render

from triage.access.rights import signed_in
from triage.models import Attempt
from triage.selectors.compare import bases, compare, siblings
from triage.web.found import attempt_or_404
from triage.web.logview import number

SHOWN = 200
"""Changed settings that the page lists."""


@signed_in
def comparison(request: HttpRequest, pk: int) -> HttpResponse:
    """`?base=` names the other attempt; without it the one before this, else the nearest that can be compared."""
    found = attempt_or_404(pk)
    choices = bases(found)
    base = _base(request, found, choices)
    context: dict[str, Any] = {"section": "failures", "attempt": found, "choices": choices, "base": base}
    if base is not None:
        made = compare(found, base)
        if base not in choices:
            context["choices"] = [base, *choices]
        context |= {
            "strip": siblings(found),
            "comparison": made,
            "settings": made.settings[:SHOWN],
            "settings_left": max(0, len(made.settings) - SHOWN),
        }
    return render(request, "attempt/compare.html", context)


def _base(request: HttpRequest, found: Attempt, choices: list[Attempt]) -> Attempt | None:
    wanted = number(request, "base")
    if wanted is not None:
        known = next((choice for choice in choices if choice.pk == wanted), None)
        if known is None and (wanted == found.pk or wanted > 2**62):
            raise Http404("An attempt can't be compared with itself.")
        return known or attempt_or_404(wanted)
    same = [choice for choice in choices if choice.workload_id == found.workload_id]
    earlier = [choice for choice in same if choice.number < found.number]
    return max(earlier, key=lambda choice: choice.number, default=None) or next(iter(choices), None)
