"""One connector gathers one attempt's streams: taken on under a lease, stored, finished with a report."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec
from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models import F
from django.db.models.functions import Greatest, Now

from connectors.base import CollectionReport
from triage.blobs import StoredBlob
from triage.gpus import Told
from triage.models import Attempt, Collection, CollectionState, EventKind, Stream
from triage.services.blob_locks import hold_blobs
from triage.services.clock import database_now
from triage.services.events import record_event
from triage.services.facts import short, told, told_tree
from triage.services.gpus import keep_gpus
from triage.services.recollecting import better_reports, plan_retry
from triage.services.triage import MAX_TRIES, continue_triage


@dataclass(frozen=True)
class CollectionLease:
    """The right to collect from one source, for as long as it is renewed."""

    collection: Collection
    token: uuid.UUID


@dataclass(frozen=True)
class CollectedStream:
    """A stream in the blob store, and what is known of it."""

    name: str
    source: str
    node: str | None
    rank: int | None
    blob: StoredBlob
    masked: int
    first_at: datetime | None
    last_at: datetime | None


@transaction.atomic
def add_collection(
    attempt: Attempt,
    connector: str,
    ref: str,
    *,
    label: str = "",
    content_key: str = "",
    actor: AbstractBaseUser | None = None,
) -> tuple[Collection, bool]:
    """Names a source of an attempt's evidence. The second value says whether there is something to collect."""
    collection, created = Collection.objects.get_or_create(
        attempt=attempt,
        connector=connector,
        ref=ref,
        defaults={"label": told(label, 512), "content_key": short(content_key, 128)},
    )
    if created:
        record_event(
            EventKind.EVIDENCE_RECEIVED, attempt=attempt, actor=actor, connector=connector, label=collection.label
        )
        return collection, True
    failed = collection.state == CollectionState.DONE and any(r["status"] == "error" for r in collection.reports)
    if failed or (content_key and collection.content_key != content_key):
        _reopen(collection, content_key=short(content_key, 128))
        record_event(
            EventKind.EVIDENCE_RECEIVED,
            attempt=attempt,
            actor=actor,
            connector=connector,
            label=collection.label,
            changed=True,
        )
        return collection, True
    return collection, False


def _reopen(collection: Collection, **changes: Any) -> None:
    values: dict[str, Any] = {
        "state": CollectionState.PENDING, "tries": 0, "lease": None, "queued_at": None, "started_at": None,
        "heartbeat_at": None, "finished_at": None, "streams_done": 0, "bytes_done": 0, "reports": [], **changes,
    }  # fmt: skip
    for name, value in values.items():
        setattr(collection, name, value)
    collection.save(update_fields=list(values))


@transaction.atomic
def lease_collection(collection_id: int) -> CollectionLease | None:
    """Takes on a collection. None when it is done, or another worker is at it."""
    # the attempt first, as everywhere: two rows locked in one order never wait for each other
    Attempt.objects.select_for_update().only("pk").get(collections=collection_id)
    return lease_locked(collection_id)


def lease_locked(collection_id: int) -> CollectionLease | None:
    """The same, when the attempt's row is locked already."""
    collection = (
        Collection.objects.select_for_update(of=("self",))
        .select_related("attempt__workload", "attempt__cluster")
        .get(pk=collection_id)
    )
    now = database_now()
    silent = now - timedelta(seconds=settings.FAULTLINE_LEASE_SECONDS)
    if collection.state == CollectionState.DONE:
        continue_triage(collection.attempt_id)
        return None
    if collection.state == CollectionState.RUNNING and collection.heartbeat_at and collection.heartbeat_at > silent:
        return None
    if collection.tries >= MAX_TRIES:
        note = f"gave up after {MAX_TRIES} tries: a worker died or was stopped each time while collecting"
        _finish(collection, [CollectionReport(source=collection.connector, status="error", note=note)])
        return None
    collection.state = CollectionState.RUNNING
    collection.lease = uuid.uuid4()
    collection.tries += 1
    collection.started_at = collection.heartbeat_at = now
    collection.streams_done = collection.bytes_done = 0
    collection.save()
    return CollectionLease(collection, collection.lease)


def renew_collection(lease: CollectionLease, *, streams_done: int, bytes_done: int) -> bool:
    """Says how far the collecting is; False when the lease was lost."""
    held = Collection.objects.filter(pk=lease.collection.pk, lease=lease.token, state=CollectionState.RUNNING)
    return bool(held.update(heartbeat_at=Now(), streams_done=streams_done, bytes_done=bytes_done))


@transaction.atomic
def postpone_collection(lease: CollectionLease, seconds: float, *, counts: bool = True) -> bool:
    """Gives a collection back, to be tried again in so many seconds. False when the lease was lost.

    What is not the source's fault doesn't count as a try.
    """
    held = Collection.objects.filter(pk=lease.collection.pk, lease=lease.token, state=CollectionState.RUNNING)
    tries = F("tries") if counts else Greatest(F("tries") - 1, 0)
    again = Now() + timedelta(seconds=seconds)
    return bool(held.update(state=CollectionState.PENDING, lease=None, queued_at=again, tries=tries))


@transaction.atomic
def finish_collection(
    lease: CollectionLease,
    streams: Sequence[CollectedStream],
    reports: Sequence[CollectionReport],
    gpus: Sequence[Told] = (),
) -> bool:
    """Keeps what was collected and moves the attempt on. False, and nothing kept, when the lease was lost.

    Raises BlobError when a blob was removed meanwhile.
    """
    attempt = (
        Attempt.objects.select_for_update(of=("self",)).select_related("cluster").get(pk=lease.collection.attempt_id)
    )
    collection = Collection.objects.select_for_update().get(pk=lease.collection.pk)
    if collection.lease != lease.token or collection.state != CollectionState.RUNNING:
        return False
    hold_blobs({stream.blob.key for stream in streams})
    _keep_streams(collection, streams)
    if gpus:
        keep_gpus(attempt.cluster, gpus, attempt.ended_at or attempt.started_at or database_now())
    collection.streams_done = len(streams)
    collection.bytes_done = sum(stream.blob.size for stream in streams)
    _finish(collection, reports)
    return True


def _keep_streams(collection: Collection, streams: Sequence[CollectedStream]) -> None:
    """Of one that an earlier round of the same source brought more of, that stays: logs are rotated, events and pods
    vanish.
    """
    again = bool(collection.reports)
    rows = {short(stream.name, 1024): stream for stream in streams}
    known = Stream.objects.filter(attempt_id=collection.attempt_id, name__in=rows).exclude(blob="")
    larger = {name for name, size in known.values_list("name", "size") if again and size > rows[name].blob.size}
    kept = [_row(collection, name, stream) for name, stream in rows.items() if name not in larger]
    Stream.objects.bulk_create(
        kept, batch_size=1000, update_conflicts=True, unique_fields=["attempt", "name"],
        update_fields=[
            "collection", "source", "node", "rank", "size", "lines", "first_at", "last_at", "masked", "sha256", "blob",
        ],
    )  # fmt: skip


def _row(collection: Collection, name: str, stream: CollectedStream) -> Stream:
    return Stream(
        attempt_id=collection.attempt_id,
        name=name,
        collection=collection,
        source=stream.source,
        node=None if stream.node is None else short(stream.node, 253),
        rank=stream.rank if stream.rank is None or 0 <= stream.rank < 2**31 else None,
        size=stream.blob.size,
        lines=stream.blob.lines,
        first_at=stream.first_at,
        last_at=stream.last_at,
        masked=min(stream.masked, 2**31 - 1),
        sha256=stream.blob.sha256,
        blob=stream.blob.key,
    )


def _finish(collection: Collection, reports: Sequence[CollectionReport]) -> None:
    plain = better_reports(collection.reports, told_tree(msgspec.to_builtins(list(reports))))
    collection.state = CollectionState.DONE
    collection.lease = None
    collection.reports = plain
    collection.finished_at = database_now()
    collection.save()
    bad = [{key: report[key] for key in ("source", "status", "note")} for report in plain if report["status"] != "ok"]
    record_event(
        EventKind.SOURCE_COLLECTED,
        attempt=collection.attempt,
        connector=collection.connector,
        streams=collection.streams_done,
        bytes=collection.bytes_done,
        problems=bad,
    )
    if any(report["status"] == "error" or report.get("failed") for report in plain):
        plan_retry(collection.attempt_id)
    continue_triage(collection.attempt_id)
