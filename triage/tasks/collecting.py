"""Collecting: what each connector has on an attempt is brought into the blob store."""

from __future__ import annotations

import gzip
import logging
import lzma
import time
import zlib
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import msgspec
import zstandard
from django.core.exceptions import ObjectDoesNotExist
from django.db import InterfaceError, OperationalError

from connectors.base import CollectionReport, CollectRequest, ConfigError, Connector, ConnectorError, Limits
from engine.model import Source, Stream, rfc3339
from engine.origin import Places
from triage import logs
from triage.blobs import BlobError, BlobStore
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
from triage.tasks.heartbeat import Heartbeat, LeaseLost
from triage.tasks.patience import Hangs, Watch, patiently, watched
from triage.tracing import span

logger = logging.getLogger(__name__)

TEMPORARY_TRIES = 3
SALVAGE_BYTES = 64 << 10
"""At most so much of a damaged stream is lost before the place of the damage."""
_DAMAGE = (EOFError, ValueError, gzip.BadGzipFile, lzma.LZMAError, zlib.error, zstandard.ZstdError)
"""What reading a cut or corrupt member raises."""
_TEXT = {Source.APPLOG.value, Source.SYSLOG.value, Source.SCHEDULER.value}


def collect(collection_id: int) -> None:
    """Brings what one connector has on one attempt into the blob store, unless another worker is at it."""
    try:
        lease = lease_collection(collection_id)
    except ObjectDoesNotExist:
        return  # deleted meanwhile
    if lease is not None:
        collect_leased(lease)


def collect_leased(lease: CollectionLease) -> None:
    """The same of one that was taken. Raises only what says that the database is away."""
    collection_id = lease.collection.pk
    logs.about(attempt=lease.collection.attempt_id)
    try:
        Gathering(lease, blob_store()).run()
    except LeaseLost:
        logger.info("collection %s was taken over", collection_id)
    except (ConnectorError, BlobError) as error:  # a blob that was removed meanwhile is stored again
        temporary = isinstance(error, BlobError) or error.temporary
        if temporary and lease.collection.tries < TEMPORARY_TRIES:
            delay = 5 * 2**lease.collection.tries
            postpone_collection(lease, delay)
            return
        _give_up(lease, str(error))
    except ConfigError as error:
        _give_up(lease, str(error))
    except (OperationalError, InterfaceError):
        raise
    except OSError as error:
        if has_no_room(error):  # our own: the source has it still, so it is asked until there is room
            logger.error("no room for collection %s, tried again in %d s: %s", collection_id, RETRY_SECONDS, error)
            postpone_collection(lease, RETRY_SECONDS, counts=False)
            return
        _give_up(lease, f"{error.strerror or error}")
    except Exception as error:
        logger.exception("collection %s failed", collection_id)
        _give_up(lease, f"internal error, see the worker's log: {type(error).__name__}: {error}")


def _give_up(lease: CollectionLease, note: str) -> None:
    """A source that can't be had is a report; the attempt is diagnosed from the others."""
    report = _failed(lease, note)
    finish_collection(lease, [], [report])
    _count([report])


def _failed(lease: CollectionLease, note: str) -> CollectionReport:
    name = lease.collection.connector.rpartition("/")[2]  # people know the source of a cluster by its own name
    return CollectionReport(
        source=name, status="error", note=" ".join(note.split())[:500], connector=name, query=lease.collection.ref
    )


def _count(reports: Iterable[CollectionReport]) -> None:
    for report in reports:
        source = counters.label_of(report.source, report.connector)
        counters.COLLECTIONS.labels(source, report.status).inc()
        counters.COLLECT_SECONDS.labels(source).observe(report.duration_s)


def patience(connector: Connector) -> float:
    """Seconds without any sign of life after which a connector's source hangs: longer than what bounds itself."""
    return float(getattr(connector, "patience", Limits().seconds + 60.0))


class Gathering:
    """One run of one collection."""

    def __init__(self, lease: CollectionLease, store: BlobStore) -> None:
        self._lease, self._store = lease, store
        self._facts = engine_attempt(lease.collection.attempt)
        self._kept: list[CollectedStream] = []
        self._bytes = 0
        self._damaged: dict[str, str] = {}
        self._reading: defaultdict[str, float] = defaultdict(float)
        """Seconds that reading took, by source: files are read only here."""

    def run(self) -> None:
        """Collects and keeps everything. Raises LeaseLost, ConnectorError, ConfigError and what storing raises."""
        collection = self._lease.collection
        connector = registry().get(collection.connector)
        request = CollectRequest(attempt=self._facts, ref=collection.ref)

        def gather(watch: Watch) -> list[CollectionReport]:
            with connector.collect(request, heartbeat.lost) as collected:
                for stream in collected.streams():
                    watch.alive(f"after {stream.name}")
                    heartbeat.check()
                    if watch.left.is_set():
                        raise LeaseLost
                    self._keep(watched(stream, watch), heartbeat)
                    watch.alive(f"after {stream.name}")
                return [self._as_kept(report) for report in collected.reports()]

        with (
            span("collect", attempt=collection.attempt_id, connector=collection.connector),
            Heartbeat(self._renew) as heartbeat,
        ):
            hung = False
            try:
                reports = patiently(gather, patience(connector))
            except Hangs as error:
                logger.warning("collection %s: %s", collection.pk, error)
                reports, hung = self._as_far_as_it_came(str(error)), True
            kept = list(self._kept)
            gpus = gpus_of(map(self._stored, kept), Places(self._facts, []))
        if not finish_collection(self._lease, kept, reports, gpus):
            raise LeaseLost
        _count(reports)
        if not hung:
            spool.discard(collection.ref)

    def _as_far_as_it_came(self, note: str) -> list[CollectionReport]:
        """What was kept stays; the rest is asked for again, as after every error."""
        failed = _failed(self._lease, note)
        part = msgspec.structs.replace(failed, status="partial")
        sources = sorted({kept.source for kept in self._kept})
        return [*(self._as_kept(msgspec.structs.replace(part, source=source)) for source in sources), failed]

    def _renew(self) -> bool:
        return renew_collection(self._lease, streams_done=len(self._kept), bytes_done=self._bytes)

    def _keep(self, stream: Stream, heartbeat: Heartbeat) -> None:
        def progress(size: int) -> None:
            self._bytes += size
            heartbeat.check()

        mask = SecretMask()
        try:
            try:
                opened = stream.open()
            except _DAMAGE as error:
                if isinstance(error, OSError):
                    raise
                self._damaged.setdefault(stream.source.value, f"{stream.name} is damaged, not read: {_words(error)}")
                return
            with opened as content:
                salvaged = _Salvaged(content, stream, self._damaged)
                blob = self._store.put(salvaged, mask=mask, progress=progress)  # type: ignore[arg-type]
                self._reading[stream.source.value] += salvaged.seconds
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

    def _as_kept(self, report: CollectionReport) -> CollectionReport:
        """A connector's report, with what was seen while its streams were read: lines, times, damages."""
        mine = [kept for kept in self._kept if kept.source == report.source]
        note = self._damaged.get(report.source)
        times = [rfc3339(at.timestamp()) for kept in mine for at in (kept.first_at, kept.last_at) if at is not None]
        known = [at for at in (report.first_at, report.last_at, *times) if at is not None]
        report = msgspec.structs.replace(
            report,
            streams=len(mine) or report.streams,
            lines=sum(kept.blob.lines for kept in mine),
            bytes=sum(kept.blob.size for kept in mine),
            first_at=min(known, default=None),
            last_at=max(known, default=None),
            duration_s=round(report.duration_s + self._reading[report.source], 3),
        )
        if note is None:
            return report
        return msgspec.structs.replace(report, status="partial", note="; ".join(filter(None, [report.note, note])))


def _words(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


class _Salvaged:
    """What can be read of a stream: a damaged (cut, corrupt) member gives what stands before the damage, and a note."""

    def __init__(self, content: Any, stream: Stream, damaged: dict[str, str]) -> None:
        self._stream, self._damaged = stream, damaged
        self.seconds = 0.0
        """That reading took so far."""
        # small steps: what stands before the damage is given before the damage is met
        self._read = getattr(content, "read1", content.read)

    def read(self, size: int) -> bytes:
        began = time.monotonic()
        try:
            return bytes(self._read(min(size, SALVAGE_BYTES)))
        except _DAMAGE as error:
            self._damaged.setdefault(
                self._stream.source.value, f"{self._stream.name} is damaged, read up to there: {_words(error)}"
            )
            return b""
        finally:
            self.seconds += time.monotonic() - began
