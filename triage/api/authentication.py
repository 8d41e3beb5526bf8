"""Who asks: a token, or somebody who is signed in."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from rest_framework import authentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from triage.access.audit import READING, name_actor
from triage.access.sight import look_as
from triage.access.viewer import viewer_of
from triage.services.tokens import find_token


class TokenAuthentication(authentication.BaseAuthentication):
    """`Authorization: Bearer flt_...`; also Basic with the token as password, for clients that only know addresses."""

    def authenticate(self, request: Request) -> tuple[Any, Any] | None:
        """User and token. None without the header; raises AuthenticationFailed when it holds no valid token."""
        kind, _, value = request.headers.get("Authorization", "").partition(" ")
        if kind.lower() == "bearer":
            secret = value.strip()
        elif kind.lower() == "basic":
            secret = _password(value)
        else:
            return None
        token = find_token(secret)
        if token is None:
            raise AuthenticationFailed("The token is not valid: unknown, expired or revoked.")
        look_as(viewer_of(token.user).sight)
        if request.method not in READING:
            name_actor(request._request, token.user, token.pk)
        return token.user, token

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="faultline"'


class SessionAuthentication(authentication.SessionAuthentication):
    """The session of the pages, with the CSRF check on what changes something."""

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="faultline"'


def _password(value: str) -> str:
    try:
        return base64.b64decode(value.strip(), validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return ""
