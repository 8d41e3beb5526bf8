"""Observations: evidence in parts, in any order, resumable."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.core.files.uploadedfile import UploadedFile
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response

from triage.api import schemas
from triage.api.base import ApiView, known_or_404, number_of
from triage.api.bodies import Received, received
from triage.api.line_batches import line_batch
from triage.api.openapi import PROBLEMS, RAW_BODY
from triage.api.parsers import RawParser
from triage.api.permissions import INGEST, INGEST_OR_READ
from triage.api.problems import Invalid, Problem
from triage.api.serializers import limits, observation_row
from triage.models import Attempt, Observation
from triage.services import observations, spool
from triage.services.observations import ObservationRefused

_STATUS = {"invalid": 400, "conflict": 409, "gone": 410, "too_large": 413}
PLACE = [
    OpenApiParameter("source", str, enum=schemas.SOURCES, description="Of the stream, when its name does not tell."),
    OpenApiParameter("node", str, description="Where it comes from, when its name does not tell."),
    OpenApiParameter("rank", int, description="Whose output it is, when its name does not tell."),
]
DIGEST = OpenApiParameter(
    "X-Content-SHA256", str, OpenApiParameter.HEADER, description="SHA-256 of the decoded bytes, hexadecimal; checked."
)
ENCODING = OpenApiParameter("Content-Encoding", str, OpenApiParameter.HEADER, description="gzip or zstd.")


class ObservationList(ApiView):
    """What was sent of an attempt."""

    scopes = {"GET": INGEST_OR_READ, "POST": INGEST}
    brings_evidence = True
    parser_classes = [MultiPartParser, RawParser]

    @extend_schema(operation_id="observations_list", responses={200: schemas.ObservationList, **PROBLEMS})
    def get(self, request: Request, attempt_id: int) -> Response:
        """Every stream with the offset at which it goes on, by name."""
        rows = Observation.objects.filter(attempt=known_or_404(attempt_id))
        return Response({"observations": [observation_row(row) for row in rows], "limits": limits()})

    @extend_schema(
        operation_id="observations_send",
        parameters=[
            OpenApiParameter("name", str, description="Of the stream, or of the archive, of a body that is one file."),
            *PLACE,
            DIGEST,
            ENCODING,
            OpenApiParameter("Idempotency-Key", str, OpenApiParameter.HEADER),
        ],
        request={
            "multipart/form-data": {"type": "object", "additionalProperties": {"type": "string", "format": "binary"}},
            "application/x-ndjson": {"type": "string"},
            **RAW_BODY,
        },
        responses={200: schemas.ObservationList, 201: schemas.ObservationList, **PROBLEMS},
    )
    def post(self, request: Request, attempt_id: int) -> Response:
        """Files as multipart, each one stream; NDJSON `{"stream": "applog/a.log", "line": "..."}`, each line appended
        to its stream; a capture bundle with `?name=x.tar.zst`; or one raw text with `?name=train.log`, appended.

        Appending is not repeatable by itself: send an Idempotency-Key, or use PUT with an offset.
        """
        attempt = known_or_404(attempt_id)
        kind = request.content_type.split(";")[0].strip().lower()
        if kind == "multipart/form-data":
            return self.once(request, _sizes(request), lambda: self._files(request, attempt))
        name = request.query_params.get("name", "")
        suffix = _archive_suffix(name)
        with received(request, suffix or ".part") as body:
            if suffix:
                return self.once(request, body.sha256, lambda: self._bundle(request, attempt, body))
            if kind in ("application/x-ndjson", "application/ndjson", "application/jsonl"):
                return self.once(request, body.sha256, lambda: self._lines(request, attempt, body))
            if not name:
                raise Invalid(name="is needed for one raw text; NDJSON is application/x-ndjson")
            return self.once(request, body.sha256, lambda: self._text(request, attempt, name, body))

    def _files(self, request: Request, attempt: Attempt) -> Response:
        files = [upload for _, group in request.FILES.lists() for upload in group]
        if not files:
            raise Invalid(body="holds no file")
        kept = []
        for upload in files:
            suffix = _archive_suffix(upload.name or "")
            with spool.draft(suffix or ".part") as draft:
                _copy(upload, draft)
                if suffix:
                    kept += refusable(observations.append_bundle, attempt.pk, draft, actor=request.user)
                    continue
                with draft.open("rb") as content:
                    head = content.read(64 << 10)
                name = _name(request, attempt, _field_name(upload), head)
                kept.append(_append(request, attempt, name, draft, offset=0).observation)
        return _answer(kept)

    def _bundle(self, request: Request, attempt: Attempt, body: Received) -> Response:
        return _answer(refusable(observations.append_bundle, attempt.pk, body.path, actor=request.user))

    def _text(self, request: Request, attempt: Attempt, name: str, body: Received) -> Response:
        name = _name(request, attempt, name, body.head)
        return _answer([_append(request, attempt, name, body.path).observation])

    def _lines(self, request: Request, attempt: Attempt, body: Received) -> Response:
        with line_batch() as batch:
            for number, entry in _entries(body.path):
                where = f"line {number}"
                if not (isinstance(entry, dict) and all(isinstance(entry.get(key), str) for key in ("stream", "line"))):
                    raise Invalid(**{where: "must be an object with the texts stream and line"})
                name = _name(request, attempt, entry["stream"], b"x")
                batch.put(where, name, entry["line"], entry.get("at"))
            return _answer(batch.each(lambda name, draft: _append(request, attempt, name, draft).observation))


class OneObservation(ApiView):
    """One stream."""

    scopes = {"GET": INGEST_OR_READ, "PUT": INGEST}
    brings_evidence = True
    parser_classes = [RawParser]

    @extend_schema(operation_id="observation_read", responses={200: schemas.ObservationRow, **PROBLEMS})
    def get(self, request: Request, attempt_id: int, name: str) -> Response:
        """How much of it is there: where the next part begins."""
        row = Observation.objects.filter(attempt=known_or_404(attempt_id), name=name.replace("\x00", "")).first()
        if row is None:
            raise Problem(404, f"Attempt {attempt_id} has no observation {name}.")
        return Response(observation_row(row))

    @extend_schema(
        operation_id="observation_send",
        parameters=[
            OpenApiParameter("offset", int, description="Where the part begins; 409 tells where the stream ends."),
            *PLACE, DIGEST, ENCODING,
        ],
        request=RAW_BODY,
        responses={200: schemas.PartTaken, 201: schemas.PartTaken, **PROBLEMS},
    )  # fmt: skip
    def put(self, request: Request, attempt_id: int, name: str) -> Response:
        """One part at an offset. The same part again changes nothing, so it can be resent after any failure."""
        attempt = known_or_404(attempt_id)
        offset = number_of(request, "offset", 0, 0, 2**62)
        with received(request) as body:
            own = _name(request, attempt, name, b"")
            taken = _append(request, attempt, own, body.path, offset=offset)
            answer = {
                "observation": observation_row(taken.observation),
                "added": taken.added,
                "sha256": body.sha256,
                "limits": limits(),
            }
        return Response(answer, status=201 if taken.created else 200)


class Limits(ApiView):
    """What may be sent."""

    scopes = {"GET": INGEST_OR_READ}

    @extend_schema(operation_id="limits_read", responses={200: schemas.LimitsRow, **PROBLEMS})
    def get(self, request: Request) -> Response:
        """Sizes in bytes."""
        return Response(limits())


def _name(request: Request, attempt: Attempt, name: str, head: bytes) -> str:
    rank = number_of(request, "rank", -1, 0, 10**6)
    node = request.query_params.get("node", "")
    return refusable(
        observations.stream_name,
        name,
        head,
        attempt.nodes,
        source=request.query_params.get("source", ""),
        node=node,
        rank=None if rank < 0 else rank,
    )


def _append(
    request: Request, attempt: Attempt, name: str, draft: Path, *, offset: int | None = None
) -> observations.Appended:
    node = request.query_params.get("node", "")
    return refusable(observations.append_part, attempt.pk, name, draft, offset=offset, node=node, actor=request.user)


def refusable(do: Any, *args: Any, **kwargs: Any) -> Any:
    """What `do` returns; what it refuses becomes a Problem."""
    try:
        return do(*args, **kwargs)
    except ObservationRefused as error:
        more = {"offset": error.offset} if error.offset is not None else {}
        if error.code == "too_large":
            more |= {"limits": limits()}  # type: ignore[dict-item]
        raise Problem(_STATUS[error.code], f"{error.field}: {error}", {error.field: str(error)}, **more) from None


def _answer(kept: list[Observation]) -> Response:
    rows = [observation_row(observation) for observation in kept]
    return Response({"observations": rows, "limits": limits()}, status=201)


def _archive_suffix(name: str) -> str:
    try:
        return spool.archive_suffix(name)
    except spool.SpoolError:
        return ""


def _sizes(request: Request) -> str:
    return json.dumps([[upload.name, upload.size] for _, group in request.FILES.lists() for upload in group])


def _field_name(upload: UploadedFile) -> str:
    """Field names may hold folders, which file names in a form can't: `-F applog/train.log=@train.log`."""
    field = getattr(upload, "field_name", "") or ""
    return field if "/" in field else (upload.name or "file")


def _copy(upload: UploadedFile, draft: Path) -> None:
    with draft.open("wb") as out:
        for block in upload.chunks():
            out.write(block)


def _entries(path: Path) -> Iterator[tuple[int, Any]]:
    with path.open("rb") as content:
        for number, raw in enumerate(content, 1):
            if not raw.strip():
                continue
            try:
                yield number, json.loads(raw)
            except (ValueError, RecursionError):
                raise Invalid(**{f"line {number}": "is no JSON"}) from None
