"""Sources are asked again: once for what arrives after an attempt's end, and a few times when they failed.

The same evidence gives the same diagnosis, so a round that brings nothing new changes nothing; else the new diagnosis
supersedes the old one.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models.functions import Now

from triage.models import Attempt, Collection, CollectionState, Recollection, TriageState
from triage.services.clock import database_now
from triage.services.triage import request_triage

MAX_ROUNDS = 4
"""The one for late lines, and three after failures."""
WORST = ("error", "missing", "empty", "partial", "ok")


def plan_recollection(attempt: Attempt, delay: float) -> None:
    """Sets when the sources of a new attempt are asked again. Nothing for one that ended long ago: all has arrived."""
    if not delay:
        return
    now = database_now()
    due = (attempt.ended_at or now) + timedelta(seconds=delay)
    is_fresh = due > now
    Recollection.objects.update_or_create(
        attempt=attempt, defaults={"due_at": due if is_fresh else None, "rounds": 0, "delay": delay}
    )


def plan_retry(attempt_id: int) -> None:
    """After a collection failed: sources are asked again, later each time, at most MAX_ROUNDS times."""
    plan = Recollection.objects.filter(attempt=attempt_id, due_at__isnull=True, rounds__lt=MAX_ROUNDS).first()
    if plan is not None:
        wait = timedelta(seconds=plan.delay * 4 ** max(plan.rounds - 1, 0))
        Recollection.objects.filter(pk=plan.pk, due_at__isnull=True).update(due_at=Now() + wait)


def due_recollections(limit: int = 500) -> list[int]:
    """Attempts whose sources are to be asked again, and that are not being triaged right now."""
    due = Recollection.objects.filter(
        due_at__lte=Now(), attempt__triage_state__in=[TriageState.DONE, TriageState.FAILED]
    )
    return list(due.order_by("due_at", "pk").values_list("attempt_id", flat=True)[:limit])


@transaction.atomic
def recollect(attempt_id: int) -> bool:
    """Asks all sources of an attempt again, but received bundles. False when another worker did."""
    attempt = Attempt.objects.select_for_update().get(pk=attempt_id)
    plan = Recollection.objects.select_for_update().filter(attempt=attempt, due_at__lte=Now()).first()
    if plan is None or attempt.triage_state not in (TriageState.DONE, TriageState.FAILED):
        return False
    plan.due_at = None
    plan.rounds += 1
    plan.save(update_fields=["due_at", "rounds"])
    return _reopen(attempt) and request_triage(attempt.pk, reason="sources asked again for what arrived late")


@transaction.atomic
def fetch_again(attempt_id: int, actor: AbstractBaseUser) -> bool:
    """Asks all sources of an attempt again because somebody wants it, and diagnoses it with what they give; where
    there is no source to ask (a received bundle), it is only diagnosed again. False when it was waiting already.
    """
    attempt = Attempt.objects.select_for_update().get(pk=attempt_id)
    if attempt.triage_state not in (TriageState.DONE, TriageState.FAILED):
        return False
    asked = _reopen(attempt)
    reason = "sources asked again on the page" if asked else "asked for on the page"
    return request_triage(attempt.pk, reason=reason, actor=actor)


def _reopen(attempt: Attempt) -> bool:
    """Their reports stay: the better one of each source is kept."""
    sources = Collection.objects.filter(attempt=attempt, connector__contains="/", state=CollectionState.DONE)
    reopened = sources.update(
        state=CollectionState.PENDING, tries=0, lease=None, queued_at=None, started_at=None, heartbeat_at=None,
        finished_at=None, streams_done=0, bytes_done=0,
    )  # fmt: skip
    return bool(reopened)


def better_reports(before: Sequence[dict[str, Any]], now: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each source the report of the round that gave more; what was collected before stays collected."""
    earlier = {report["source"]: report for report in before}
    kept = []
    for report in now:
        old = earlier.get(report["source"])
        kept.append(old if old is not None and _worth(old) >= _worth(report) else report)
    new_sources = {report["source"] for report in now}
    kept += [report for report in before if report["source"] not in new_sources and report["streams"]]
    return kept


def _worth(report: dict[str, Any]) -> tuple[int, int, bool]:
    status = report["status"]
    return report.get("bytes") or 0, WORST.index(status) if status in WORST else 0, not report.get("failed")
