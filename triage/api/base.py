"""What every view of the API has: ETag, rate headers, Idempotency-Key, parameters that are checked and named."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from django.http import HttpResponseBase
from django.utils.cache import get_conditional_response, patch_cache_control
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from triage.api.places import place
from triage.api.problems import Invalid, Problem
from triage.models import Attempt, Incident
from triage.selectors import attempts as select
from triage.selectors.incidents import get_incident
from triage.services import once
from triage.services.waiting import MAX_SECONDS

MAX_ID = 2**63 - 1


class ApiView(APIView):
    """`scopes`: which token scopes each method needs, one of them is enough. `brings_evidence`: many such calls may
    come at once, so that only some are done at a time.
    """

    scopes: dict[str, tuple[str, ...]] = {}
    brings_evidence = False

    def dispatch(self, request: Any, *args: Any, **kwargs: Any) -> HttpResponseBase:
        with ExitStack() as self._held:
            return super().dispatch(request, *args, **kwargs)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        if self.brings_evidence and request.method not in SAFE_METHODS:
            self._held.enter_context(place(request._request))
        super().initial(request, *args, **kwargs)

    def finalize_response(self, request: Request, response: HttpResponseBase, *args: Any, **kwargs: Any) -> Any:
        response = super().finalize_response(request, response, *args, **kwargs)
        for name, value in getattr(request._request, "rate", {}).items():
            response[name] = value
        patch_cache_control(response, private=True, no_cache=True)
        if request.method in ("GET", "HEAD") and response.status_code == 200 and isinstance(response, Response):
            response.add_post_render_callback(lambda rendered: _with_etag(request, rendered))
        return response

    def once(self, request: Request, body: str, do: Callable[[], Response]) -> Response:
        """The answer of `do`; with an Idempotency-Key only the first call does it. `body` identifies what was sent."""
        key = request.headers.get("Idempotency-Key", "")
        if not key:
            return do()
        if len(key) > once.MAX_KEY or not key.isprintable():
            raise Problem(
                400, f"Idempotency-Key: at most {once.MAX_KEY} printable characters", {"Idempotency-Key": "too long"}
            )
        called = f"{request.method} {request.get_full_path()} {body}"
        call = hashlib.sha256(called.encode("utf-8", "surrogatepass")).hexdigest()

        def kept() -> tuple[int, Any]:
            response = do()
            return response.status_code, response.data

        try:
            status, answer, replayed = once.answer_once(request.user, key, call, kept)
        except once.KeyReused:
            raise Problem(
                422, "The Idempotency-Key was used for another call.", {"Idempotency-Key": "used before"}
            ) from None
        except once.StillAtWork:
            raise Problem(
                409, "The first call with this Idempotency-Key is still at work.", headers={"Retry-After": "1"}
            ) from None
        return Response(answer, status=status, headers={"Idempotency-Replayed": "true"} if replayed else None)


def _with_etag(request: Request, response: Response) -> HttpResponseBase | None:
    etag = f'"{hashlib.sha256(response.content).hexdigest()[:32]}"'
    response["ETag"] = etag
    answer = get_conditional_response(request._request, etag=etag, response=response)
    return None if answer is response else answer


def body_of(request: Request) -> str:
    """A JSON body in one form, for `once`."""
    return json.dumps(request.data, sort_keys=True, default=str)


def mapping_of(request: Request) -> dict[str, Any]:
    """A JSON body that is an object. Raises Problem."""
    if not isinstance(request.data, dict):
        raise Invalid(body="must be a JSON object")
    return request.data


def number_of(request: Request, name: str, default: int, low: int, high: int) -> int:
    """A whole number of the query. Raises Problem."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 18 and low <= int(text) <= high):
        raise Invalid(**{name: f"must be a whole number from {low} to {high}"})
    return int(text)


def flag_of(request: Request, name: str) -> bool:
    """A yes/no of the query, no without it. Raises Problem."""
    text = request.query_params.get(name, "false").lower()
    if text not in ("1", "true", "0", "false"):
        raise Invalid(**{name: "must be true or false"})
    return text in ("1", "true")


def wait_of(request: Request) -> float:
    """Seconds of `?wait=`. Raises Problem."""
    return float(number_of(request, "wait", 0, 0, int(MAX_SECONDS)))


def attempt_or_404(attempt_id: int) -> Attempt:
    """With workload, cluster, diagnosis, verdict. Raises Problem."""
    try:
        return select.get_attempt(_known(attempt_id))
    except Attempt.DoesNotExist:
        raise Problem(404, f"There is no attempt {attempt_id}.") from None


def known_or_404(attempt_id: int) -> Attempt:
    """Without what belongs to it: for calls that only need to know that it is there, and its nodes. Raises Problem."""
    known = Attempt.objects.only("pk", "nodes").filter(pk=_known(attempt_id)).first()
    if known is None:
        raise Problem(404, f"There is no attempt {attempt_id}.")
    return known


def incident_or_404(incident_id: int) -> Incident:
    """Raises Problem."""
    try:
        return get_incident(_known(incident_id))
    except Incident.DoesNotExist:
        raise Problem(404, f"There is no incident {incident_id}.") from None


def _known(number: int) -> int:
    return number if 0 <= number <= MAX_ID else -1
