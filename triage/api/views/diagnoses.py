"""Diagnoses: asked for, read whole, with evidence in its context; the advice for recovery controllers."""

from __future__ import annotations

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from triage.api import schemas
from triage.api.base import ApiView, attempt_or_404, flag_of, known_or_404, number_of, wait_of
from triage.api.openapi import CONTRACT, PROBLEMS, WAIT
from triage.api.permissions import INGEST, READ
from triage.api.places import place, waiting_place
from triage.api.problems import Problem
from triage.api.serializers import diagnosis_row, lines, recommendation, triage_row
from triage.models import Attempt, Diagnosis, Stream, TriageState
from triage.selectors.evidence import tell
from triage.selectors.recommendations import advise
from triage.selectors.streams import StreamGone, get_stream, lines_around_line
from triage.services.observations import ask_for_diagnosis
from triage.services.waiting import wait_for_triage

NOTHING_NEW = OpenApiParameter(
    "again", bool, description="Diagnose again although nothing is new, e.g. after a change of rules."
)


class CurrentDiagnosis(ApiView):
    """The current diagnosis of an attempt."""

    scopes = {"GET": READ, "POST": INGEST}

    @extend_schema(
        operation_id="diagnosis_read", parameters=[WAIT], responses={200: CONTRACT, 202: schemas.Pending, **PROBLEMS}
    )
    def get(self, request: Request, attempt_id: int) -> Response:
        """The contract `faultline.diagnosis/1`. With `wait`, after what is going on. 202 while there is none."""
        known_or_404(attempt_id)
        with waiting_place(wait_of(request)) as seconds:
            wait_for_triage(attempt_id, seconds)
        return _contract(attempt_or_404(attempt_id), finished=False)

    @extend_schema(
        operation_id="diagnosis_ask",
        parameters=[WAIT, NOTHING_NEW],
        request=None,
        responses={200: CONTRACT, 202: schemas.Pending, **PROBLEMS},
    )
    def post(self, request: Request, attempt_id: int) -> Response:
        """Asks for a diagnosis of all that is there by now; may be asked again and again while evidence arrives.

        200 with the diagnosis when it is there within `wait` seconds, else 202. Nothing is done when nothing is new.
        """
        known_or_404(attempt_id)
        wait, again = wait_of(request), flag_of(request, "again")
        with place(request._request):
            ask_for_diagnosis(attempt_id, again=again, reason="asked by the API", actor=request.user)
        with waiting_place(wait) as seconds:
            wait_for_triage(attempt_id, seconds)
        return _contract(attempt_or_404(attempt_id), finished=True)


class DiagnosisList(ApiView):
    """Every diagnosis of an attempt."""

    scopes = {"GET": READ}

    @extend_schema(operation_id="diagnoses_list", responses={200: schemas.DiagnosisList, **PROBLEMS})
    def get(self, request: Request, attempt_id: int) -> Response:
        """Newest first, at most 200."""
        attempt = attempt_or_404(attempt_id)
        rows = attempt.diagnoses.defer("contract").order_by("-created_at", "-id")[:200]
        return Response({"diagnoses": [diagnosis_row(row, attempt.diagnosis_id) for row in rows]})


class OneDiagnosis(ApiView):
    """A diagnosis, also one that is superseded."""

    scopes = {"GET": READ}

    @extend_schema(operation_id="diagnosis_read_one", responses={200: CONTRACT, **PROBLEMS})
    def get(self, request: Request, attempt_id: int, diagnosis_id: int) -> Response:
        """Its contract, as it was."""
        attempt = attempt_or_404(attempt_id)
        found = Diagnosis.objects.filter(attempt=attempt, pk=min(diagnosis_id, 2**63 - 1)).first()
        if found is None:
            raise Problem(404, f"Attempt {attempt_id} has no diagnosis {diagnosis_id}.")
        return Response(found.contract)


class EvidenceList(ApiView):
    """The evidence of the current diagnosis."""

    scopes = {"GET": READ}

    @extend_schema(operation_id="evidence_list", responses={200: schemas.EvidenceList, **PROBLEMS})
    def get(self, request: Request, attempt_id: int) -> Response:
        """Each line with its place and its neighbours, as kept with the diagnosis."""
        return Response({"evidence": _diagnosis(attempt_id).contract["evidence"]})


class OneEvidence(ApiView):
    """One line of evidence in its context."""

    scopes = {"GET": READ}

    @extend_schema(
        operation_id="evidence_read",
        parameters=[
            OpenApiParameter("before", int, description="Lines before it, at most 200."),
            OpenApiParameter("after", int, description="Lines after it, at most 200."),
        ],
        responses={200: schemas.EvidenceDetail, **PROBLEMS},
    )
    def get(self, request: Request, attempt_id: int, ref: str) -> Response:
        """The line and what stands around it in its stream."""
        diagnosis = _diagnosis(attempt_id)
        before = number_of(request, "before", 20, 0, 200)
        after = number_of(request, "after", 20, 0, 200)
        item = diagnosis.evidence.get(ref)
        if item is None:
            raise Problem(404, f"The diagnosis has no evidence {ref}.")
        roles = tell(diagnosis, "").trail[ref].roles if ref in tell(diagnosis, "").trail else ()
        try:
            window = lines_around_line(get_stream(attempt_id, item["stream"]), item["line"], before=before, after=after)
        except (Stream.DoesNotExist, StreamGone):
            return Response({"evidence": item, "roles": list(roles), "lines": [], "kept": False})
        return Response({"evidence": item, "roles": list(roles), "lines": lines(window), "kept": True})


class Coverage(ApiView):
    """What the current diagnosis could and could not see."""

    scopes = {"GET": READ}

    @extend_schema(operation_id="coverage_read", responses={200: schemas.Coverage, **PROBLEMS})
    def get(self, request: Request, attempt_id: int) -> Response:
        """One report a source."""
        return Response({"coverage": _diagnosis(attempt_id).contract["coverage"]})


class Recommendation(ApiView):
    """What a recovery controller should do."""

    scopes = {"GET": READ}

    @extend_schema(
        operation_id="recommendation_read", parameters=[WAIT], responses={200: schemas.RecommendationRow, **PROBLEMS}
    )
    def get(self, request: Request, attempt_id: int) -> Response:
        """At once, from what is there: `status` says whether evidence still comes or is missing. With `wait`, after the
        collection that is going on. A node is only named with a line that speaks against it.
        """
        known_or_404(attempt_id)
        with waiting_place(wait_of(request)) as seconds:
            wait_for_triage(attempt_id, seconds)
        attempt = attempt_or_404(attempt_id)
        return Response(recommendation(attempt, advise(attempt)))


def _diagnosis(attempt_id: int) -> Diagnosis:
    diagnosis = attempt_or_404(attempt_id).diagnosis
    if diagnosis is None:
        raise Problem(404, f"Attempt {attempt_id} has no diagnosis yet.")
    return diagnosis


def _contract(attempt: Attempt, *, finished: bool) -> Response:
    """The current contract; with `finished` only when nothing is going on."""
    if attempt.triage_state == TriageState.FAILED and (finished or attempt.diagnosis is None):
        raise Problem(409, f"The triage failed: {attempt.triage_reason}", triage=triage_row(attempt))
    going_on = attempt.triage_state != TriageState.DONE
    if attempt.diagnosis is None or (finished and going_on):
        place = {"Location": f"/api/v1/attempts/{attempt.pk}/diagnosis", "Retry-After": "2"}
        return Response({"attempt": attempt.pk, "triage": triage_row(attempt)}, status=202, headers=place)
    stale = {"X-Triage-State": attempt.triage_state, "X-Diagnosis": str(attempt.diagnosis_id)}
    return Response(attempt.diagnosis.contract, headers=stale)
