"""Each request looks with the eyes of who sent it; until that is known, it sees nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from django.contrib.auth.models import AnonymousUser
from django.http import HttpRequest
from django.http.response import HttpResponseBase, StreamingHttpResponse

from triage.access.sight import Sight, current, seeing
from triage.access.viewer import viewer_of


class SightMiddleware:
    """Stands before all others. Who sent the request is asked for only when something is read."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        with seeing(lambda: viewer_of(getattr(request, "user", None) or AnonymousUser()).sight):
            response = self.get_response(request)
            if isinstance(response, StreamingHttpResponse) and not response.is_async:
                response.streaming_content = _while_seeing(current(), iter(response.streaming_content))
            return response


def _while_seeing(sight: Sight, parts: Iterator[Any]) -> Iterator[Any]:
    """What is read while an answer is sent is read with the same eyes."""
    while True:
        with seeing(sight):
            try:
                part = next(parts)
            except StopIteration:
                return
        yield part
