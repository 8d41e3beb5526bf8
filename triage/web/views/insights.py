"""Insights: what failures cost, week by week; every figure leads to its list."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.html import format_html

from engine.model import Source
from triage.access.rights import signed_in
from triage.selectors import insights as select
from triage.selectors.filters import UNNAMED, printable_value
from triage.selectors.insights import Scope, Series
from triage.selectors.query import Query, Term
from triage.templatetags.fleet import hours
from triage.times import MONTHS
from triage.web import figures, inbox
from triage.web.tables import csv_answer

HELP = {
    "syslog": "Ship the kernel log of every node: a journal exporter, Loki, or files in a watched folder.",
    "flight_recorder": "Set TORCH_NCCL_TRACE_BUFFER_SIZE and TORCH_NCCL_DUMP_ON_TIMEOUT for PyTorch jobs.",
    "metric": "Connect Prometheus, with DCGM and the node exporter.",
    "scheduler": "Connect Slurm's accounting or Kueue.",
    "applog": "Keep the output of all ranks, not only of the first.",
}
"""What would help where a source is missing."""


@dataclass(frozen=True)
class Row:
    """One series with its figures and the lists behind them."""

    series: Series
    bars: figures.RowBars
    lost_bars: figures.RowBars
    url: str
    weeks: list[str]
    """Failures and GPU-hours of each week with the link to its list, the newest first."""
    spoken: str
    lost_spoken: str


@signed_in
def insights(request: HttpRequest) -> HttpResponse:
    """One page, narrowed by cluster, team and range in its address."""
    scope = _scope(request)
    found = select.insights(scope)
    span = f"{scope.weeks * 7}d"
    by_domain = _rows(found.domains, lambda one: Term("domain", one.name), scope)
    if found.undiagnosed is not None and found.undiagnosed.total:
        by_domain += _rows([found.undiagnosed], lambda one: Term("triage", "done", negated=True), scope)
    context: dict[str, Any] = {
        "section": "insights",
        "found": found,
        "scope": scope,
        "ranges": select.RANGES,
        "clusters": select.clusters(),
        "queues": select.queues(scope),
        "parts": [
            ("domain", "By domain", "Domain", by_domain),
            ("cluster", "By cluster", "Cluster", _rows(found.clusters, partial(_named, "cluster"), scope)),
            ("queue", "By team", "Queue", _rows(found.queues, partial(_named, "queue"), scope)),
        ],
        "all": _rows([found.total], lambda one: None, scope)[0],
        "week_names": [_day(begin) for begin, _ in _spans(scope)],
        "worst": next((row for row in by_domain if row.series.lost_now > 0), None),
        "top": [(one, _list(scope, Term("incident", f"INC-{one.id}"), ended=span)) for one in found.top],
        "leading": next((one for one in found.top if one.lost_now > 0), None),
        "share": _share(found.without_cause, scope),
        "unknown_now_url": _list(scope, Term("domain", "unattributed"), ended="7d"),
        "unknown_url": _list(scope, Term("domain", "unattributed"), ended=span),
        "missing": [(one, HELP[one.source], _missing_url(scope, one.source)) for one in found.missing],
        "complete_url": _missing_url(scope, None),
        "csv_url": request.get_full_path().replace(request.path, f"{request.path.rstrip('/')}.csv", 1),
    }
    if context["leading"] is not None:
        context["leading_url"] = _list(scope, Term("incident", f"INC-{context['leading'].id}"), ended="7d")
    return render(request, "insights/page.html", context)


@signed_in
def as_csv(request: HttpRequest) -> HttpResponse:
    """The figures of the page: one row a group and week."""
    scope = _scope(request)
    found = select.insights(scope)

    def rows() -> Iterator[tuple[Any, ...]]:
        for kind, group in (("domain", found.domains), ("cluster", found.clusters), ("queue", found.queues)):
            for one in group:
                for place, (failures, lost) in enumerate(zip(one.failures, one.lost, strict=True)):
                    begin, end = scope.week(scope.weeks - 1 - place)
                    yield kind, one.name, begin.isoformat(), end.isoformat(), failures, round(lost, 3)

    columns = ("by", "name", "week_begins", "week_ends", "failures", "gpu_hours_lost")
    return csv_answer("insights", columns, rows())


def _scope(request: HttpRequest) -> Scope:
    weeks = request.GET.get("weeks", "")
    cluster = request.GET.get("cluster", "")
    return Scope(
        now=select.minute(),
        weeks=int(weeks) if weeks in map(str, select.RANGES) else 12,
        cluster=next((one for one in select.clusters() if one.name == cluster), None) if cluster else None,
        queue=printable_value(request.GET.get("queue", "")),
    )


def _list(scope: Scope, *terms: Term, **pairs: str) -> str:
    """The list of failures behind a figure, with the page's own narrowing."""
    own = [Term("cluster", scope.cluster.name)] if scope.cluster else []
    own += [Term("queue", scope.queue)] if scope.queue else []
    named = [Term(name, value) for name, value in pairs.items()]
    return inbox.list_address(str(Query(tuple(dict.fromkeys((*terms, *own, *named))))))


def _named(field: str, one: Series) -> Term:
    return Term(field, one.name or UNNAMED)


def _rows(group: list[Series], term: Callable[[Series], Term | None], scope: Scope) -> list[Row]:
    """The rows of one table; `term` is what narrows the list behind a series."""
    most = max((max(one.failures) for one in group), default=0)
    most_lost = max((max(one.lost) for one in group), default=0.0)
    spans = [(Term("after", _minute(begin)), Term("before", _minute(end))) for begin, end in _spans(scope)]
    rows = []
    for one in group:
        own = [found] if (found := term(one)) is not None else []
        rows.append(
            Row(
                series=one,
                bars=figures.row_bars(one.failures, most),
                lost_bars=figures.row_bars(one.lost, most_lost),
                url=_list(scope, *own, ended="7d"),
                weeks=_weeks(one, [_list(scope, *own, *span) for span in spans]),
                spoken=", ".join(map(str, one.failures)),
                lost_spoken=", ".join(f"{value:.0f}" for value in one.lost),
            )
        )
    return rows


def _spans(scope: Scope) -> list[tuple[datetime, datetime]]:
    """Begin and end of each week, the newest first."""
    return [scope.week(number) for number in range(scope.weeks)]


def _weeks(one: Series, urls: list[str]) -> list[str]:
    cells = []
    for url, failures, lost in zip(urls, reversed(one.failures), reversed(one.lost), strict=True):
        if failures:
            shown = (url, f"{failures:,}", hours(lost))
            cells.append(format_html('<a class="plain" href="{}">{}<span class="sub">{}</span></a>', *shown))
        else:
            cells.append("0")
    return cells


def _missing_url(scope: Scope, source: str | None) -> str:
    span = f"{scope.weeks * 7}d"
    terms = [Term("domain", "unattributed")]
    if source is not None:
        return _list(scope, *terms, Term("missing", source), ended=span)
    return _list(scope, *terms, *(Term("missing", one.value, negated=True) for one in Source), ended=span)


def _share(weeks: list[Any], scope: Scope) -> dict[str, Any]:
    """The line of the share without a cause, in a figure of 640 by 150."""
    left, right, top, bottom = 40.0, 560.0, 20.0, 124.0
    most = max((one.share for one in weeks), default=0.0)
    end = next((limit for limit in (0.05, 0.1, 0.2, 0.3, 0.5) if limit >= most), 1.0)
    step = (right - left) / max(1, len(weeks) - 1)
    known = [(number, one) for number, one in enumerate(weeks) if one.trials]
    points = [(left + number * step, bottom - one.share / end * (bottom - top)) for number, one in known]
    labels = [number for number in range(len(weeks)) if number % max(1, len(weeks) // 4) == 0]
    return {
        "path": "".join(f"{'L' if place else 'M'}{x:.1f} {y:.1f}" for place, (x, y) in enumerate(points)),
        "last": points[-1] if points else None,
        "now": known[-1][1] if known else None,
        "first": known[0][1] if known else None,
        "ticks": [(bottom - part / 2 * (bottom - top), f"{end * part / 2 * 100:g} %") for part in range(3)],
        "labels": [(round(left + number * step, 1), _day(scope.week(len(weeks) - 1 - number)[0])) for number in labels],
    }


def _minute(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M")


def _day(moment: datetime) -> str:
    return f"{moment.day} {MONTHS[moment.month - 1]}"
