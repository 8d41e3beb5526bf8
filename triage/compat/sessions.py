"""Sessions in the manner of NVIDIA Attribution's v2 API: one for an attempt, observations and verdicts in any order.

A session is an attempt and its handle is the attempt's number, so nothing is kept twice: the same attempt has the same
handle, whoever asks. docs/compat.md says what of it is known, followed and guessed.
"""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_safe
from rest_framework import serializers as s
from rest_framework.request import Request
from rest_framework.response import Response

from triage.access.rights import open_to_all
from triage.api import schemas
from triage.api.base import ApiView, attempt_or_404, body_of, mapping_of, wait_of
from triage.api.line_batches import line_batch
from triage.api.permissions import INGEST, INGEST_OR_READ, READ
from triage.api.problems import Invalid
from triage.api.serializers import limits, recommendation, time_text
from triage.api.views.attempts import make_known
from triage.api.views.observations import refusable
from triage.models import Attempt, Observation
from triage.selectors.recommendations import advise
from triage.services import observations
from triage.services.observations import SOURCES, ask_for_diagnosis
from triage.services.waiting import wait_for_triage

MAX_OBSERVATIONS = 50_000
"""In one call."""


class NewObservation(schemas.Strict):
    """One line of evidence."""

    source = s.ChoiceField(choices=sorted(SOURCES))
    text = s.CharField(allow_blank=True, trim_whitespace=False, max_length=1_000_000)
    observed_at = s.CharField(required=False, allow_null=True, default=None, max_length=64)
    node = s.RegexField(
        r"^[A-Za-z0-9][A-Za-z0-9._-]*\Z",
        required=False,
        allow_null=True,
        allow_blank=True,
        default=None,
        max_length=253,
    )
    rank = schemas.Whole(required=False, allow_null=True, default=None, min_value=0, max_value=10**6)


@open_to_all
@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """GET /v2/healthz: whether there is somebody to talk to."""
    return JsonResponse({"status": "ok"})


class Sessions(ApiView):
    """POST /v2/sessions."""

    scopes = {"POST": INGEST}

    def post(self, request: Request) -> Response:
        """Opens the session of an attempt: 201; of one that is known: 200, with the same handle."""
        return make_known(self, request, "/compat/attribution/v2/sessions", _session)


class OneSession(ApiView):
    """GET /v2/sessions/HANDLE."""

    scopes = {"GET": INGEST_OR_READ}

    def get(self, request: Request, attempt_id: int) -> Response:
        """What it is of, and how much was observed."""
        return Response(_session(attempt_or_404(attempt_id)))


class Observations(ApiView):
    """POST /v2/sessions/HANDLE/observations."""

    scopes = {"POST": INGEST}

    def post(self, request: Request, attempt_id: int) -> Response:
        """Takes `{"observations": [...]}`, also after a verdict was read. A bad one stops all of them."""
        attempt = attempt_or_404(attempt_id)
        sent = mapping_of(request).get("observations")
        if not isinstance(sent, list) or not sent:
            raise Invalid(observations="must be a list that is not empty")
        if len(sent) > MAX_OBSERVATIONS:
            raise Invalid(observations=f"at most {MAX_OBSERVATIONS} in one call")
        return self.once(request, body_of(request), lambda: self._take(request, attempt, sent))

    def _take(self, request: Request, attempt: Attempt, sent: list[Any]) -> Response:
        with line_batch() as batch:
            for index, entry in enumerate(sent):
                where = f"observations[{index}]"
                line = NewObservation(data=entry)
                if not line.is_valid():
                    raise Invalid(**{f"{where}.{key}": str(message[0]) for key, message in line.errors.items()})
                values = line.validated_data
                for text in values["text"].splitlines() or [""]:
                    batch.put(where, _stream(attempt, values), text, values["observed_at"])
            batch.each(
                lambda name, draft: refusable(observations.append_part, attempt.pk, name, draft, actor=request.user)
            )
        return Response({"handle": str(attempt.pk), "accepted": len(sent), "limits": limits()}, status=202)


class Attribute(ApiView):
    """POST /v2/sessions/HANDLE/attribute."""

    scopes = {"POST": INGEST}

    def post(self, request: Request, attempt_id: int) -> Response:
        """Asks for a verdict from all that was observed by now, and answers it when it is there within `?wait=`."""
        attempt_or_404(attempt_id)
        wait = wait_of(request)
        ask_for_diagnosis(attempt_id, reason="asked in a session", actor=request.user)
        wait_for_triage(attempt_id, wait)
        return _verdict(attempt_or_404(attempt_id))


class OneVerdict(ApiView):
    """GET /v2/sessions/HANDLE/verdict."""

    scopes = {"GET": READ}

    def get(self, request: Request, attempt_id: int) -> Response:
        """The one verdict of a handle, as it is by now; with `?wait=` after what is going on."""
        attempt_or_404(attempt_id)
        wait_for_triage(attempt_id, wait_of(request))
        return _verdict(attempt_or_404(attempt_id))


def _stream(attempt: Attempt, values: dict[str, Any]) -> str:
    source, node, rank = values["source"], values["node"] or "", values["rank"]
    name = f"rank{rank}.log" if rank is not None else f"{node or 'session'}.log"
    return refusable(
        observations.stream_name, f"{source}/{name}", b"", attempt.nodes, source=source, node=node, rank=rank
    )


def _session(attempt: Attempt) -> dict[str, Any]:
    rows = Observation.objects.filter(attempt=attempt).order_by("name")
    return {
        "handle": str(attempt.pk),
        "cluster": attempt.cluster.name,
        "scheduler": attempt.workload.scheduler,
        "workload_id": attempt.workload.workload_id,
        "number": attempt.number,
        "created_at": time_text(attempt.created_at),
        "observed": [{"stream": row.name, "bytes": row.size} for row in rows[:1000]],
    }


def _verdict(attempt: Attempt) -> Response:
    """200 with the verdict; 202 while there is none."""
    diagnosis, advice = attempt.diagnosis, advise(attempt)
    answer: dict[str, Any] = {"handle": str(attempt.pk), "status": advice.status, "verdict": None}
    if diagnosis is None:
        return Response({**answer, "reason": advice.reason}, status=200 if advice.status == "failed" else 202)
    contract = diagnosis.contract
    answer["verdict"] = {
        "title": attempt.title,
        "outcome": attempt.outcome,
        "domain": attempt.domain,
        "sub_domain": attempt.sub_domain,
        "nodes": attempt.blamed_nodes,
        "evidence": contract["evidence"],
        "reasoning": contract["reasoning"],
        "recommendation": recommendation(attempt, advice),
        "coverage": contract["coverage"],
        "created_at": time_text(diagnosis.created_at),
        "diagnosis": f"/api/v1/attempts/{attempt.pk}/diagnoses/{diagnosis.pk}",
    }
    return Response(answer)
