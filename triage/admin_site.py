"""Django's admin site for people with the role admin, who sign in where everybody does."""

from __future__ import annotations

from typing import Any

from django.contrib.admin import AdminSite
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse

from triage.access.roles import Role
from triage.access.viewer import viewer_of


class Site(AdminSite):
    site_header = site_title = "Faultline"

    def has_permission(self, request: HttpRequest) -> bool:
        return viewer_of(request.user).may(Role.ADMIN)

    def login(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Passwords are asked for on one page, which counts wrong ones."""
        if request.user.is_authenticated:
            raise PermissionDenied("This needs the role admin.")
        return redirect_to_login(request.GET.get("next") or request.get_full_path())
