"""Judged cases: every verdict that stands, how right the engine was by domain, and which cases are worth a look."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Case, Count, IntegerField, Q, QuerySet, Sum, Value, When

from engine.model import SUB_DOMAINS
from triage.models import Stream, Verdict, VerdictKind, VerdictStatus
from triage.statistics import Share, wilson

PAGE_SIZE = 50
CORRECTED = "corrected"
DISAGREES = "disagrees"
KINDS = (DISAGREES, CORRECTED, *VerdictKind.values)
"""What cases can be narrowed to: a kind of verdict, any correction, or those the engine disagrees with by now."""


@dataclass(frozen=True)
class CaseFilter:
    """Which cases. Empty parts narrow nothing; unknown words find nothing."""

    kind: str = ""
    rule: str = ""
    engine: str = ""
    """Domain that the engine gave."""
    people: str = ""
    """Domain that the person gave."""

    def params(self) -> dict[str, str]:
        """As parameters of an address."""
        parts = {"kind": self.kind, "rule": self.rule, "engine": self.engine, "people": self.people}
        return {key: value for key, value in parts.items() if value}


@dataclass(frozen=True)
class DomainRow:
    """How the engine fared where it named a domain."""

    domain: str
    share: Share
    """Of the verdicts on it, those that confirm."""
    wrong_node: int
    incomplete: int
    instead: list[tuple[str, int]]
    """Domains that people named as the cause instead, most frequent first; the same domain with another cause too."""


@dataclass(frozen=True)
class Size:
    """What an export of cases would hold."""

    cases: int
    streams: int
    bytes: int


def standing(narrowed: CaseFilter) -> QuerySet[Verdict]:
    """The verdicts that stand and fit, those worth a look first, then newest first."""
    verdicts = Verdict.objects.filter(ended_at__isnull=True)
    if narrowed.kind == CORRECTED:
        verdicts = verdicts.exclude(kind=VerdictKind.CONFIRMED)
    elif narrowed.kind == DISAGREES:
        verdicts = verdicts.filter(attempt__verdict_status=VerdictStatus.DISAGREES)
    elif narrowed.kind:
        verdicts = verdicts.filter(kind=narrowed.kind)
    if narrowed.rule:
        verdicts = verdicts.filter(rule=narrowed.rule)
    if narrowed.engine:
        verdicts = verdicts.filter(diagnosis__domain=narrowed.engine)
    if narrowed.people:
        verdicts = verdicts.filter(domain=narrowed.people)
    weight = Case(
        When(attempt__verdict_status=VerdictStatus.DISAGREES, then=Value(0)),
        When(~Q(kind=VerdictKind.CONFIRMED), then=Value(1)),
        default=Value(2),
        output_field=IntegerField(),
    )
    return verdicts.annotate(weight=weight).order_by("weight", "-created_at", "-id")


def case_page(narrowed: CaseFilter, page: int) -> tuple[list[Verdict], int]:
    """A page of cases with what a row shows, and how many there are. Two queries."""
    found = standing(narrowed)
    total = found.count()
    pages = max(1, -(-total // PAGE_SIZE))
    begin = (min(max(1, page), pages) - 1) * PAGE_SIZE
    rows = found.select_related("attempt__workload", "attempt__cluster", "diagnosis", "by").defer(
        "diagnosis__contract", "attempt__search"
    )
    return list(rows[begin : begin + PAGE_SIZE]), total


def by_domain() -> list[DomainRow]:
    """A row a domain on which there are verdicts, in the order of the taxonomy. One query."""
    counted = (
        Verdict.objects.filter(ended_at__isnull=True)
        .order_by()
        .values_list("diagnosis__domain", "kind", "domain")
        .annotate(rows=Count("pk"))
    )
    kinds: dict[str, Counter[str]] = {}
    instead: dict[str, Counter[str]] = {}
    for engine, kind, people, rows in counted:
        kinds.setdefault(engine, Counter())[kind] += rows
        if kind == VerdictKind.WRONG_CAUSE:
            instead.setdefault(engine, Counter())[people] += rows
    order = list(SUB_DOMAINS)
    return [
        DomainRow(
            domain,
            wilson(kinds[domain][VerdictKind.CONFIRMED], kinds[domain].total()),
            kinds[domain][VerdictKind.WRONG_NODE],
            kinds[domain][VerdictKind.INCOMPLETE],
            sorted(instead.get(domain, Counter()).items(), key=lambda item: (-item[1], item[0])),
        )
        for domain in sorted(kinds, key=lambda domain: order.index(domain) if domain in order else len(order))
    ]


def export_size(narrowed: CaseFilter, most: int) -> Size:
    """What an export of the first `most` cases would hold. Two queries."""
    attempts = list(standing(narrowed).values_list("attempt_id", flat=True)[:most])
    kept = Stream.objects.filter(attempt_id__in=attempts).exclude(blob="")
    found: dict[str, Any] = kept.aggregate(streams=Count("pk"), bytes=Sum("size"))
    return Size(len(attempts), found["streams"], found["bytes"] or 0)


def cases_to_export(narrowed: CaseFilter, most: int) -> list[int]:
    """Ids of the first `most` verdicts that fit."""
    return list(standing(narrowed).values_list("pk", flat=True)[:most])


def case(verdict_id: int) -> Verdict | None:
    """One case with all that its label is made of; None when the verdict is gone."""
    rows = Verdict.objects.select_related("attempt__workload", "attempt__cluster", "diagnosis")
    return rows.filter(pk=verdict_id).first()


def kept_streams(attempt_id: int) -> Sequence[Stream]:
    """The streams of an attempt whose bytes are kept."""
    return list(Stream.objects.filter(attempt_id=attempt_id).exclude(blob="").order_by("name"))
