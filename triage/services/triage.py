"""How the triage of an attempt moves on: requested, collecting, diagnosing, done or failed.

Every step is one transaction on the attempt's row. The broker is told after the commit, and only that there is
something to do: what it is, workers read in the database (turns.py). They hold leases; a lease that isn't renewed is
taken over by another worker.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models.functions import Now

from triage.models import Attempt, CollectionState, EventKind, TriageState
from triage.services.clock import database_now
from triage.services.events import record_event
from triage.services.facts import told
from triage.services.queue import knock

MAX_TRIES = 5
"""A worker that dies with an attempt so often is not given it again."""
DOUBLING = timedelta(minutes=10)


@transaction.atomic
def request_triage(attempt_id: int, *, reason: str = "", actor: AbstractBaseUser | None = None) -> bool:
    """Asks for an attempt to be triaged, from the start when it already was. False when it was waiting already."""
    attempt = Attempt.objects.select_for_update().get(pk=attempt_id)
    if attempt.triage_state == TriageState.PENDING and attempt.triage_requested_at is not None:
        return False
    now = database_now()
    attempt.triage_state = TriageState.PENDING
    attempt.triage_reason = ""
    attempt.triage_run += 1
    attempt.triage_tries = 0
    attempt.triage_lease = attempt.triage_started_at = attempt.triage_heartbeat_at = attempt.triage_finished_at = None
    attempt.triage_requested_at = attempt.triage_queued_at = now
    attempt.triage_rank = rank_of(attempt, now)
    attempt.save(update_fields=_TRIAGE_FIELDS)
    record_event(EventKind.TRIAGE_REQUESTED, attempt=attempt, actor=actor, reason=reason, run=attempt.triage_run)
    knock()
    return True


@transaction.atomic
def begin_triage(attempt_id: int) -> None:
    """Starts to collect what is not collected yet, or to diagnose when everything is. Nothing unless it waits for
    that.
    """
    attempt = Attempt.objects.select_for_update().filter(pk=attempt_id, triage_state=TriageState.PENDING).first()
    if attempt is not None:
        begin_locked(attempt)


def begin_locked(attempt: Attempt) -> None:
    """The same of one that waits and whose row is locked."""
    now = database_now()
    attempt.triage_state = TriageState.COLLECTING
    attempt.triage_started_at = attempt.triage_heartbeat_at = now
    attempt.save(update_fields=_TRIAGE_FIELDS)
    record_event(EventKind.TRIAGE_STARTED, attempt=attempt, run=attempt.triage_run)
    waiting = attempt.collections.filter(state=CollectionState.PENDING).update(queued_at=now)
    if waiting > 1:
        knock()  # others may help
    if not waiting:
        _move_to_diagnosing(attempt)


@transaction.atomic
def continue_triage(attempt_id: int) -> None:
    """Moves a collecting attempt on to diagnosing when nothing is left to collect."""
    attempt = Attempt.objects.select_for_update().filter(pk=attempt_id, triage_state=TriageState.COLLECTING).first()
    if attempt is not None:
        _move_to_diagnosing(attempt)


def _move_to_diagnosing(attempt: Attempt) -> None:
    """Call with the attempt's row locked. Whoever called goes on with it, or finds it with the next turn."""
    if attempt.collections.exclude(state=CollectionState.DONE).exists():
        return
    attempt.triage_state = TriageState.DIAGNOSING
    attempt.triage_lease = None
    attempt.triage_queued_at = attempt.triage_heartbeat_at = database_now()
    attempt.save(update_fields=_TRIAGE_FIELDS)


@dataclass(frozen=True)
class DiagnosisLease:
    """The right to diagnose an attempt, for as long as it is renewed."""

    attempt: Attempt
    run: int
    token: uuid.UUID


@transaction.atomic
def lease_diagnosis(attempt_id: int) -> DiagnosisLease | None:
    """Takes on the diagnosing of an attempt. None when there is nothing to do or another worker is at it."""
    attempt = Attempt.objects.select_for_update(of=("self",)).select_related("workload", "cluster").get(pk=attempt_id)
    return lease_locked_diagnosis(attempt)


def lease_locked_diagnosis(attempt: Attempt) -> DiagnosisLease | None:
    """The same, of an attempt with workload and cluster whose row is locked."""
    if attempt.triage_state != TriageState.DIAGNOSING or (attempt.triage_lease and _fresh(attempt.triage_heartbeat_at)):
        return None
    if attempt.triage_tries >= MAX_TRIES:
        _fail(attempt, f"gave up after {MAX_TRIES} tries: a worker died or was stopped each time while diagnosing")
        return None
    if attempt.triage_tries:
        record_event(EventKind.TRIAGE_REQUEUED, attempt=attempt, run=attempt.triage_run, tries=attempt.triage_tries)
    attempt.triage_lease = uuid.uuid4()
    attempt.triage_heartbeat_at = database_now()
    attempt.triage_tries += 1
    attempt.save(update_fields=_TRIAGE_FIELDS)
    return DiagnosisLease(attempt, attempt.triage_run, attempt.triage_lease)


def renew_diagnosis(lease: DiagnosisLease) -> bool:
    """Says that the diagnosing goes on; False when the lease was lost to another worker or a new request."""
    held = Attempt.objects.filter(pk=lease.attempt.pk, triage_lease=lease.token, triage_run=lease.run)
    return bool(held.update(triage_heartbeat_at=Now()))


@transaction.atomic
def fail_triage(attempt_id: int, reason: str, *, lease: DiagnosisLease | None = None) -> None:
    """Ends a triage that can't come to an answer. With a lease: only if it is still held."""
    attempt = Attempt.objects.select_for_update().get(pk=attempt_id)
    if attempt.is_triaged or (lease is not None and attempt.triage_lease != lease.token):
        return
    _fail(attempt, reason)


def _fail(attempt: Attempt, reason: str) -> None:
    attempt.triage_state = TriageState.FAILED
    attempt.triage_reason = told(" ".join(reason.split()), 1000)
    attempt.triage_lease = None
    attempt.triage_finished_at = database_now()
    attempt.save(update_fields=_TRIAGE_FIELDS)
    record_event(EventKind.TRIAGE_FAILED, attempt=attempt, reason=attempt.triage_reason, run=attempt.triage_run)


# --- in which order ---------------------------------------------------------------------------------------------------


def rank_of(attempt: Attempt, asked_at: datetime) -> float:
    """What waits is taken by this, the greatest first: by default what was asked for last, and each doubling of the
    GPUs counts as much as DOUBLING later.
    """
    gpus = max(1, len(attempt.nodes)) * max(1, attempt.gpus_per_node or 1)
    at = asked_at.timestamp()
    newest_first = settings.FAULTLINE_TRIAGE_ORDER == "newest"
    return (at if newest_first else -at) + DOUBLING.total_seconds() * math.log2(gpus)


def _fresh(heartbeat: datetime | None) -> bool:
    return heartbeat is not None and heartbeat > database_now() - timedelta(seconds=settings.FAULTLINE_LEASE_SECONDS)


_TRIAGE_FIELDS: Sequence[str] = [
    "triage_state", "triage_reason", "triage_run", "triage_tries", "triage_requested_at", "triage_queued_at",
    "triage_started_at", "triage_heartbeat_at", "triage_finished_at", "triage_lease", "triage_rank",
]  # fmt: skip
