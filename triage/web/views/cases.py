"""Judged cases: how right the engine was by domain, cases to look at, and both as labelled bundles to take away."""

from __future__ import annotations

from collections.abc import Iterator

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.http import urlencode

from engine.model import SUB_DOMAINS
from triage.access.rights import signed_in
from triage.models import VerdictKind
from triage.selectors import cases as select
from triage.selectors.filters import printable_value
from triage.selectors.rules import title_of
from triage.services.bundling import Member, bundle, folder_of, packed
from triage.web import figures
from triage.web.found import attempt_or_404

MAX_CASES = 1000
"""Of one export."""
KINDS = {
    "": "All that stand",
    select.DISAGREES: "The engine now disagrees",
    select.CORRECTED: "Corrected in any way",
    VerdictKind.CONFIRMED.value: "Confirmed",
    VerdictKind.WRONG_CAUSE.value: "Wrong cause",
    VerdictKind.WRONG_NODE.value: "Wrong node",
    VerdictKind.INCOMPLETE.value: "Incomplete",
}


@signed_in
def index(request: HttpRequest) -> HttpResponse:
    """`?kind=&rule=&engine=&people=&page=`."""
    narrowed = _narrowed(request)
    number = request.GET.get("page", "")
    number = int(number) if number.isascii() and number.isdecimal() and len(number) < 6 else 1
    rows, total = select.case_page(narrowed, number)
    pages = max(1, -(-total // select.PAGE_SIZE))
    number = min(max(1, number), pages)
    scale = figures.Scale(1.0, 6, 168)
    context = {
        "section": "rules",
        "narrowed": narrowed,
        "rule_title": title_of(narrowed.rule) if narrowed.rule else "",
        "kinds": KINDS.items(),
        "domains": list(SUB_DOMAINS),
        "by_domain": [(row, scale.interval(row.share)) for row in select.by_domain()],
        "rows": rows,
        "total": total,
        "begin": (number - 1) * select.PAGE_SIZE,
        "last": (number - 1) * select.PAGE_SIZE + len(rows),
        "newer": number - 1 if number > 1 else None,
        "older": number + 1 if number < pages else None,
        "size": select.export_size(narrowed, MAX_CASES) if total else None,
        "most": MAX_CASES,
        "export_query": urlencode(narrowed.params()),
    }
    return render(request, "rules/cases.html", context)


@signed_in
def export(request: HttpRequest) -> HttpResponseBase:
    """The cases that fit as one archive of labelled bundles; `?names=0` leaves the names of those who ran the jobs."""
    narrowed = _narrowed(request)
    ids = select.cases_to_export(narrowed, MAX_CASES)
    if not ids:
        return redirect("cases")
    mask_names = request.GET.get("names") != "0"

    def bundles() -> Iterator[list[Member]]:
        for pk in ids:
            found = select.case(pk)
            if found is not None:
                streams = select.kept_streams(found.attempt_id)
                yield bundle(found.attempt, streams, mask_names=mask_names, verdict=found)

    return _archive(packed(bundles()), "faultline-cases")


@signed_in
def attempt_bundle(request: HttpRequest, pk: int) -> HttpResponseBase:
    """The evidence of one attempt as a bundle, with the verdict that stands as its label."""
    found = attempt_or_404(pk)
    verdict = select.case(found.verdict_id) if found.verdict_id else None
    mask_names = request.GET.get("names") != "0"
    members = bundle(found, select.kept_streams(found.pk), mask_names=mask_names, verdict=verdict)
    return _archive(packed([members]), folder_of(found))


def _archive(blocks: Iterator[bytes], name: str) -> HttpResponseBase:
    answer = StreamingHttpResponse(blocks, content_type="application/zstd")
    answer.headers["Content-Disposition"] = f'attachment; filename="{name}.tar.zst"'
    return answer


def _narrowed(request: HttpRequest) -> select.CaseFilter:
    parts = {key: printable_value(request.GET.get(key, ""))[:200] for key in ("kind", "rule", "engine", "people")}
    return select.CaseFilter(**parts)
