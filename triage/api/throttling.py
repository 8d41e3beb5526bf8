"""Calls a minute of one user or token."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from triage.models import ApiToken
from triage.rates import counted


class RateThrottle(BaseThrottle):
    """At most FAULTLINE_API_RATE calls in each minute of the clock. Leaves `rate` on the request for the headers."""

    def __init__(self) -> None:
        self._left = 0.0

    def allow_request(self, request: Request, view: Any) -> bool:
        limit = settings.FAULTLINE_API_RATE
        now = counted(_who(request)) if limit else None
        if now is None:
            return True
        self._left = now.left
        request._request.rate = {  # type: ignore[attr-defined]
            "X-RateLimit-Limit": str(limit),
            "X-RateLimit-Remaining": str(max(0, limit - now.times)),
            "X-RateLimit-Reset": str(int(now.left) + 1),
        }
        return now.times <= limit

    def wait(self) -> float:
        return self._left


def _who(request: Request) -> str:
    if isinstance(request.auth, ApiToken):
        return f"t{request.auth.pk}"
    if request.user and request.user.is_authenticated:
        return f"u{request.user.pk}"
    return f"a{request.META.get('REMOTE_ADDR', '')}"
