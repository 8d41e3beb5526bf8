"""A diagnosis is recorded once for the same attempt, ruleset, engine and evidence; a newer one supersedes it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec
from django.db import transaction
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from engine import model as engine
from triage.models import Attempt, Diagnosis, DiagnosisNode, EventKind, NodeRole, Stream, TriageState
from triage.services.attempts import search_of
from triage.services.events import record_event
from triage.services.facts import keepable, short
from triage.services.grouping import group_attempt
from triage.services.triage import DiagnosisLease
from triage.services.verdicts import ANSWER_FIELDS, reconsider

MAX_NAMED_RULES = 200


def evidence_hash(facts: engine.Attempt, streams: Sequence[Stream], reports: Sequence[engine.SourceReport]) -> str:
    """SHA-256 over everything that a diagnosis is drawn from, whatever the order."""
    parts = {
        "attempt": msgspec.to_builtins(facts),
        "streams": sorted(
            [s.name, s.source, s.node or "", -1 if s.rank is None else s.rank, s.sha256] for s in streams
        ),
        "reports": sorted(msgspec.json.encode(report).decode() for report in reports),
    }
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()


def find_diagnosis(attempt_id: int, ruleset: str, engine_version: str, evidence: str) -> Diagnosis | None:
    """The diagnosis that is already there for the same input."""
    return Diagnosis.objects.filter(
        attempt=attempt_id, ruleset=ruleset, engine_version=engine_version, evidence_hash=evidence
    ).first()


@transaction.atomic
def record_diagnosis(lease: DiagnosisLease, contract: dict[str, Any], evidence: str) -> Diagnosis | None:
    """Keeps a diagnosis (the contract as plain containers) and ends the triage. None when the lease was lost."""
    attempt = _held(lease)
    if attempt is None:
        return None
    contract = keepable(contract)
    info = contract["engine"]
    root = contract["root_cause"] or {}
    diagnosis, created = Diagnosis.objects.get_or_create(
        attempt=attempt,
        ruleset=info["ruleset"],
        engine_version=info["version"],
        evidence_hash=evidence,
        defaults={
            "supersedes": attempt.diagnosis,
            "contract": contract,
            "outcome": contract["outcome"],
            "domain": contract["domain"],
            "sub_domain": contract["sub_domain"],
            "title": short(contract["title"], 500),
            "rule": short(root.get("rule", ""), 200),
            "fingerprint": short(contract["fingerprint"]["key"], 200),
        },
    )
    if created:
        DiagnosisNode.objects.bulk_create(_nodes(diagnosis), batch_size=2000)
        record_event(
            EventKind.DIAGNOSIS_RECORDED,
            attempt=attempt,
            diagnosis=diagnosis.pk,
            title=diagnosis.title,
            ruleset=diagnosis.ruleset,
            engine=diagnosis.engine_version,
        )
    _make_current(attempt, diagnosis)
    return diagnosis


@transaction.atomic
def keep_diagnosis(lease: DiagnosisLease, diagnosis: Diagnosis) -> bool:
    """Ends a triage whose answer is already there. False when the lease was lost."""
    attempt = _held(lease)
    if attempt is None:
        return False
    _make_current(attempt, diagnosis)
    return True


def _held(lease: DiagnosisLease) -> Attempt | None:
    attempt = Attempt.objects.select_for_update(of=("self",)).select_related(
        "workload", "cluster", "diagnosis", "verdict"
    )
    held = attempt.get(pk=lease.attempt.pk)
    return held if held.triage_lease == lease.token and held.triage_run == lease.run else None


def _make_current(attempt: Attempt, diagnosis: Diagnosis) -> None:
    before = attempt.diagnosis_id
    attempt.diagnosis = diagnosis
    attempt.outcome, attempt.rule = diagnosis.outcome, diagnosis.rule
    attempt.matched, attempt.missing = named_rules(diagnosis.contract), missing_sources(diagnosis.contract)
    reconsider(attempt)
    attempt.triage_state = TriageState.DONE
    attempt.triage_reason = ""
    attempt.triage_lease = None
    attempt.triage_finished_at = timezone.now()
    attempt.search = search_of(attempt)
    attempt.save(
        update_fields=[
            "diagnosis", "outcome", "rule", "matched", "missing", *ANSWER_FIELDS,
            "triage_state", "triage_reason", "triage_lease", "triage_finished_at", "search",
        ]
    )  # fmt: skip
    if before is not None and before != diagnosis.pk:
        record_event(EventKind.DIAGNOSIS_SUPERSEDED, attempt=attempt, diagnosis=before, by=diagnosis.pk)
    group_attempt(attempt, diagnosis)


def named_rules(contract: dict[str, Any]) -> list[str]:
    """Every rule that a diagnosis names, in order; at most MAX_NAMED_RULES."""
    named = [contract["root_cause"] or {}, *contract["candidates"], *contract["symptoms"], *contract["evidence"]]
    rules = {short(part["rule"], 200) for part in named if part.get("rule")}
    return sorted(rules)[:MAX_NAMED_RULES]


def missing_sources(contract: dict[str, Any]) -> list[str]:
    """The sources that were not there or not complete, in order."""
    return sorted({short(report["source"], 32) for report in contract["coverage"] if report["status"] != "ok"})


def _nodes(diagnosis: Diagnosis) -> list[DiagnosisNode]:
    roles = set(NodeRole.values)
    named = {entry["node"]: entry for entry in reversed(diagnosis.contract["affected_nodes"])}
    return [
        DiagnosisNode(
            diagnosis=diagnosis,
            node=short(node, 253),
            role=entry["role"] if entry["role"] in roles else NodeRole.AFFECTED,
            first_at=parse_datetime(entry["first_at"]) if entry.get("first_at") else None,
        )
        for node, entry in reversed(named.items())
    ]
