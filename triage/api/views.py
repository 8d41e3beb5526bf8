"""The API's answers: thin callers of selectors and services."""

from __future__ import annotations

from django.core.files.uploadedfile import UploadedFile
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from triage.api.serializers import attempt_detail, attempt_row
from triage.models import Attempt
from triage.selectors import attempts as selectors
from triage.services.bundles import ImportRefused, import_upload


class AttemptList(APIView):
    """GET: attempts, newest first. Filters as on the pages; `cursor` and `limit` page through."""

    def get(self, request: Request) -> Response:
        limit = request.query_params.get("limit", str(selectors.PAGE_SIZE))
        if not limit.isascii() or not limit.isdigit() or not 1 <= int(limit[:9]) <= selectors.MAX_PAGE_SIZE:
            raise ValidationError({"limit": f"a whole number from 1 to {selectors.MAX_PAGE_SIZE}"})
        narrowed = selectors.AttemptFilter.from_query(request.query_params)
        try:
            page = selectors.list_attempts(narrowed, cursor=request.query_params.get("cursor"), limit=int(limit))
        except selectors.CursorError:
            raise ValidationError({"cursor": "not one that this API gave"}) from None
        rows = [attempt_row(attempt) for attempt in page.attempts]
        return Response({"attempts": rows, "older": page.older, "newer": page.newer})


class AttemptDetail(APIView):
    """GET: one attempt with its sources and streams."""

    def get(self, request: Request, attempt_id: int) -> Response:
        return Response(attempt_detail(_detail(attempt_id)))


class AttemptDiagnosis(APIView):
    """GET: the current diagnosis of an attempt, the contract `faultline.diagnosis/1` as it is."""

    def get(self, request: Request, attempt_id: int) -> Response:
        try:
            diagnosis = selectors.get_attempt(attempt_id).diagnosis
        except Attempt.DoesNotExist:
            raise NotFound(f"no attempt {attempt_id}") from None
        if diagnosis is None:
            raise NotFound("not diagnosed yet")
        return Response(diagnosis.contract)


class Bundles(APIView):
    """POST: a capture bundle as multipart field `bundle`; answers 202 with the attempt, 200 when it was known."""

    parser_classes = [MultiPartParser]

    def post(self, request: Request) -> Response:
        upload = request.data.get("bundle")
        if not isinstance(upload, UploadedFile):
            raise ValidationError({"bundle": "an archive is needed"})
        try:
            imported = import_upload(upload, actor=request.user)
        except ImportRefused as error:
            raise ValidationError({"bundle": str(error)}) from None
        answer = {"attempt": imported.attempt.pk, "created": imported.created, "requested": imported.requested}
        return Response(answer, status=202 if imported.requested else 200)


def _detail(attempt_id: int) -> selectors.AttemptDetail:
    try:
        return selectors.attempt_detail(attempt_id)
    except Attempt.DoesNotExist:
        raise NotFound(f"no attempt {attempt_id}") from None
