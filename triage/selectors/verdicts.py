"""What people said of the diagnoses of an attempt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import Count

from engine.model import AMBIGUOUS, SUB_DOMAINS
from triage.models import Attempt, Diagnosis, Verdict, VerdictKind, VerdictStatus
from triage.selectors.kept import kept
from triage.statistics import Share, wilson
from triage.text import printable


@dataclass(frozen=True)
class Said:
    """The standing word on an attempt beside the machine's, made printable."""

    status: str
    verdict: Verdict | None
    title: str
    domain: str
    sub_domain: str
    nodes: tuple[str, ...]
    machine: Diagnosis | None
    """What the engine says or had said, where it is not what stands: the current diagnosis if it disagrees, else the
    one that was corrected."""
    machine_why: str = ""
    agrees: bool = False
    """The person corrected an earlier diagnosis, and the current one says what they said."""

    @property
    def is_correction(self) -> bool:
        return self.verdict is not None and self.verdict.is_correction


def said(attempt: Attempt) -> Said:
    """The answer that stands. Needs `attempt.verdict` with its diagnosis, and `attempt.diagnosis`; no query."""
    verdict, diagnosis = attempt.verdict, attempt.diagnosis
    nodes = tuple(printable(node) for node in attempt.blamed_nodes)
    common: dict[str, Any] = {
        "status": attempt.verdict_status,
        "verdict": verdict,
        "title": printable(attempt.title),
        "domain": attempt.domain,
        "sub_domain": attempt.sub_domain,
        "nodes": nodes,
    }
    if verdict is None or diagnosis is None:
        return Said(**common, machine=None)
    if attempt.verdict_status == VerdictStatus.DISAGREES:
        return Said(**common, machine=diagnosis, machine_why=_why(diagnosis))
    if verdict.is_correction:
        newer = verdict.diagnosis_id != diagnosis.pk
        agrees = newer and (diagnosis.domain, diagnosis.sub_domain) == (verdict.domain, verdict.sub_domain)
        return Said(**common, machine=verdict.diagnosis, agrees=agrees)
    return Said(**common, machine=None)


def history(attempt: Attempt) -> list[Verdict]:
    """Everything that was said of this attempt, newest first."""
    said = attempt.verdicts.select_related("by", "ended_by", "diagnosis").defer("diagnosis__contract")
    return list(said.order_by("-created_at", "-id")[:50])


def rule_precision(rule: str) -> Share:
    """How often people confirmed what this rule decided, of the verdicts that stand. One query, and kept a while."""
    return kept("precision", rule, lambda: _precision(rule))


def _precision(rule: str) -> Share:
    standing = Verdict.objects.filter(rule=rule, ended_at__isnull=True).order_by()
    counts = dict(standing.values_list("kind").annotate(rows=Count("*")))
    return wilson(counts.get(VerdictKind.CONFIRMED, 0), sum(counts.values()))


def taxonomy() -> list[tuple[str, tuple[str, ...]]]:
    """Every domain with the sub-domains that a person may choose."""
    return [(domain, subs if domain == "unattributed" else (*subs, AMBIGUOUS)) for domain, subs in SUB_DOMAINS.items()]


def _why(diagnosis: Diagnosis) -> str:
    return printable((diagnosis.root_cause or {}).get("why", ""))
