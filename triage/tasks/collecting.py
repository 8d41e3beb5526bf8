"""Collecting: `triage_attempt` starts it, one `collect` a connector brings the streams into the blob store."""

from __future__ import annotations

import gzip
import logging
import lzma
import zlib
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import msgspec
import zstandard
from celery import Task
from django.core.exceptions import ObjectDoesNotExist
from django.db import InterfaceError, OperationalError
from django.utils import timezone

from connectors.base import CollectionReport, CollectRequest, ConfigError, ConnectorError
from engine.model import Source, Stream
from engine.origin import Places
from triage.blobs import BlobStore
from triage.celery import app
from triage.gpus import gpus_of
from triage.line_times import LineTimes
from triage.metrics import counters
from triage.room import RETRY_SECONDS, has_no_room
from triage.services import spool
from triage.services.collecting import (
    CollectedStream,
    CollectionLease,
    finish_collection,
    lease_collection,
    postpone_collection,
    renew_collection,
)
from triage.services.facts import engine_attempt
from triage.services.masking import SecretMask
from triage.services.sources import blob_store, registry
from triage.services.triage import begin_triage
from triage.tasks.heartbeat import Heartbeat, LeaseLost
from triage.tracing import span

logger = logging.getLogger(__name__)

RETRY: dict[str, Any] = {
    "autoretry_for": (OperationalError, InterfaceError),
    "retry_backoff": True,
    "retry_backoff_max": 60,
    "max_retries": 8,
}
"""For tasks: the database may be away for a while."""
TEMPORARY_TRIES = 3
SALVAGE_BYTES = 64 << 10
"""At most so much of a damaged stream is lost before the place of the damage."""
_DAMAGE = (EOFError, ValueError, gzip.BadGzipFile, lzma.LZMAError, zlib.error, zstandard.ZstdError)
"""What reading a cut or corrupt member raises."""
_TEXT = {Source.APPLOG.value, Source.SYSLOG.value, Source.SCHEDULER.value}


@app.task(name="triage.triage_attempt", **RETRY)
def triage_attempt(attempt_id: int) -> None:
    """Starts the triage of an attempt that waits for it."""
    begin_triage(attempt_id)


@app.task(name="triage.collect", bind=True, **RETRY)
def collect(self: Task, collection_id: int) -> None:
    """Brings what one connector has on one attempt into the blob store."""
    try:
        lease = lease_collection(collection_id)
    except ObjectDoesNotExist:
        return  # deleted meanwhile
    if lease is None:
        return
    try:
        Gathering(lease, blob_store()).run()
    except LeaseLost:
        logger.info("collection %s was taken over", collection_id)
    except ConnectorError as error:
        if error.temporary and lease.collection.tries < TEMPORARY_TRIES:
            delay = 5 * 2**lease.collection.tries
            if postpone_collection(lease, timezone.now() + timedelta(seconds=delay)):
                self.apply_async(args=[collection_id], countdown=delay)
            return
        _give_up(lease, str(error))
    except ConfigError as error:
        _give_up(lease, str(error))
    except (OperationalError, InterfaceError):
        raise
    except OSError as error:
        if has_no_room(error):  # our own: the source has it still, so it is asked until there is room
            logger.error("no room for collection %s, tried again in %d s: %s", collection_id, RETRY_SECONDS, error)
            postpone_collection(lease, timezone.now() + timedelta(seconds=RETRY_SECONDS), counts=False)
            self.apply_async(args=[collection_id], countdown=RETRY_SECONDS)
            return
        _give_up(lease, f"{error.strerror or error}")
    except Exception as error:
        logger.exception("collection %s failed", collection_id)
        _give_up(lease, f"internal error, see the worker's log: {type(error).__name__}: {error}")


def _give_up(lease: CollectionLease, note: str) -> None:
    """A source that can't be had is a report; the attempt is diagnosed from the others."""
    name = lease.collection.connector.rpartition("/")[2]  # people know the source of a cluster by its own name
    report = CollectionReport(
        source=name, status="error", note=" ".join(note.split())[:500], connector=name, query=lease.collection.ref
    )
    finish_collection(lease, [], [report])
    _count([report])


def _count(reports: Iterable[CollectionReport]) -> None:
    for report in reports:
        counters.COLLECTIONS.labels(report.source, report.status).inc()
        counters.COLLECT_SECONDS.labels(report.source).observe(report.duration_s)


class Gathering:
    """One run of one collection."""

    def __init__(self, lease: CollectionLease, store: BlobStore) -> None:
        self._lease, self._store = lease, store
        self._facts = engine_attempt(lease.collection.attempt)
        self._kept: list[CollectedStream] = []
        self._bytes = 0
        self._damaged: dict[str, str] = {}

    def run(self) -> None:
        """Collects and keeps everything. Raises LeaseLost, ConnectorError, ConfigError and what storing raises."""
        collection = self._lease.collection
        connector = registry().get(collection.connector)
        request = CollectRequest(attempt=self._facts, ref=collection.ref)
        with (
            span("collect", attempt=collection.attempt_id, connector=collection.connector),
            Heartbeat(self._renew) as heartbeat,
            connector.collect(request, heartbeat.lost) as collected,
        ):
            for stream in collected.streams():
                heartbeat.check()
                self._keep(stream, heartbeat)
            reports = [self._with_damage(report) for report in collected.reports()]
            gpus = gpus_of(map(self._stored, self._kept), Places(self._facts, []))
        if not finish_collection(self._lease, self._kept, reports, gpus):
            raise LeaseLost
        _count(reports)
        spool.discard(collection.ref)

    def _renew(self) -> bool:
        return renew_collection(self._lease, streams_done=len(self._kept), bytes_done=self._bytes)

    def _keep(self, stream: Stream, heartbeat: Heartbeat) -> None:
        def progress(size: int) -> None:
            self._bytes += size
            heartbeat.check()

        mask = SecretMask()
        try:
            with stream.open() as content:
                blob = self._store.put(_Salvaged(content, stream, self._damaged), mask=mask, progress=progress)  # type: ignore[arg-type]
        except OSError as error:
            if error.errno is None:
                self._damaged.setdefault(stream.source.value, f"{stream.name} could not be opened: {error}")
                return
            raise
        first, last = None, None
        if stream.source.value in _TEXT and blob.size:
            with self._store.reader(blob.key) as reader:
                started, ended = self._facts.started_at, self._facts.ended_at
                times = LineTimes(reader, started, ended)
                first, last = times.first(), times.last()
        self._kept.append(
            CollectedStream(stream.name, stream.source.value, stream.node, stream.rank, blob, mask.masked, first, last)
        )

    def _stored(self, kept: CollectedStream) -> Stream:
        """As it was kept: whole, and with its secrets masked."""
        key = kept.blob.key
        return Stream(
            name=kept.name,
            source=Source(kept.source),
            open=lambda: self._store.open(key),
            size=kept.blob.size,
            node=kept.node,
            rank=kept.rank,
        )

    def _with_damage(self, report: CollectionReport) -> CollectionReport:
        mine = [kept for kept in self._kept if kept.source == report.source]
        note = self._damaged.get(report.source)
        report = msgspec.structs.replace(
            report,
            streams=len(mine) or report.streams,
            lines=sum(kept.blob.lines for kept in mine),
            bytes=sum(kept.blob.size for kept in mine),
        )
        if note is None:
            return report
        return msgspec.structs.replace(report, status="partial", note="; ".join(filter(None, [report.note, note])))


class _Salvaged:
    """What can be read of a stream: a damaged (cut, corrupt) member gives what stands before the damage, and a note."""

    def __init__(self, content: Any, stream: Stream, damaged: dict[str, str]) -> None:
        self._stream, self._damaged = stream, damaged
        # small steps: what stands before the damage is given before the damage is met
        self._read = getattr(content, "read1", content.read)

    def read(self, size: int) -> bytes:
        try:
            return bytes(self._read(min(size, SALVAGE_BYTES)))
        except _DAMAGE as error:
            words = " ".join(str(error).split()) or type(error).__name__
            self._damaged.setdefault(
                self._stream.source.value, f"{self._stream.name} is damaged, read up to there: {words}"
            )
            return b""
