"""One attempt: the verdict and everything that supports it; progress while it is being triaged."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import msgspec
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.cache import patch_vary_headers
from django.views.decorators.http import require_POST

from engine import report
from engine.model import Diagnosis, Source
from triage import times, words
from triage.access.rights import responders, signed_in
from triage.models import Attempt, TriageState, VerdictKind, VerdictStatus
from triage.models import Diagnosis as Kept
from triage.selectors import attempts as select
from triage.selectors.compare import quick, usual_base
from triage.selectors.evidence import Story, tell
from triage.selectors.first_reports import order_of_failure
from triage.selectors.guides import guide
from triage.selectors.neighbours import alike, neighbours
from triage.selectors.node_service import service_of
from triage.selectors.rankmap import rank_map
from triage.selectors.repeats import repeats
from triage.selectors.rivals import rivals
from triage.selectors.verdicts import rule_precision, said
from triage.services.recollecting import fetch_again
from triage.text import printable
from triage.web.discussion import discussion
from triage.web.found import attempt_or_404, diagnosed_or_404
from triage.web.htmx import fragment, is_htmx
from triage.web.incident_report import attempt_summary
from triage.web.logview import number
from triage.web.views.timeline import timeline_context

MAX_ROWS = 200
"""Symptoms, rivals and events beyond this stand in the JSON only."""

MAX_SERVICE = 4
"""Blamed nodes of which the page says whether they are in service."""


def detail_or_404(pk: int) -> select.AttemptDetail:
    try:
        return select.attempt_detail(pk)
    except (Attempt.DoesNotExist, OverflowError):
        raise Http404 from None


def story_of(diagnosis: Kept, pk: int) -> Story:
    return tell(diagnosis, reverse("evidence-first", args=[pk]))


@signed_in
def attempt(request: HttpRequest, pk: int) -> HttpResponse:
    """The page. Without a diagnosis it shows how far triage is, and renews itself."""
    detail = detail_or_404(pk)
    unfinished = not detail.attempt.is_triaged
    pinned, usual = _pinned(request, detail.attempt), usual_base(detail.attempt, detail.siblings)
    context: dict[str, Any] = {
        "section": "failures",
        "attempt": detail.attempt,
        "detail": detail,
        "unfinished": unfinished,
        "failed": detail.attempt.triage_state == TriageState.FAILED,
        "neighbours": neighbours(detail.attempt),
        "against": quick(detail.attempt, base) if (base := pinned or usual) else None,
        "pinned": pinned,
        **_progress(detail),
        **discussion(request, detail.attempt),
    }
    if detail.diagnosis is not None:
        story = story_of(detail.diagnosis, pk)
        context |= _verdict(detail, story) | _around(request, detail, story)
        context |= timeline_context(request, detail.attempt, story.contract)
    return render(request, "attempt/page.html", context)


@signed_in
def progress(request: HttpRequest, pk: int) -> HttpResponse:
    """How far triage is. Once it has ended, the whole page is asked for again."""
    detail = detail_or_404(pk)
    page = reverse("attempt", args=[pk])
    if is_htmx(request) and detail.attempt.is_triaged:
        answer = HttpResponse(status=204)
        answer.headers["HX-Refresh"] = "true"
        patch_vary_headers(answer, ("HX-Request", "Cookie"))
        return answer
    context = {"attempt": detail.attempt, "detail": detail, "unfinished": True, **_progress(detail)}
    state = json.dumps([context["state_line"], context["sources"]], default=str)
    return fragment(request, "attempt/_progress.html", context, page, state)


@require_POST
@responders
def retry(request: HttpRequest, pk: int) -> HttpResponse:
    """Asks the sources again, where there are any, and has it diagnosed again."""
    found = attempt_or_404(pk)
    fetch_again(found.pk, request.user)
    return redirect("attempt", pk=pk)


@signed_in
def as_json(request: HttpRequest, pk: int) -> HttpResponse:
    """The contract as the engine gave it."""
    contract = diagnosed_or_404(pk).diagnosis.contract
    body = json.dumps(contract, ensure_ascii=True, sort_keys=True, indent=1) + "\n"
    return download(body, "application/json", f"attempt-{pk}-diagnosis.json")


@signed_in
def as_markdown(request: HttpRequest, pk: int) -> HttpResponse:
    """The same as a report to read or to paste."""
    contract = diagnosed_or_404(pk).diagnosis.contract
    return download(
        report.as_markdown(msgspec.convert(contract, Diagnosis)),
        "text/markdown; charset=utf-8",
        f"attempt-{pk}-diagnosis.md",
    )


def download(body: str, kind: str, name: str) -> HttpResponse:
    answer = HttpResponse(body, content_type=kind)
    answer.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer


def _pinned(request: HttpRequest, found: Attempt) -> Attempt | None:
    """The attempt that `?base=` names to compare with, also while one walks from attempt to attempt."""
    wanted = number(request, "base")
    if wanted is None or wanted == found.pk or wanted > 2**62:
        return None
    rows = Attempt.objects.select_related("workload", "diagnosis", "verdict", "verdict__diagnosis")
    return rows.defer("diagnosis__contract", "verdict__diagnosis__contract").filter(pk=wanted).first()


def _elsewhere(detail: select.AttemptDetail) -> list[tuple[str, str]]:
    """What sources were asked, where they show it themselves: name and address of Grafana's Explore."""
    found: dict[str, str] = {}
    for collection in detail.collections:
        for told in collection.reports:
            link = str(told.get("link", ""))
            if link.startswith(("https://", "http://")):
                found.setdefault(link, printable(f"{words.source(told['source'])} ({collection.connector})"))
    return [(name, link) for link, name in found.items()]


def _progress(detail: select.AttemptDetail) -> dict[str, Any]:
    found = detail.attempt
    sources = [
        {
            "name": printable(collection.label or collection.connector),
            "connector": collection.connector,
            "state": collection.state,
            "word": str(collection.get_state_display()),
            "streams": collection.streams_done,
            "bytes": collection.bytes_done,
            "started_at": collection.started_at,
            "reports": collection.reports,
        }
        for collection in detail.collections
    ]
    return {
        "sources": sources,
        "state_line": [found.triage_state, found.triage_tries, found.triage_requested_at, found.triage_started_at],
        "progress_url": reverse("attempt-progress", args=[found.pk]),
    }


def _verdict(detail: select.AttemptDetail, story: Story) -> dict[str, Any]:
    contract = story.contract
    root = contract["root_cause"]
    symptoms = [symptom for symptom in contract["symptoms"] if symptom["explained_by"] or not root]
    aside = [symptom for symptom in contract["symptoms"] if not symptom["explained_by"] and root]
    advice = contract["recommendation"]
    return {
        "story": story,
        "d": contract,
        "root": root,
        "lede": None if root else _lede(contract["reasoning"]),
        "suspects": [node["node"] for node in contract["affected_nodes"] if node["role"] == "suspect"],
        "trail": story.trail,
        "advice": advice,
        **_standing(detail.attempt, advice),
        "began_after": _between(detail.attempt.started_at, root["at"] if root else None),
        "ended_after": _between(root["at"] if root else None, detail.attempt.ended_at),
        "references": [ref for ref in advice["references"] if ref.startswith(("https://", "http://"))],
        "metric_count": sum(stream.source == Source.METRIC.value and bool(stream.blob) for stream in detail.streams),
        "map": rank_map(contract),
        "symptoms": symptoms[:MAX_ROWS],
        "symptoms_left": max(0, len(symptoms) - MAX_ROWS),
        "symptom_lines": sum(symptom["count"] for symptom in symptoms),
        "aside": aside[:MAX_ROWS],
        "alike": alike(detail.attempt),
        "rivals": rivals(contract)[:MAX_ROWS],
        "order": order_of_failure(contract),
        "nodes": _nodes(contract, symptoms),
        "missing": [c for c in contract["coverage"] if c["status"] in ("missing", "error", "partial", "empty")],
        "complete": sum(c["status"] == "ok" for c in contract["coverage"]),
        "elsewhere": _elsewhere(detail),
        "guide": guide(root["rule"], root["title"]) if root else None,
        "streams": {stream.name: stream for stream in detail.streams},
    }


def _around(request: HttpRequest, detail: select.AttemptDetail, story: Story) -> dict[str, Any]:
    """What else is known of the nodes, the rule and the sources."""
    found, root = detail.attempt, story.contract["root_cause"]
    nodes = found.blamed_nodes[:MAX_SERVICE]
    return {
        "repeat": repeats([found]).get(found.pk),
        "service": [(printable(node), event) for node, event in service_of(found.cluster_id, nodes)],
        "more_nodes": len(found.blamed_nodes) > 1,
        "precision": rule_precision(root["rule"]) if root else None,
        "can_fetch": any("/" in collection.connector for collection in detail.collections),
        "summary": attempt_summary(found, story, request.build_absolute_uri(reverse("attempt", args=[found.pk]))),
    }


def _standing(found: Attempt, advice: dict[str, Any]) -> dict[str, Any]:
    """The answer that stands, and what to do next: from the person's nodes where a person corrected the engine."""
    now = said(found)
    if now.is_correction or now.status == VerdictStatus.DISAGREES:
        nodes = list(now.nodes)
        title = words.action("restart_excluding", nodes) if nodes else "Act on what is said here"
        other = now.verdict is None or now.verdict.kind != VerdictKind.INCOMPLETE
        return {
            "said": now,
            "own_advice": True,
            "own_place": other,  # device, rank and time of the engine's root belong to another answer
            "advice_title": title,
            "exclude": _exclude(found, nodes),
        }
    nodes = advice["exclude_nodes"]
    return {"said": now, "advice_title": words.action(advice["action"], nodes), "exclude": _exclude(found, nodes)}


def _lede(reasoning: list[str]) -> str:
    """What stands under the title when there is no root: the last sentence with evidence, else the last."""
    return next((sentence for sentence in reversed(reasoning) if "[e" in sentence), reasoning[-1] if reasoning else "")


def _between(first: datetime | str | None, last: datetime | str | None) -> float | None:
    """Seconds from one to the other, when both are known and in this order."""
    start, end = times.parse(first), times.parse(last)
    return (end - start).total_seconds() if start and end and end > start else None


def _exclude(found: Attempt, nodes: list[str]) -> str:
    """What to paste: Slurm's option, or the bare names for another scheduler."""
    if not nodes:
        return ""
    return ("--exclude=" if found.workload.scheduler == "slurm" else "") + ",".join(nodes)


def _nodes(contract: dict[str, Any], symptoms: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Affected nodes with what each reported."""
    said: dict[str, list[str]] = {}
    root = contract["root_cause"]
    if root:
        for node in root["nodes"]:
            said.setdefault(node, []).append(root["title"])
    for symptom in symptoms:
        for node in symptom["nodes"]:
            parts = said.setdefault(node, [])
            if len(parts) < 4 and symptom["title"] not in parts:
                parts.append(symptom["title"])
    return [{**node, "said": said.get(node["node"], [])} for node in contract["affected_nodes"][:MAX_ROWS]]
