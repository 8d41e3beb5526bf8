"""The list as a file: everything that it would show on all its pages, streamed while the database is read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from triage.access.rights import signed_in
from triage.api.serializers import attempt_row, time_text
from triage.models import Attempt
from triage.selectors.attempts import export_rows
from triage.web import inbox
from triage.web.tables import csv_answer, download

FIELDS = (
    "id", "ended_at", "started_at", "outcome", "domain", "sub_domain", "title", "rule", "nodes_blamed", "cluster",
    "workload_id", "workload", "attempt", "user", "queue", "nodes", "gpus_per_node", "gpu_hours_lost", "state",
    "exit_code", "status", "judged_by", "incident", "assignee", "sources_missing", "triage",
)  # fmt: skip


@signed_in
def as_csv(request: HttpRequest) -> HttpResponse:
    """A row an attempt, in the order of the list."""
    view = inbox.View.of(request.GET)
    if view.query.errors:
        return redirect(view.address())
    flat = (flat_row(attempt) for attempt in export_rows(view.narrowed(request.user), view.order))
    return csv_answer("failures", FIELDS, ([row[name] for name in FIELDS] for row in flat))


@signed_in
def as_json(request: HttpRequest) -> HttpResponse:
    """One array of objects, as the API gives them, in the order of the list."""
    view = inbox.View.of(request.GET)
    if view.query.errors:
        return redirect(view.address())
    rows = export_rows(view.narrowed(request.user), view.order)
    return download(_json_lines(rows), "application/json", "failures", "json")


def _json_lines(rows: Iterator[Attempt]) -> Iterator[str]:
    yield "["
    for number, attempt in enumerate(rows):
        yield (",\n" if number else "\n") + json.dumps({**attempt_row(attempt), **_more(attempt)})
    yield "\n]\n"


def _more(attempt: Attempt) -> dict[str, Any]:
    verdict, incident = attempt.verdict, attempt.membership.incident if hasattr(attempt, "membership") else None
    return {
        "gpu_hours_lost": round(attempt.lost_gpu_hours, 3),
        "status": attempt.verdict_status,
        "judged_by": verdict.by.get_username() if verdict else None,
        "incident": incident.name if incident else None,
        "assignee": incident.assignee.get_username() if incident and incident.assignee else None,
        "sources_missing": attempt.missing,
    }


def flat_row(attempt: Attempt) -> dict[str, Any]:
    """One attempt as values of a table."""
    workload = attempt.workload
    return {
        "id": attempt.pk,
        "ended_at": time_text(attempt.ended_at),
        "started_at": time_text(attempt.started_at),
        "outcome": attempt.outcome,
        "domain": attempt.domain,
        "sub_domain": attempt.sub_domain,
        "title": attempt.title,
        "rule": attempt.rule,
        "nodes_blamed": " ".join(attempt.blamed_nodes),
        "cluster": attempt.cluster.name,
        "workload_id": workload.workload_id,
        "workload": workload.name,
        "attempt": attempt.number,
        "user": attempt.user,
        "queue": attempt.queue,
        "nodes": len(attempt.nodes),
        "gpus_per_node": attempt.gpus_per_node,
        "state": attempt.state,
        "exit_code": attempt.exit_code,
        "triage": attempt.triage_state,
        **_more(attempt),
        "sources_missing": " ".join(attempt.missing),
    }
