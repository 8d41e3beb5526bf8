"""Diagnosing: the engine reads the stored streams and its answer is kept."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from typing import BinaryIO

from django.core.exceptions import ObjectDoesNotExist
from django.db import InterfaceError, OperationalError

import engine
from connectors.base import CollectionReport
from engine import model
from engine.diagnose import diagnose as run_engine
from engine.ruleset import RulesetError
from triage import logs
from triage.blobs import BlobError, BlobStore
from triage.metrics import counters
from triage.models import Collection, Stream
from triage.services.diagnoses import evidence_hash, find_diagnosis, keep_diagnosis, record_diagnosis
from triage.services.facts import engine_attempt
from triage.services.sources import blob_store
from triage.services.triage import DiagnosisLease, fail_triage, lease_diagnosis, renew_diagnosis
from triage.tasks.heartbeat import Heartbeat, LeaseLost
from triage.tasks.rules import ruleset
from triage.tracing import span

logger = logging.getLogger(__name__)


def diagnose(attempt_id: int) -> None:
    """Diagnoses an attempt whose streams have been collected, unless another worker is at it."""
    try:
        lease = lease_diagnosis(attempt_id)
    except ObjectDoesNotExist:
        return  # deleted meanwhile
    if lease is not None:
        diagnose_leased(lease)


def diagnose_leased(lease: DiagnosisLease) -> None:
    """The same of one that was taken. Raises only what says that the database is away."""
    attempt_id = lease.attempt.pk
    logs.about(attempt=attempt_id)
    try:
        with Heartbeat(partial(renew_diagnosis, lease)) as heartbeat:
            answer(lease, heartbeat)
    except LeaseLost:
        logger.info("diagnosis of attempt %s was taken over", attempt_id)
    except (OperationalError, InterfaceError):
        raise
    except (RulesetError, BlobError) as error:
        counters.TRIAGE_FAILURES.inc()
        fail_triage(attempt_id, str(error), lease=lease)
    except Exception as error:
        counters.TRIAGE_FAILURES.inc()
        logger.exception("diagnosis of attempt %s failed", attempt_id)
        fail_triage(attempt_id, f"internal error, see the worker's log: {type(error).__name__}: {error}", lease=lease)


def answer(lease: DiagnosisLease, heartbeat: Heartbeat) -> None:
    """Runs the engine unless the same input has been answered before. Raises LeaseLost and what the engine raises."""
    attempt = lease.attempt
    facts = engine_attempt(attempt)
    if attempt.diagnosis is not None and Stream.objects.filter(attempt=attempt, blob="").exists():
        # its raw streams are no longer kept: what was said of all of them stands
        if not keep_diagnosis(lease, attempt.diagnosis):
            raise LeaseLost
        return
    streams = list(Stream.objects.filter(attempt=attempt).exclude(blob="").order_by("name"))
    reports = problems(Collection.objects.filter(attempt=attempt).order_by("connector", "ref"))
    rules = ruleset()
    evidence = evidence_hash(facts, streams, reports)
    known = find_diagnosis(attempt.pk, rules.fingerprint, engine.__version__, evidence)
    if known is not None:
        if not keep_diagnosis(lease, known):
            raise LeaseLost
        return
    store = blob_store()
    size = sum(stream.size for stream in streams)
    on_trial: set[str] = set()
    with (
        counters.DIAGNOSE_SECONDS.time(),
        span("engine.diagnose", attempt=attempt.pk, streams=len(streams), bytes=size) as seen,
    ):
        raw = [stored_stream(stream, store) for stream in streams]
        diagnosis = run_engine(facts, raw, rules, collected=reports, on_trial=on_trial)
        seen.set_attributes({"faultline.outcome": diagnosis.outcome, "faultline.domain": diagnosis.domain})
    heartbeat.check()
    if record_diagnosis(lease, diagnosis.to_dict(), evidence) is None:
        raise LeaseLost
    count(diagnosis, on_trial)


def count(diagnosis: model.Diagnosis, on_trial: Iterable[str]) -> None:
    """For /metrics. `on_trial`: rules that decided nothing and matched."""
    counters.DIAGNOSES.labels(diagnosis.outcome, diagnosis.domain).inc()
    if diagnosis.root_cause is not None:
        counters.ROOTS.labels(diagnosis.root_cause.rule).inc()
    for rule in {symptom.rule for symptom in diagnosis.symptoms}:
        counters.SYMPTOMS.labels(rule).inc()
    for rule in on_trial:
        counters.SHADOW_HITS.labels(rule).inc()


def stored_stream(stream: Stream, store: BlobStore) -> model.Stream:
    """A stream of the blob store as the engine reads it."""

    def open_blob() -> BinaryIO:
        return store.open(stream.blob)

    return model.Stream(
        name=stream.name,
        source=model.Source(stream.source),
        open=open_blob,
        size=stream.size,
        node=stream.node,
        rank=stream.rank,
    )


def problems(collections: object) -> list[model.SourceReport]:
    """What the engine has to know of the collecting: where something was missing. What was read it sees for itself."""
    reports = [CollectionReport(**plain) for collection in collections for plain in collection.reports]  # type: ignore[attr-defined]
    return [report.for_engine() for report in reports if report.status not in ("ok", "empty")]
