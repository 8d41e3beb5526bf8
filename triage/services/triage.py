"""How the triage of an attempt moves on: requested, collecting, diagnosing, done or failed.

Every step is one transaction on the attempt's row. The broker is told after the commit, and only as a hint: what it
loses, `unfinished_work` finds again in the database. Workers hold leases; a lease that isn't renewed is taken over by
another worker.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from triage.models import Attempt, Collection, CollectionState, EventKind, TriageState
from triage.services.events import record_event
from triage.services.facts import told
from triage.services.queue import Job, enqueue

MAX_TRIES = 5
"""A worker that dies with an attempt so often is not given it again."""


@transaction.atomic
def request_triage(attempt_id: int, *, reason: str = "", actor: AbstractBaseUser | None = None) -> bool:
    """Asks for an attempt to be triaged, from the start when it already was. False when it was waiting already."""
    attempt = Attempt.objects.select_for_update().get(pk=attempt_id)
    if attempt.triage_state == TriageState.PENDING and attempt.triage_requested_at is not None:
        return False
    now = timezone.now()
    attempt.triage_state = TriageState.PENDING
    attempt.triage_reason = ""
    attempt.triage_run += 1
    attempt.triage_tries = 0
    attempt.triage_lease = attempt.triage_started_at = attempt.triage_heartbeat_at = attempt.triage_finished_at = None
    attempt.triage_requested_at = attempt.triage_queued_at = now
    attempt.save(update_fields=_TRIAGE_FIELDS)
    record_event(EventKind.TRIAGE_REQUESTED, attempt=attempt, actor=actor, reason=reason, run=attempt.triage_run)
    enqueue(Job.TRIAGE, attempt.pk)
    return True


@transaction.atomic
def begin_triage(attempt_id: int) -> None:
    """Starts to collect what is not collected yet, or to diagnose when everything is. Nothing unless it waits for
    that.
    """
    attempt = Attempt.objects.select_for_update().filter(pk=attempt_id, triage_state=TriageState.PENDING).first()
    if attempt is None:
        return
    now = timezone.now()
    attempt.triage_state = TriageState.COLLECTING
    attempt.triage_started_at = attempt.triage_heartbeat_at = now
    attempt.save(update_fields=_TRIAGE_FIELDS)
    record_event(EventKind.TRIAGE_STARTED, attempt=attempt, run=attempt.triage_run)
    waiting = list(attempt.collections.filter(state=CollectionState.PENDING).values_list("pk", flat=True))
    Collection.objects.filter(pk__in=waiting).update(queued_at=now)
    for collection_id in waiting:
        enqueue(Job.COLLECT, collection_id)
    _move_to_diagnosing(attempt)


@transaction.atomic
def continue_triage(attempt_id: int) -> None:
    """Moves a collecting attempt on to diagnosing when nothing is left to collect."""
    attempt = Attempt.objects.select_for_update().filter(pk=attempt_id, triage_state=TriageState.COLLECTING).first()
    if attempt is not None:
        _move_to_diagnosing(attempt)


def _move_to_diagnosing(attempt: Attempt) -> None:
    """Call with the attempt's row locked."""
    if attempt.collections.exclude(state=CollectionState.DONE).exists():
        return
    attempt.triage_state = TriageState.DIAGNOSING
    attempt.triage_lease = None
    attempt.triage_queued_at = attempt.triage_heartbeat_at = timezone.now()
    attempt.save(update_fields=_TRIAGE_FIELDS)
    enqueue(Job.DIAGNOSE, attempt.pk)


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
    if attempt.triage_state != TriageState.DIAGNOSING or (attempt.triage_lease and _fresh(attempt.triage_heartbeat_at)):
        return None
    if attempt.triage_tries >= MAX_TRIES:
        _fail(attempt, f"gave up after {MAX_TRIES} tries: a worker died or was stopped each time while diagnosing")
        return None
    if attempt.triage_tries:
        record_event(EventKind.TRIAGE_REQUEUED, attempt=attempt, run=attempt.triage_run, tries=attempt.triage_tries)
    attempt.triage_lease = uuid.uuid4()
    attempt.triage_heartbeat_at = timezone.now()
    attempt.triage_tries += 1
    attempt.save(update_fields=_TRIAGE_FIELDS)
    return DiagnosisLease(attempt, attempt.triage_run, attempt.triage_lease)


def renew_diagnosis(lease: DiagnosisLease) -> bool:
    """Says that the diagnosing goes on; False when the lease was lost to another worker or a new request."""
    held = Attempt.objects.filter(pk=lease.attempt.pk, triage_lease=lease.token, triage_run=lease.run)
    return bool(held.update(triage_heartbeat_at=timezone.now()))


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
    attempt.triage_finished_at = timezone.now()
    attempt.save(update_fields=_TRIAGE_FIELDS)
    record_event(EventKind.TRIAGE_FAILED, attempt=attempt, reason=attempt.triage_reason, run=attempt.triage_run)


# --- what was lost on the way -----------------------------------------------------------------------------------------


@dataclass
class Unfinished:
    """Work that nobody seems to do."""

    begin: list[int] = field(default_factory=list)
    collect: list[int] = field(default_factory=list)
    advance: list[int] = field(default_factory=list)
    diagnose: list[int] = field(default_factory=list)

    @property
    def total(self) -> int:
        return len(self.begin) + len(self.collect) + len(self.advance) + len(self.diagnose)


def unfinished_work(*, told_before: datetime, limit: int = 1000) -> Unfinished:
    """Attempts and collections whose worker is silent, or of which the broker was told before `told_before` in vain."""
    silent = timezone.now() - timedelta(seconds=settings.FAULTLINE_LEASE_SECONDS)
    told = Q(queued_at__isnull=True) | Q(queued_at__lt=told_before)
    attempts = Attempt.objects.order_by("triage_queued_at", "pk")
    attempt_told = Q(triage_queued_at__isnull=True) | Q(triage_queued_at__lt=told_before)
    collecting = attempts.filter(triage_state=TriageState.COLLECTING)
    open_collections = Collection.objects.filter(attempt__triage_state=TriageState.COLLECTING).order_by(
        "queued_at", "pk"
    )
    diagnosing = attempts.filter(triage_state=TriageState.DIAGNOSING)
    dead = Q(triage_lease__isnull=False, triage_heartbeat_at__lt=silent)
    return Unfinished(
        begin=_ids(attempts.filter(attempt_told, triage_state=TriageState.PENDING), limit),
        collect=_ids(
            open_collections.filter(
                Q(told, state=CollectionState.PENDING) | Q(state=CollectionState.RUNNING, heartbeat_at__lt=silent)
            ),
            limit,
        ),
        advance=_ids(
            collecting.exclude(collections__state__in=[CollectionState.PENDING, CollectionState.RUNNING]), limit
        ),
        diagnose=_ids(diagnosing.filter(dead | Q(attempt_told, triage_lease__isnull=True)), limit),
    )


def requeue(work: Unfinished) -> None:
    """Tells the broker again about work that was lost."""
    now = timezone.now()
    with transaction.atomic():
        Attempt.objects.filter(pk__in=[*work.begin, *work.diagnose]).update(triage_queued_at=now)
        Collection.objects.filter(pk__in=work.collect).update(queued_at=now)
        for job, ids in ((Job.TRIAGE, work.begin), (Job.COLLECT, work.collect), (Job.DIAGNOSE, work.diagnose)):
            for pk in ids:
                enqueue(job, pk)
    for attempt_id in work.advance:
        continue_triage(attempt_id)


def _ids(query: Any, limit: int) -> list[int]:
    return list(query.values_list("pk", flat=True)[:limit])


def _fresh(heartbeat: datetime | None) -> bool:
    return heartbeat is not None and heartbeat > timezone.now() - timedelta(seconds=settings.FAULTLINE_LEASE_SECONDS)


_TRIAGE_FIELDS: Sequence[str] = [
    "triage_state", "triage_reason", "triage_run", "triage_tries", "triage_requested_at", "triage_queued_at",
    "triage_started_at", "triage_heartbeat_at", "triage_finished_at", "triage_lease",
]  # fmt: skip
