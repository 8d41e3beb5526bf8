"""Attempts as JSON."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from engine.model import rfc3339
from triage.models import Attempt, Collection, Diagnosis, Stream
from triage.selectors.attempts import AttemptDetail
from triage.services.facts import seconds


def time_text(at: datetime | None) -> str | None:
    """RFC 3339 in UTC with microseconds, as in the contract."""
    return rfc3339(seconds(at))


def attempt_row(attempt: Attempt) -> dict[str, Any]:
    """One attempt of a list."""
    workload = attempt.workload
    return {
        "id": attempt.pk,
        "cluster": attempt.cluster.name,
        "workload": {
            "id": workload.workload_id,
            "name": workload.name,
            "scheduler": workload.scheduler,
            "user": workload.user,
            "queue": workload.queue,
        },
        "number": attempt.number,
        "state": attempt.state,
        "exit_code": attempt.exit_code,
        "reason": attempt.reason,
        "started_at": time_text(attempt.started_at),
        "ended_at": time_text(attempt.ended_at),
        "nodes": attempt.nodes,
        "gpus_per_node": attempt.gpus_per_node,
        "gpu_hours": attempt.gpu_hours,
        "triage": {
            "state": attempt.triage_state,
            "reason": attempt.triage_reason,
            "requested_at": time_text(attempt.triage_requested_at),
            "finished_at": time_text(attempt.triage_finished_at),
        },
        "verdict": verdict(attempt.diagnosis, attempt.blamed_nodes),
    }


def verdict(diagnosis: Diagnosis | None, blamed_nodes: list[str]) -> dict[str, Any] | None:
    """A diagnosis in short."""
    if diagnosis is None:
        return None
    return {
        "title": diagnosis.title,
        "outcome": diagnosis.outcome,
        "domain": diagnosis.domain,
        "sub_domain": diagnosis.sub_domain,
        "rule": diagnosis.rule or None,
        "nodes": blamed_nodes,
        "fingerprint": diagnosis.fingerprint,
        "ruleset": diagnosis.ruleset,
        "created_at": time_text(diagnosis.created_at),
    }


def attempt_detail(detail: AttemptDetail) -> dict[str, Any]:
    """One attempt with its sources and streams."""
    return {
        **attempt_row(detail.attempt),
        "collections": [collection_row(collection) for collection in detail.collections],
        "streams": [stream_row(stream) for stream in detail.streams],
    }


def collection_row(collection: Collection) -> dict[str, Any]:
    """How the gathering from one source went."""
    return {
        "connector": collection.connector,
        "label": collection.label,
        "state": collection.state,
        "streams": collection.streams_done,
        "bytes": collection.bytes_done,
        "reports": collection.reports,
    }


def stream_row(stream: Stream) -> dict[str, Any]:
    """One stream that is kept."""
    return {
        "name": stream.name,
        "source": stream.source,
        "node": stream.node,
        "rank": stream.rank,
        "bytes": stream.size,
        "lines": stream.lines,
        "first_at": time_text(stream.first_at),
        "last_at": time_text(stream.last_at),
        "masked": stream.masked,
        "sha256": stream.sha256,
    }
