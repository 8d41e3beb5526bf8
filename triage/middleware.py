"""Content-Security-Policy on every answer: no inline script, no inline style, nothing from elsewhere. And an answer for
when database or disk are away."""

from __future__ import annotations

import logging
from collections.abc import Callable

from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.template.loader import render_to_string

from triage.room import RETRY_SECONDS, has_no_room

logger = logging.getLogger(__name__)


class ContentSecurityPolicyMiddleware:
    """Sends settings.CONTENT_SECURITY_POLICY unless a view has set its own, stricter one."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response
        self.policy = "; ".join(f"{directive} {value}" for directive, value in settings.CONTENT_SECURITY_POLICY.items())

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        response.headers.setdefault("Content-Security-Policy", self.policy)
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
