"""Around every request: its id and its line in the log, headers without which no answer goes out, and an answer for
when database or disk are away.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.core.signals import request_finished
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.template.loader import render_to_string
from django.utils.functional import SimpleLazyObject

from triage import logs
from triage.room import RETRY_SECONDS, has_no_room
from triage.text import printable

logger = logging.getLogger(__name__)
requests = logging.getLogger("triage.requests")
_PROBES = ("healthz", "readyz", "metrics")


class LogMiddleware:
    """Stands before all others: gives the request an id, or takes the proxy's (X-Request-Id), and tells of the answer.

    What was asked for is told by its route: addresses hold the words of share links, and queries what people search.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response
        request_finished.connect(lambda **_: logs.begin(), weak=False, dispatch_uid="triage.logs")

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        began, known = time.monotonic(), logs.request_id(request.headers.get("X-Request-Id"))
        logs.begin(request_id=known)
        response = self.get_response(request)
        response.headers["X-Request-Id"] = known
        requests.log(
            logging.DEBUG if _is_chatter(request) else logging.INFO,
            "answered",
            extra={
                "method": request.method,
                "route": route_of(request),
                "status": response.status_code,
                "ms": round((time.monotonic() - began) * 1000),
                "user": _user(request),
            },
        )
        return response

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: dict[str, Any]) -> None:
        if "attempt_id" in kwargs:
            logs.about(attempt=kwargs["attempt_id"])
        elif route_of(request).startswith("/attempts/"):
            logs.about(attempt=kwargs.get("pk"))


def route_of(request: HttpRequest) -> str:
    """The pattern of the address; the address itself where there is no such page."""
    match = request.resolver_match
    return f"/{match.route}" if match is not None else printable(request.path)[:200]


def _is_chatter(request: HttpRequest) -> bool:
    """What programs ask for every few seconds, and files of pages."""
    match = request.resolver_match
    return (match is not None and match.url_name in _PROBES) or request.path.startswith(f"/{settings.STATIC_URL}")


def _user(request: HttpRequest) -> int | None:
    """Who asked, when that was looked up."""
    user: Any = getattr(request, "user", None)  # of a token: as the API set it
    if type(user) is SimpleLazyObject:
        user = getattr(request, "_cached_user", None)
    return getattr(user, "pk", None)


class SafeAnswerMiddleware:
    """Sends settings.CONTENT_SECURITY_POLICY unless a view has set its own, stricter one; and nothing is kept by caches
    on the way, or shown again unasked, unless a view says that it may be.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response
        self.policy = "; ".join(f"{directive} {value}" for directive, value in settings.CONTENT_SECURITY_POLICY.items())

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        response.headers.setdefault("Content-Security-Policy", self.policy)
        response.headers.setdefault("Cache-Control", "private, no-cache")
        return response


class UnavailableMiddleware:
    """503 with Retry-After, in words, where a page can't be made because the database or the disk is away."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        if not (isinstance(error, (OperationalError, InterfaceError)) or has_no_room(error)):
            return None
        logger.error("%s %s: %s", request.method, request.path, error)
        return HttpResponse(render_to_string("503.html"), status=503, headers={"Retry-After": str(RETRY_SECONDS)})
