"""Sign in and out, and what a person prefers."""

from __future__ import annotations

import logging
from typing import Any
from urllib.parse import unquote

from allauth.socialaccount.providers.openid_connect import views as openid_connect
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.views import LoginView, LogoutView, PasswordChangeView
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.urls import reverse_lazy
from django.views.decorators.http import require_POST
from requests import RequestException

from triage.access.address import client_address, network_of
from triage.access.rights import open_to_all, signed_in
from triage.rates import counted
from triage.web import zones
from triage.web.context import KEYS_COOKIE, THEME_COOKIE, THEMES
from triage.web.htmx import local_address

logger = logging.getLogger(__name__)
YEAR = 365 * 24 * 3600


class SignIn(LoginView):
    """Says where it returns to; only addresses of this site are taken."""

    template_name = "account/sign_in.html"
    redirect_authenticated_user = True

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Names and passwords from one address are tried so often a minute and no more."""
        limit = settings.FAULTLINE_SIGN_IN_RATE
        now = counted(f"sign-in:{network_of(client_address(request))}") if limit else None
        if now is not None and now.times > limit:
            return _wait(request, int(now.left) + 1)
        return super().post(request, *args, **kwargs)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context = super().get_context_data(**kwargs)
        target = self.get_redirect_url()
        context["oidc"] = _provider()
        context["returns_to"] = "" if target in ("", "/") else unquote(target)
        return context


class SignOut(LogoutView):
    """The browser forgets the pages too, so that going back on a shared machine shows none of them."""

    next_page = "login"

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        answer = super().post(request, *args, **kwargs)
        answer.headers["Clear-Site-Data"] = '"cache"'
        return answer


class Password(PasswordChangeView):
    """For people with a local account."""

    template_name = "account/password.html"
    success_url = reverse_lazy("failures")

    def form_valid(self, form: Any) -> HttpResponse:
        messages.success(self.request, "Your password is changed. Other places where you are signed in are signed out.")
        return super().form_valid(form)


sign_in = open_to_all(SignIn.as_view())
sign_out = open_to_all(SignOut.as_view())
password = signed_in(Password.as_view())


@open_to_all
def oidc_login(request: HttpRequest, provider_id: str) -> HttpResponse:
    """Off to the identity provider."""
    try:
        return openid_connect.login(request, provider_id=provider_id)
    except RequestException as error:
        logger.warning("the identity provider was not reached: %s", error)
        why = f"{_provider().capitalize()} can't be reached at the moment. Try again in a while."
        return render(request, "account/refused.html", {"why": why}, status=502)


oidc_callback = open_to_all(openid_connect.callback)


@open_to_all
def oidc_cancelled(request: HttpRequest) -> HttpResponse:
    """Somebody turned back at the provider."""
    return redirect("login")


def locked_out(request: HttpRequest, response: HttpResponse | None, credentials: Any) -> HttpResponse:
    """Too many wrong passwords for one name from one address."""
    return _wait(request, int(settings.AXES_COOLOFF_TIME.total_seconds()))


def _wait(request: HttpRequest, seconds: int) -> HttpResponse:
    context = {"wait": seconds, "form": None, "oidc": _provider()}
    answer = render(request, "account/sign_in.html", context, status=429)
    answer.headers["Retry-After"] = str(seconds)
    return answer


def _provider() -> str:
    """The name of the identity provider; empty when there is none."""
    return settings.FAULTLINE_OIDC_NAME if settings.FAULTLINE_OIDC_URL else ""


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
