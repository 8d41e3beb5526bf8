"""What a caller may do. A view says which scopes each method needs; a session has all of them."""

from __future__ import annotations

from typing import Any

from rest_framework.exceptions import PermissionDenied
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from triage.models import ApiToken, Scope

READ = (Scope.READ,)
INGEST = (Scope.INGEST,)
WRITE = (Scope.WRITE,)
INGEST_OR_READ = (Scope.INGEST, Scope.READ)


class ScopePermission(BasePermission):
    """One of the scopes that `view.scopes` names for the method; a method without an entry is refused to tokens."""

    message = "Sign in, or send a token."

    def has_permission(self, request: Request, view: Any) -> bool:
        if not (request.user and request.user.is_authenticated):
            return False
        if not isinstance(request.auth, ApiToken):
            return True
        method = "GET" if request.method in ("HEAD", "OPTIONS") else str(request.method)
        if method not in getattr(view, "scopes", {}) and request.method not in view.allowed_methods:
            return True  # answered 405
        wanted = getattr(view, "scopes", {}).get(method, ())
        if not set(wanted) & set(request.auth.scopes):
            names = " or ".join(wanted) or "no token"
            raise PermissionDenied(f"The token has not the scope that this needs: {names}.")
        return True
