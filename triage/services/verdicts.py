"""A person's word on a diagnosis: confirm, correct, withdraw; and what becomes of it when a newer diagnosis comes.

A verdict stands until a person takes it back or another takes its place. The machine never does either: a newer
diagnosis that differs raises "engine now disagrees", and the attempt keeps the person's answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.utils import timezone

from engine.model import AMBIGUOUS, SUB_DOMAINS
from triage.models import (
    CORRECTIONS,
    Attempt,
    Diagnosis,
    EventKind,
    Membership,
    NodeRole,
    Verdict,
    VerdictKind,
    VerdictStatus,
)
from triage.services.attempts import refresh_search
from triage.services.events import record_event
from triage.services.facts import keepable, short
from triage.services.grouping import renew_totals
from triage.services.masking import mask_text
from triage.text import printable, readable

MAX_REASON = 4_000


class VerdictConflict(Exception):
    """Somebody else, or a newer diagnosis, came in between; `standing` is the verdict that stands now."""

    def __init__(self, message: str, standing: Verdict | None) -> None:
        super().__init__(message)
        self.standing = standing


class VerdictRefused(ValueError):
    """A correction that can't be kept; `field` names what is wrong with it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True)
class Answer:
    """What a person holds to be right."""

    domain: str
    sub_domain: str
    title: str
    nodes: Sequence[str] = ()
    evidence: Sequence[str] = ()
    """Ids of the diagnosis's evidence."""
    lines: Sequence[dict[str, Any]] = ()
    """Further lines, as `triage.services.quotes.read_quote` gives them."""


@transaction.atomic
def confirm(attempt_id: int, actor: AbstractBaseUser, *, diagnosis_id: int, seen: int | None = None) -> Verdict:
    """The diagnosis is right. `seen` is the verdict that the person saw standing, if any.

    Sent twice, or said by two people at once, it is kept once. Raises VerdictConflict.
    """
    attempt = _locked(attempt_id)
    standing = attempt.verdict
    if standing and standing.diagnosis_id == diagnosis_id and not standing.is_correction:
        return standing
    diagnosis = _judged(attempt, diagnosis_id, seen)
    verdict = _stand(
        attempt,
        actor,
        diagnosis=diagnosis,
        kind=VerdictKind.CONFIRMED,
        title=diagnosis.title,
        domain=diagnosis.domain,
        sub_domain=diagnosis.sub_domain,
        nodes=_blamed(diagnosis),
        evidence=list((diagnosis.root_cause or {}).get("evidence", ()))[:50],
    )
    _tell(EventKind.VERDICT_CONFIRMED, attempt, verdict, actor)
    return verdict


@transaction.atomic
def correct(
    attempt_id: int,
    actor: AbstractBaseUser,
    *,
    diagnosis_id: int,
    seen: int | None,
    kind: str,
    reason: str,
    answer: Answer,
) -> Verdict:
    """The diagnosis is wrong or not all; `answer` is what is right. Raises VerdictRefused, VerdictConflict."""
    attempt = _locked(attempt_id)
    reason = mask_text(keepable(readable(reason.strip())))
    standing = attempt.verdict
    if (
        standing
        and (standing.by_id, standing.kind, standing.reason, standing.diagnosis_id)
        == (actor.pk, kind, reason, diagnosis_id)
        and _said(standing) == (answer.domain, answer.sub_domain, frozenset(answer.nodes))
    ):
        return standing  # sent twice
    diagnosis = _judged(attempt, diagnosis_id, seen)
    _check(kind, reason, answer, diagnosis)
    verdict = _stand(
        attempt,
        actor,
        diagnosis=diagnosis,
        kind=kind,
        reason=reason,
        title=short(printable(answer.title.strip()) or diagnosis.title, 500),
        domain=answer.domain,
        sub_domain=answer.sub_domain,
        nodes=[short(node, 253) for node in dict.fromkeys(answer.nodes)],
        evidence=list(dict.fromkeys(answer.evidence)),
        lines=keepable(list(answer.lines)),
    )
    _tell(EventKind.VERDICT_CORRECTED, attempt, verdict, actor)
    return verdict


@transaction.atomic
def keep(attempt_id: int, actor: AbstractBaseUser, *, diagnosis_id: int, verdict_id: int) -> Verdict:
    """The earlier word stays, against the newer diagnosis that disagrees with it. Raises VerdictConflict."""
    attempt = _locked(attempt_id)
    standing = attempt.verdict
    if standing and standing.diagnosis_id == diagnosis_id and standing.pk != verdict_id and standing.by_id == actor.pk:
        return standing  # sent twice
    diagnosis = _judged(attempt, diagnosis_id, verdict_id)
    assert standing is not None
    same_cause = (standing.domain, standing.sub_domain) == (diagnosis.domain, diagnosis.sub_domain)
    verdict = _stand(
        attempt,
        actor,
        diagnosis=diagnosis,
        kind=VerdictKind.WRONG_NODE if same_cause else VerdictKind.WRONG_CAUSE,
        reason=standing.reason or "Confirmed under an earlier ruleset, and kept.",
        title=standing.title,
        domain=standing.domain,
        sub_domain=standing.sub_domain,
        nodes=standing.nodes,
        evidence=[ref for ref in standing.evidence if ref in diagnosis.evidence],
        lines=standing.lines,
    )
    _tell(EventKind.VERDICT_KEPT, attempt, verdict, actor)
    return verdict


@transaction.atomic
def withdraw(attempt_id: int, actor: AbstractBaseUser, *, verdict_id: int) -> bool:
    """Takes a verdict back: the diagnosis counts again. False when that verdict doesn't stand any more."""
    attempt = _locked(attempt_id)
    verdict = attempt.verdict
    if verdict is None or verdict.pk != verdict_id:
        return False
    _end(verdict, actor)
    _answer(attempt, None)
    _tell(EventKind.VERDICT_WITHDRAWN, attempt, verdict, actor)
    return True


def reconsider(attempt: Attempt) -> None:
    """A diagnosis has become the current one: sets the columns that the standing answer fills, and says when it and the
    engine part or meet again. Call with the attempt's row locked; the caller saves `ANSWER_FIELDS`.
    """
    before = attempt.verdict_status
    apply_answer(attempt)
    verdict, diagnosis = attempt.verdict, attempt.diagnosis
    if verdict is None or diagnosis is None or before == attempt.verdict_status:
        return
    if attempt.verdict_status == VerdictStatus.DISAGREES:
        kind = EventKind.VERDICT_DISAGREES
    elif before == VerdictStatus.DISAGREES:
        kind = EventKind.VERDICT_AGREES
    else:
        return
    record_event(kind, attempt=attempt, verdict=verdict.pk, diagnosis=diagnosis.pk, title=diagnosis.title)


ANSWER_FIELDS = ("verdict", "verdict_status", "domain", "sub_domain", "blamed_nodes")
"""What `apply_answer` sets on an attempt."""


def apply_answer(attempt: Attempt) -> None:
    """Sets the columns of the answer that stands: the person's, else the diagnosis's. Doesn't save."""
    verdict, diagnosis = attempt.verdict, attempt.diagnosis
    attempt.verdict_status = _status(verdict, diagnosis)
    if verdict is not None:
        attempt.domain, attempt.sub_domain, attempt.blamed_nodes = verdict.domain, verdict.sub_domain, verdict.nodes
    elif diagnosis is not None:
        attempt.domain, attempt.sub_domain = diagnosis.domain, diagnosis.sub_domain
        attempt.blamed_nodes = _blamed(diagnosis)


# --- parts ------------------------------------------------------------------------------------------------------------


def _locked(attempt_id: int) -> Attempt:
    locked = Attempt.objects.select_for_update(of=("self",))
    return locked.select_related("workload", "cluster", "diagnosis", "verdict__by").get(pk=attempt_id)


def _judged(attempt: Attempt, diagnosis_id: int, seen: int | None) -> Diagnosis:
    """The diagnosis that is judged, when nothing came in between."""
    standing = attempt.verdict
    if attempt.diagnosis is None or attempt.diagnosis_id != diagnosis_id:
        raise VerdictConflict("A newer diagnosis came while you looked at this one. Nothing was saved.", standing)
    if attempt.verdict_id != seen:
        said = "The earlier word was withdrawn" if standing is None else f"{_name(standing.by)} said it first"
        raise VerdictConflict(f"{said}. Nothing was saved.", standing)
    return attempt.diagnosis


def _check(kind: str, reason: str, answer: Answer, diagnosis: Diagnosis) -> None:
    if kind not in CORRECTIONS:
        raise VerdictRefused("kind", "Choose what is wrong.")
    if not reason:
        raise VerdictRefused("reason", "Say why in a sentence: it becomes the label of this case.")
    if len(reason) > MAX_REASON:
        raise VerdictRefused("reason", f"At most {MAX_REASON:,} characters.")
    if answer.sub_domain not in (*SUB_DOMAINS.get(answer.domain, ()), AMBIGUOUS) or answer.domain not in SUB_DOMAINS:
        raise VerdictRefused("cause", "Choose a cause from the list.")
    unknown = [ref for ref in answer.evidence if ref not in diagnosis.evidence]
    if unknown:
        raise VerdictRefused("evidence", f"The diagnosis has no evidence {unknown[0]}.")
    said = (answer.domain, answer.sub_domain, frozenset(answer.nodes))
    machine = _machine(diagnosis)
    if kind == VerdictKind.WRONG_CAUSE and said[:2] == machine[:2] and answer.title.strip() in ("", diagnosis.title):
        raise VerdictRefused("cause", "This is the cause that the engine gave. Choose another, or name it in one line.")
    if kind == VerdictKind.WRONG_NODE and said[2] == machine[2]:
        raise VerdictRefused("nodes", "These are the nodes that the engine gave. Choose others.")


def _stand(attempt: Attempt, actor: AbstractBaseUser, **values: Any) -> Verdict:
    """Puts a verdict in the place of the one that stands."""
    if attempt.verdict is not None:
        _end(attempt.verdict, actor)
    verdict = Verdict.objects.create(attempt=attempt, by=actor, rule=values["diagnosis"].rule, **values)
    _answer(attempt, verdict)
    return verdict


def _end(verdict: Verdict, actor: AbstractBaseUser) -> None:
    verdict.ended_at, verdict.ended_by = timezone.now(), actor
    verdict.save(update_fields=["ended_at", "ended_by"])


def _answer(attempt: Attempt, verdict: Verdict | None) -> None:
    """Makes it the word that stands, wherever that is shown."""
    before, attempt.verdict = attempt.blamed_nodes, verdict
    apply_answer(attempt)
    attempt.save(update_fields=ANSWER_FIELDS)
    refresh_search(attempt)
    if attempt.blamed_nodes != before:
        renew_totals(*Membership.objects.filter(attempt=attempt).values_list("incident", flat=True))


def _tell(kind: EventKind, attempt: Attempt, verdict: Verdict, actor: AbstractBaseUser) -> None:
    record_event(
        kind,
        attempt=attempt,
        actor=actor,
        verdict=verdict.pk,
        diagnosis=verdict.diagnosis_id,
        verdict_kind=verdict.kind,
        title=verdict.title,
        reason=verdict.reason,
    )


def _status(verdict: Verdict | None, diagnosis: Diagnosis | None) -> VerdictStatus:
    if verdict is None:
        return VerdictStatus.UNCONFIRMED
    own = VerdictStatus.CORRECTED if verdict.is_correction else VerdictStatus.CONFIRMED
    if diagnosis is None or verdict.diagnosis_id == diagnosis.pk or _machine(diagnosis) == _said(verdict):
        return own
    if verdict.is_correction and _machine(diagnosis) == _machine(verdict.diagnosis):
        return own  # it says what the person has already overruled
    return VerdictStatus.DISAGREES


def _said(verdict: Verdict) -> tuple[str, str, frozenset[str]]:
    return verdict.domain, verdict.sub_domain, frozenset(verdict.nodes)


def _machine(diagnosis: Diagnosis) -> tuple[str, str, frozenset[str]]:
    return diagnosis.domain, diagnosis.sub_domain, frozenset(_blamed(diagnosis))


def _blamed(diagnosis: Diagnosis) -> list[str]:
    named = diagnosis.nodes.filter(role__in=[NodeRole.CAUSE, NodeRole.SUSPECT]).order_by("id")
    return list(named.values_list("node", flat=True))


def _name(user: Any) -> str:
    return user.get_full_name() or user.get_username()
