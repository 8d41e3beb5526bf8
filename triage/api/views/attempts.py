"""Attempts: listed, made known, facts stated; whole bundles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.core.files import File
from django.core.files.uploadedfile import UploadedFile
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response

from triage.api import schemas
from triage.api.base import ApiView, body_of, known_or_404, number_of
from triage.api.bodies import received
from triage.api.openapi import FILTERS, PROBLEMS, RAW_BODY
from triage.api.parsers import RawParser
from triage.api.permissions import INGEST, READ
from triage.api.problems import Invalid, Problem
from triage.api.serializers import attempt_detail, attempt_row
from triage.models import Attempt
from triage.selectors import attempts as select
from triage.selectors.query import read_query
from triage.services.attempts import AttemptRefused
from triage.services.bundles import ImportRefused, import_upload
from triage.services.spool import SpoolError, archive_suffix
from triage.services.submissions import FACTS, WORKLOAD, state_facts, submit_attempt


class AttemptList(ApiView):
    """Attempts."""

    scopes = {"GET": READ, "POST": INGEST}
    brings_evidence = True

    @extend_schema(operation_id="attempts_list", parameters=FILTERS, responses={200: schemas.AttemptPage, **PROBLEMS})
    def get(self, request: Request) -> Response:
        """The attempts that match, newest first. Filters are those of the page: `q` takes its search language."""
        limit = number_of(request, "limit", select.PAGE_SIZE, 1, select.MAX_PAGE_SIZE)
        order = request.query_params.get("order", select.Order.NEWEST.value)
        if order not in set(select.Order):
            raise Invalid(order=f"must be one of {', '.join(select.Order)}")
        query = read_query(request.query_params)
        if query.errors:
            raise Invalid(q=" ".join(query.errors))
        narrowed = query.to_filter(me=request.user.get_username())
        try:
            page = select.list_attempts(
                narrowed, order=select.Order(order), cursor=request.query_params.get("cursor"), limit=limit
            )
        except select.CursorError:
            raise Invalid(cursor="not one that this API gave for this order") from None
        rows = [attempt_row(attempt) for attempt in page.attempts]
        return Response({"attempts": rows, "older": page.older, "newer": page.newer})

    @extend_schema(
        operation_id="attempts_create",
        request=schemas.NewAttempt,
        responses={200: schemas.AttemptDetail, 201: schemas.AttemptDetail, **PROBLEMS},
    )
    def post(self, request: Request) -> Response:
        """Makes an attempt known: 201. One that is known by cluster, scheduler, workload id and number gets the facts
        that are stated: 200.
        """

        def told(attempt: Attempt) -> dict[str, Any]:
            return attempt_detail(select.attempt_detail(attempt.pk))

        return make_known(self, request, "/api/v1/attempts", told)


class AttemptDetail(ApiView):
    """One attempt."""

    scopes = {"GET": READ, "PATCH": INGEST}
    brings_evidence = True

    @extend_schema(operation_id="attempt_read", responses={200: schemas.AttemptDetail, **PROBLEMS})
    def get(self, request: Request, attempt_id: int) -> Response:
        """One attempt with its sources and streams."""
        known_or_404(attempt_id)
        return Response(attempt_detail(select.attempt_detail(attempt_id)))

    @extend_schema(
        operation_id="attempt_state_facts", request=schemas.Facts, responses={200: schemas.AttemptDetail, **PROBLEMS}
    )
    def patch(self, request: Request, attempt_id: int) -> Response:
        """States facts: scheduler state, times, placement. What is left out stays as it is."""
        known_or_404(attempt_id)
        sent = schemas.Facts(data=request.data)
        sent.is_valid(raise_exception=True)
        try:
            state_facts(attempt_id, facts_of(dict(sent.validated_data)), actor=request.user)
        except AttemptRefused as error:
            raise refused(error) from None
        return Response(attempt_detail(select.attempt_detail(attempt_id)))


class Bundles(ApiView):
    """Whole capture bundles, which bring their own attempt.yaml."""

    scopes = {"POST": INGEST}
    brings_evidence = True
    parser_classes = [MultiPartParser, RawParser]

    @extend_schema(
        operation_id="bundles_create",
        parameters=[OpenApiParameter("name", str, description="File name of a body that is the archive itself.")],
        request={
            "multipart/form-data": {
                "type": "object",
                "properties": {"bundle": {"type": "string", "format": "binary"}},
                "required": ["bundle"],
            },
            **RAW_BODY,
        },
        responses={200: schemas.Imported, 202: schemas.Imported, **PROBLEMS},
    )
    def post(self, request: Request) -> Response:
        """Takes a bundle as multipart field `bundle`, or as the body with `?name=x.tar.zst`. 202 when triage was asked
        for, 200 when the bundle was known.
        """
        if request.content_type.startswith("multipart/"):
            upload = request.data.get("bundle")
            if not isinstance(upload, UploadedFile):
                raise Invalid(bundle="an archive is needed")
            return self._import(request, upload)
        name = request.query_params.get("name", "")
        try:
            suffix = archive_suffix(name)
        except SpoolError as error:
            raise Invalid(name=str(error)) from None
        with received(request, suffix) as body, body.path.open("rb") as content:
            return self._import(request, File(content, name=name))  # type: ignore[arg-type]

    def _import(self, request: Request, upload: UploadedFile) -> Response:
        try:
            imported = import_upload(upload, actor=request.user)
        except ImportRefused as error:
            if "larger than" in str(error):
                raise Problem(413, str(error), {"bundle": str(error)}) from None
            raise Invalid(bundle=str(error)) from None
        answer = {"attempt": imported.attempt.pk, "created": imported.created, "requested": imported.requested}
        return Response(answer, status=202 if imported.requested else 200)


def make_known(view: ApiView, request: Request, place: str, told: Callable[[Attempt], dict[str, Any]]) -> Response:
    """The attempt of a NewAttempt and what is `told` of it: 201 where it was unknown, 200 where its facts are stated.
    Its address is its number below `place`. Raises Problem.
    """
    sent = schemas.NewAttempt(data=request.data)
    sent.is_valid(raise_exception=True)
    facts = dict(sent.validated_data)
    identity = {name: facts.pop(name) for name in ("cluster", "scheduler", "workload_id", "number")}

    def make() -> Response:
        try:
            attempt, created = submit_attempt(**identity, facts=facts_of(facts), actor=request.user)
        except AttemptRefused as error:
            raise refused(error) from None
        headers = {"Location": f"{place}/{attempt.pk}"}
        return Response(told(attempt), status=201 if created else 200, headers=headers)

    return view.once(request, body_of(request), make)


def facts_of(values: dict[str, Any]) -> dict[str, Any]:
    """Of what was sent, the facts."""
    return {name: value for name, value in values.items() if name in (*FACTS, *WORKLOAD)}


def refused(error: AttemptRefused) -> Problem:
    """The same as an answer that names the field."""
    key, _, message = str(error).partition(": ")
    name = "workload_id" if key == "workload.id" else key.rpartition(".")[2]
    return Invalid(**{name: message})
