"""Sign in and out, and what a person prefers."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from django.contrib.auth.views import LoginView, LogoutView
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.views.decorators.http import require_POST

from triage.access.rights import open_to_all, signed_in
from triage.web import zones
from triage.web.context import KEYS_COOKIE, THEME_COOKIE, THEMES
from triage.web.htmx import local_address

YEAR = 365 * 24 * 3600


class SignIn(LoginView):
    """Says where it returns to; only addresses of this site are taken."""

    template_name = "account/sign_in.html"
    redirect_authenticated_user = True

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context = super().get_context_data(**kwargs)
        target = self.get_redirect_url()
        context["returns_to"] = "" if target in ("", "/") else unquote(target)
        return context


class SignOut(LogoutView):
    next_page = "login"


sign_in = open_to_all(SignIn.as_view())
sign_out = open_to_all(SignOut.as_view())


@require_POST
@signed_in
def preferences(request: HttpRequest) -> HttpResponse:
    """Theme, zone and shortcuts, kept in cookies so that the first byte of a page has the right theme."""
    answer = HttpResponseRedirect(local_address(request))
    theme = request.POST.get("theme", "auto")
    secure = request.is_secure()
    if theme in THEMES:
        answer.set_cookie(THEME_COOKIE, theme, max_age=YEAR, samesite="Lax", secure=secure, httponly=True)
    else:
        answer.delete_cookie(THEME_COOKIE, samesite="Lax")
    keys = "on" if request.POST.get("keys") else "off"
    answer.set_cookie(KEYS_COOKIE, keys, max_age=YEAR, samesite="Lax", secure=secure, httponly=True)
    zone = request.POST.get("zone", "")
    if zone:
        kept = zones.cookie_value(zone, request.POST.get("local_zone", ""))
        answer.set_cookie(zones.COOKIE, kept, max_age=YEAR, samesite="Lax", secure=secure, httponly=True)
    return answer
