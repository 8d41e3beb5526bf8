"""Whose turn it is: what a worker does next, read from the database and taken under a lease in one transaction.

A message in the broker only says that there is something to do, never what. So the order is the same whatever the
broker holds, has lost or holds twice: first the cluster of which least is at work (among equals any of them, so that a
cluster with thousands that wait takes no more than its turn), in it what was begun, then what waits, by its rank.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Count, Exists, IntegerField, OuterRef, Q, QuerySet, Subquery
from django.db.models.expressions import CombinedExpression
from django.db.models.functions import Coalesce, Now, Random

from triage.models import Attempt, Cluster, Collection, CollectionState, TriageState
from triage.services.clock import database_now
from triage.services.collecting import CollectionLease, lease_locked
from triage.services.triage import (
    DiagnosisLease,
    begin_locked,
    continue_triage,
    lease_locked_diagnosis,
    rank_of,
)

OTHER_END = 0.25
"""So often the last of a cluster comes first: however much newer there is, everything has its turn."""


@dataclass(frozen=True)
class Turn:
    """What was taken: one of the two."""

    collection: CollectionLease | None = None
    diagnosis: DiagnosisLease | None = None

    @property
    def attempt_id(self) -> int:
        if self.diagnosis is not None:
            return self.diagnosis.attempt.pk
        assert self.collection is not None
        return self.collection.collection.attempt_id


def take_turn() -> Turn | None:
    """Takes what is next. None when nothing is due."""
    for cluster_id, *due in _clusters_in_turn():
        mine = Attempt.objects.filter(cluster=cluster_id)
        for is_due, which in zip(due, (_to_diagnose, _to_collect, _waiting), strict=True):
            turn = _take(which(mine)) if is_due else None
            if turn is not None:
                return turn
    return None


def follow_turn(attempt_id: int) -> Turn | None:
    """Takes what comes next for the same attempt, if it is due: its streams are near, and what was begun ends."""
    mine = Attempt.objects.filter(pk=attempt_id)
    return _take(_to_diagnose(mine) | _to_collect(mine))


def is_anything_due() -> bool:
    """Whether a worker that asked now would have something to do."""
    return bool(_clusters_in_turn())


def call_up(limit: int = 1000) -> int:
    """What nobody asked for and of which nothing has come for a while waits for its turn from now on, and what lost its
    way is put back on it. Returns how many attempts that were.
    """
    quiet = Attempt.objects.filter(
        triage_state=TriageState.PENDING, triage_rank__isnull=True, triage_queued_at__lte=Now()
    )
    found = list(quiet.order_by("triage_queued_at", "pk")[:limit])
    now = database_now()
    for attempt in found:
        rank = rank_of(attempt, now)
        Attempt.objects.filter(pk=attempt.pk, triage_state=TriageState.PENDING).update(triage_rank=rank)
    stuck = Attempt.objects.filter(triage_state=TriageState.COLLECTING).exclude(
        collections__state__in=[CollectionState.PENDING, CollectionState.RUNNING]
    )
    lost = list(stuck.order_by("pk").values_list("pk", flat=True)[:limit])
    for attempt_id in lost:
        continue_triage(attempt_id)
    return len(found) + len(lost)


# --- which cluster ----------------------------------------------------------------------------------------------------


def _clusters_in_turn() -> list[tuple[int, bool, bool, bool]]:
    """Those with something due, in their order, and of what: to diagnose, to collect, to begin."""
    mine, alive = Attempt.objects.filter(cluster=OuterRef("pk")).order_by(), _silent_since()
    diagnosing = mine.filter(
        triage_state=TriageState.DIAGNOSING, triage_lease__isnull=False, triage_heartbeat_at__gte=alive
    )
    collecting = mine.filter(
        triage_state=TriageState.COLLECTING, collections__state=CollectionState.RUNNING,
        collections__heartbeat_at__gte=alive,
    )  # fmt: skip
    due = (Exists(_to_diagnose(mine)), Exists(_to_collect(mine)), Exists(_waiting(mine)))
    clusters = Cluster.objects.order_by(_count(diagnosing) + _count(collecting), Random()).values_list("pk", *due)
    return [row for row in clusters if any(row[1:])]


def _count(query: QuerySet[Attempt]) -> Coalesce:
    counted = query.values("cluster").annotate(count=Count("*")).values("count")
    return Coalesce(Subquery(counted, output_field=IntegerField()), 0)


# --- what of it -------------------------------------------------------------------------------------------------------


def _to_diagnose(attempts: QuerySet[Attempt]) -> QuerySet[Attempt]:
    free = (
        Q(triage_lease__isnull=True) | Q(triage_heartbeat_at__isnull=True) | Q(triage_heartbeat_at__lt=_silent_since())
    )
    return attempts.filter(free, triage_state=TriageState.DIAGNOSING)


def _to_collect(attempts: QuerySet[Attempt]) -> QuerySet[Attempt]:
    return attempts.filter(Exists(_due_collections(OuterRef("pk"))), triage_state=TriageState.COLLECTING)


def _waiting(attempts: QuerySet[Attempt]) -> QuerySet[Attempt]:
    return attempts.filter(triage_state=TriageState.PENDING, triage_rank__isnull=False)


def _due_collections(attempt_id: object) -> QuerySet[Collection]:
    pending = Q(state=CollectionState.PENDING) & (Q(queued_at__isnull=True) | Q(queued_at__lte=Now()))
    silent = Q(state=CollectionState.RUNNING, heartbeat_at__lt=_silent_since())
    return Collection.objects.filter(pending | silent, attempt=attempt_id)


def _silent_since() -> CombinedExpression:
    return Now() - timedelta(seconds=settings.FAULTLINE_LEASE_SECONDS)


@transaction.atomic
def _take(due: QuerySet[Attempt]) -> Turn | None:
    """The first of those that no other worker is taking right now."""
    order = "triage_rank" if random.random() < OTHER_END else "-triage_rank"
    attempt = (
        due.order_by(order)
        .select_related("workload", "cluster")
        .select_for_update(of=("self",), skip_locked=True)
        .first()
    )
    if attempt is None:
        return None
    if attempt.triage_state == TriageState.PENDING:
        begin_locked(attempt)
    if attempt.triage_state == TriageState.COLLECTING:
        for collection_id in _due_collections(attempt.pk).order_by("pk").values_list("pk", flat=True):
            lease = lease_locked(collection_id)
            if lease is not None:
                return Turn(collection=lease)
        attempt.refresh_from_db(fields=["triage_state"])  # the last source may have been given up
    diagnosis = lease_locked_diagnosis(attempt)
    return None if diagnosis is None else Turn(diagnosis=diagnosis)
