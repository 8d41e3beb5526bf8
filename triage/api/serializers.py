"""Attempts as JSON."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.conf import settings

from engine.model import rfc3339
from triage.api.bodies import ENCODINGS
from triage.models import Attempt, Collection, Comment, Diagnosis, Incident, Observation, Stream, Verdict
from triage.selectors.attempts import AttemptDetail
from triage.selectors.recommendations import Advice
from triage.selectors.streams import StreamWindow
from triage.services.facts import seconds
from triage.services.observations import MAX_STREAMS
from triage.services.waiting import MAX_SECONDS


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
        "triage": triage_row(attempt),
        "verdict": answer(attempt),
    }


def triage_row(attempt: Attempt) -> dict[str, Any]:
    """How far the triage is."""
    return {
        "state": attempt.triage_state,
        "reason": attempt.triage_reason,
        "requested_at": time_text(attempt.triage_requested_at),
        "finished_at": time_text(attempt.triage_finished_at),
    }


def answer(attempt: Attempt) -> dict[str, Any] | None:
    """The answer that stands, in short: a person's, else the current diagnosis's."""
    diagnosis = attempt.diagnosis
    if diagnosis is None:
        return None
    return {
        "title": attempt.title,
        "outcome": diagnosis.outcome,
        "domain": attempt.domain,
        "sub_domain": attempt.sub_domain,
        "rule": diagnosis.rule or None,
        "nodes": attempt.blamed_nodes,
        "status": attempt.verdict_status,
        "diagnosis": diagnosis.pk,
        "fingerprint": diagnosis.fingerprint,
        "ruleset": diagnosis.ruleset,
        "created_at": time_text(diagnosis.created_at),
    }


def attempt_detail(detail: AttemptDetail) -> dict[str, Any]:
    """One attempt with its sources and streams."""
    membership = getattr(detail.attempt, "membership", None)
    return {
        **attempt_row(detail.attempt),
        "incident": membership.incident_id if membership is not None else None,
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


def observation_row(observation: Observation) -> dict[str, Any]:
    """A stream as it was received so far."""
    return {
        "name": observation.name,
        "bytes": observation.size,
        "parts": observation.parts,
        "open": observation.pruned_at is None,
        "changed_at": time_text(observation.changed_at),
    }


def limits() -> dict[str, Any]:
    """What may be sent."""
    return {
        "part_bytes": settings.FAULTLINE_MAX_UPLOAD_BYTES,
        "attempt_bytes": settings.FAULTLINE_MAX_ATTEMPT_BYTES,
        "streams": MAX_STREAMS,
        "calls_per_minute": settings.FAULTLINE_API_RATE,
        "wait_seconds": int(MAX_SECONDS),
        "content_encodings": list(ENCODINGS),
    }


def diagnosis_row(diagnosis: Diagnosis, current: int | None) -> dict[str, Any]:
    """A diagnosis of a list."""
    return {
        "id": diagnosis.pk,
        "current": diagnosis.pk == current,
        "supersedes": diagnosis.supersedes_id,
        "title": diagnosis.title,
        "outcome": diagnosis.outcome,
        "domain": diagnosis.domain,
        "sub_domain": diagnosis.sub_domain,
        "rule": diagnosis.rule or None,
        "ruleset": diagnosis.ruleset,
        "engine": diagnosis.engine_version,
        "created_at": time_text(diagnosis.created_at),
    }


def lines(window: StreamWindow) -> list[dict[str, Any]]:
    """Lines of a stream."""
    return [{"number": n.number, "offset": n.offset, "text": n.text, "cut": n.cut} for n in window.lines]


def recommendation(attempt: Attempt, advice: Advice) -> dict[str, Any]:
    """What a recovery controller reads."""
    return {
        "attempt": attempt.pk,
        "diagnosis": attempt.diagnosis_id,
        "status": advice.status,
        "action": advice.action,
        "retry_can_help": advice.retry_can_help,
        "reason": advice.reason,
        "source": advice.source,
        "exclude_nodes": [
            {"node": node.node, "said_by": node.said_by, "evidence": list(node.evidence)}
            for node in advice.exclude_nodes
        ],
        "withheld_nodes": list(advice.withheld_nodes),
        "missing_sources": list(advice.missing_sources),
        "references": list(advice.references),
    }


def verdict_row(verdict: Verdict) -> dict[str, Any]:
    """What one person said."""
    return {
        "id": verdict.pk,
        "kind": verdict.kind,
        "stands": verdict.ended_at is None,
        "by": verdict.by.get_username(),
        "diagnosis": verdict.diagnosis_id,
        "reason": verdict.reason,
        "title": verdict.title,
        "domain": verdict.domain,
        "sub_domain": verdict.sub_domain,
        "nodes": verdict.nodes,
        "evidence": verdict.evidence,
        "created_at": time_text(verdict.created_at),
        "ended_at": time_text(verdict.ended_at),
    }


def comment_row(comment: Comment) -> dict[str, Any]:
    """A comment; without words once it is deleted."""
    return {
        "id": comment.pk,
        "by": comment.author.get_username(),
        "text": comment.text,
        "quotes": comment.quotes,
        "created_at": time_text(comment.created_at),
        "edited_at": time_text(comment.edited_at),
        "deleted": comment.deleted_at is not None,
    }


def incident_row(incident: Incident) -> dict[str, Any]:
    """An incident of a list."""
    return {
        "id": incident.pk,
        "name": incident.name,
        "title": incident.title,
        "domain": incident.domain,
        "sub_domain": incident.sub_domain,
        "rule": incident.rule or None,
        "status": incident.status,
        "severity": incident.severity,
        "assignee": incident.assignee.get_username() if incident.assignee else None,
        "attempts": incident.attempts_count,
        "gpu_hours": incident.gpu_hours,
        "first_at": time_text(incident.first_at),
        "last_at": time_text(incident.last_at),
    }
