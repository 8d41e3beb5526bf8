"""What a caller may do: what their role allows, and with a token only what its scopes name of that."""

from __future__ import annotations

from typing import Any

from rest_framework.exceptions import PermissionDenied
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from triage.access.viewer import viewer_of
from triage.models import ApiToken, Scope
from triage.services.tokens import ROLES

READ = (Scope.READ,)
INGEST = (Scope.INGEST,)
WRITE = (Scope.WRITE,)
INGEST_OR_READ = (Scope.INGEST, Scope.READ)


class ScopePermission(BasePermission):
    """One of the scopes that `view.scopes` names for the method; a method without an entry is for nobody."""

    message = "Sign in, or send a token."

    def has_permission(self, request: Request, view: Any) -> bool:
        if not (request.user and request.user.is_authenticated):
            return False
        method = "GET" if request.method in ("HEAD", "OPTIONS") else str(request.method)
        if method not in getattr(view, "scopes", {}) and request.method not in view.allowed_methods:
            return True  # answered 405
        wanted = set(getattr(view, "scopes", {}).get(method, ()))
        if isinstance(request.auth, ApiToken) and not wanted & set(request.auth.scopes):
            names = " or ".join(sorted(wanted)) or "no token"
            raise PermissionDenied(f"The token has not the scope that this needs: {names}.")
        granted = wanted & set(request.auth.scopes) if isinstance(request.auth, ApiToken) else wanted
        viewer = viewer_of(request.user)
        if not any(viewer.may(ROLES[scope]) for scope in granted):
            raise PermissionDenied("This needs the role responder or one above it.")
        return True
