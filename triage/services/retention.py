"""What the policies say is no longer kept goes: raw streams, whole attempts, names of people.

Work is done in batches, each one transaction on rows that nobody else holds, so that it can be stopped at any moment
and run twice at once. Files go after the commit: a file without a row is found by `manage.py verify`, a row without its
file would be a loss.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from axes.models import AccessAttempt
from django.db import connection, transaction
from django.db.models import Exists, OuterRef, Q, QuerySet, Sum, TextField
from django.db.models.functions import Cast, Length
from django.utils import timezone

from triage.models import (
    Attempt,
    Cluster,
    Diagnosis,
    Incident,
    ShareOpening,
    Stream,
    TriageState,
    Workload,
)
from triage.models.incident import SETTLED
from triage.retention import KINDS, Policy
from triage.services import observations
from triage.services.attempts import refresh_search
from triage.services.blob_locks import removing_blobs
from triage.services.grouping import renew_totals
from triage.services.masking import NameMask
from triage.services.sources import blob_store, configuration

BATCH = 200
UNUSED_SECONDS = 2 * 3600
"""A file without a row may belong to a collection that is still at work; after so long it hardly does. One that does is
collected again.
"""


@dataclass(frozen=True)
class Share:
    """What one policy takes of one cluster."""

    cluster: str
    kind: str
    keep_days: float
    rows: int
    bytes: int
    """Of files, and of diagnoses as text; 0 for personal data, which is overwritten."""


def due(now: datetime | None = None) -> list[Share]:
    """What would go now, by cluster and kind."""
    return [
        Share(cluster.name, kind, seconds / 86_400, *_SIZES[kind](cluster, before))
        for cluster, kind, seconds, before in _policies(now or timezone.now())
    ]


def prune(now: datetime | None = None, *, seconds: float = float("inf")) -> list[Share]:
    """Removes what is due until nothing is left or the time is over. Returns what went."""
    now, stop = now or timezone.now(), time.monotonic() + seconds
    gone = []
    for cluster, kind, kept, before in _policies(now):
        rows = size = 0
        while time.monotonic() < stop:
            some, some_bytes = _REMOVALS[kind](cluster, before)
            rows, size = rows + some, size + some_bytes
            if not some:
                break
        gone.append(Share(cluster.name, kind, kept / 86_400, rows, size))
    return gone


def _policies(now: datetime) -> Iterator[tuple[Cluster, str, float, datetime]]:
    retention = configuration().retention
    for cluster in Cluster.objects.order_by("name"):
        policy: Policy = retention.of(cluster.name)
        for kind in KINDS:
            if seconds := getattr(policy, kind):
                yield cluster, kind, seconds, now - timedelta(seconds=seconds)


def _old(cluster: Cluster, before: datetime) -> QuerySet[Attempt]:
    """Attempts that ended, and became known, so long ago, and at which nobody works."""
    return Attempt.objects.filter(**_is_old(cluster, before))


def _is_old(cluster: Cluster, before: datetime, of: str = "") -> dict[str, Any]:
    facts = {"cluster": cluster, "sort_at__lt": before, "created_at__lt": before}
    facts["triage_state__in"] = (TriageState.DONE, TriageState.FAILED)
    return {f"{of}{name}": value for name, value in facts.items()}


# --- raw streams ------------------------------------------------------------------------------------------------------


def _streams(cluster: Cluster, before: datetime) -> QuerySet[Stream]:
    return Stream.objects.filter(**_is_old(cluster, before, of="attempt__")).exclude(blob="").order_by("pk")


def _size_of_streams(cluster: Cluster, before: datetime) -> tuple[int, int]:
    streams, store = _streams(cluster, before), blob_store()
    rest = Stream.objects.filter(blob=OuterRef("blob")).exclude(pk__in=streams.values("pk"))
    keys = streams.filter(~Exists(rest)).order_by().values_list("blob", flat=True).distinct()
    return streams.count(), sum(store.stored_bytes(key) for key in keys.iterator())


@transaction.atomic
def _remove_streams(cluster: Cluster, before: datetime) -> tuple[int, int]:
    streams = _streams(cluster, before).select_related("attempt")
    # the attempts too: who asks for triage now waits, and then sees which streams are gone
    rows = list(streams.select_for_update(of=("self", "attempt"), skip_locked=True)[:BATCH])
    Stream.objects.filter(pk__in=[row.pk for row in rows]).update(blob="")
    return len(rows), _forget_blobs({row.blob for row in rows})


def _forget_blobs(keys: set[str]) -> int:
    """Removes, after the commit, the files that no stream names any more. Returns their bytes."""
    named = set(Stream.objects.filter(blob__in=keys).values_list("blob", flat=True))
    unused, store = sorted(keys - named), blob_store()
    transaction.on_commit(partial(remove_unused, unused))
    return sum(store.stored_bytes(key) for key in unused)


def remove_unused(keys: Iterable[str], *, unused_for: float = UNUSED_SECONDS) -> list[str]:
    """Removes blobs that no stream names, unless they were written a moment ago. Returns those that went."""
    store, gone = blob_store(), []
    for key in keys:
        with removing_blobs():
            if not Stream.objects.filter(blob=key).exists() and store.remove(key, unless_newer_than=unused_for):
                gone.append(key)
    return gone


# --- attempts ---------------------------------------------------------------------------------------------------------


def _attempts(cluster: Cluster, before: datetime) -> QuerySet[Attempt]:
    """Not those of an incident at which people are at work."""
    open_work = Q(membership__isnull=False) & ~Q(membership__incident__status__in=SETTLED)
    return _old(cluster, before).exclude(open_work).order_by("pk")


def _size_of_attempts(cluster: Cluster, before: datetime) -> tuple[int, int]:
    attempts = _attempts(cluster, before)
    text = Length(Cast("contract", TextField()))
    size = Diagnosis.objects.filter(attempt__in=attempts.values("pk")).aggregate(bytes=Sum(text))["bytes"] or 0
    keys = Stream.objects.filter(attempt__in=attempts.values("pk")).exclude(blob="").values_list("blob", flat=True)
    store = blob_store()
    return attempts.count(), size + sum(store.stored_bytes(key) for key in keys.distinct().iterator())


@transaction.atomic
def _remove_attempts(cluster: Cluster, before: datetime) -> tuple[int, int]:
    ids = list(
        _attempts(cluster, before)
        .select_for_update(of=("self",), skip_locked=True)
        .values_list("pk", flat=True)[:BATCH]
    )
    mine = Attempt.objects.filter(pk__in=ids)
    incidents = set(Incident.objects.filter(memberships__attempt__in=ids).values_list("pk", flat=True))
    workloads = set(mine.values_list("workload", flat=True))
    keys = set(Stream.objects.filter(attempt__in=ids).exclude(blob="").values_list("blob", flat=True))
    text = Length(Cast("contract", TextField()))
    size = Diagnosis.objects.filter(attempt__in=ids).aggregate(bytes=Sum(text))["bytes"] or 0
    mine.update(diagnosis=None, verdict=None)
    mine.delete()
    Workload.objects.filter(pk__in=workloads, attempts=None).delete()
    if incidents:
        renew_totals(*incidents)
        empty = Incident.objects.filter(pk__in=incidents, memberships=None, merged_into=None)
        empty.filter(merged=None, splits=None).delete()
    for pk in ids:
        transaction.on_commit(partial(shutil.rmtree, observations.folder() / str(pk), ignore_errors=True))
    return len(ids), size + _forget_blobs(keys)


# --- people -----------------------------------------------------------------------------------------------------------


def _named(cluster: Cluster, before: datetime) -> QuerySet[Attempt]:
    return _old(cluster, before).exclude(user="").order_by("pk")


def _openings(cluster: Cluster, before: datetime) -> QuerySet[ShareOpening]:
    theirs = Q(share__attempt__cluster=cluster) | Q(share__incident__memberships__attempt__cluster=cluster)
    known = Q(address__isnull=False) | ~Q(browser="")
    return ShareOpening.objects.filter(theirs, known, last_at__lt=before).distinct()


def _count_people(cluster: Cluster, before: datetime) -> tuple[int, int]:
    return _named(cluster, before).count() + _openings(cluster, before).count(), 0


@transaction.atomic
def _remove_people(cluster: Cluster, before: datetime) -> tuple[int, int]:
    attempts = _named(cluster, before).select_for_update(of=("self",), skip_locked=True)
    rows = list(attempts.select_related("workload", "cluster", "diagnosis", "verdict")[:BATCH])
    for attempt in rows:
        _forget_names(attempt, NameMask([attempt.user, attempt.workload.user]))
    openings = list(_openings(cluster, before).values_list("pk", flat=True)[:BATCH])
    ShareOpening.objects.filter(pk__in=openings).update(address=None, browser="")
    AccessAttempt.objects.filter(attempt_time__lt=before).delete()
    return len(rows) + len(openings), 0


def _forget_names(attempt: Attempt, mask: NameMask) -> None:
    """In the attempt, its diagnoses and what is searched. What people wrote of it stays as they wrote it."""
    with connection.cursor() as cursor:  # a diagnosis is never edited, but for this
        cursor.execute("SELECT set_config('faultline.forgetting', 'on', true)")
    for diagnosis in Diagnosis.objects.filter(attempt=attempt):
        contract = _without_names(diagnosis.contract, mask)
        Diagnosis.objects.filter(pk=diagnosis.pk).update(contract=contract, title=_without_names(diagnosis.title, mask))
        if attempt.diagnosis_id == diagnosis.pk and attempt.diagnosis is not None:
            attempt.diagnosis.contract, attempt.diagnosis.title = contract, _without_names(diagnosis.title, mask)
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('faultline.forgetting', 'off', true)")
    Attempt.objects.filter(pk=attempt.pk).update(user="")
    if not attempt.workload.attempts.exclude(user="").exists():
        Workload.objects.filter(pk=attempt.workload_id).update(user="")
    attempt.workload.user = ""  # nothing to search for
    refresh_search(attempt)


def _without_names(value: Any, mask: NameMask) -> Any:
    if isinstance(value, str):
        return mask(value.encode()).decode()
    if isinstance(value, dict):
        return {key: _without_names(item, mask) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_names(item, mask) for item in value]
    return value


_SIZES = {"streams": _size_of_streams, "diagnoses": _size_of_attempts, "personal": _count_people}
_REMOVALS = {"streams": _remove_streams, "diagnoses": _remove_attempts, "personal": _remove_people}
