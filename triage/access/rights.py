"""Who may use a view: said at the view, checked before it runs. A view that says nothing is for nobody."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any
from urllib.parse import urlsplit

from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.cache import patch_vary_headers
from django.views.decorators.cache import cache_control
from rest_framework.views import APIView

from triage.access.roles import Role
from triage.access.viewer import viewer_of

logger = logging.getLogger(__name__)
View = Callable[..., HttpResponse]
READING = ("GET", "HEAD", "OPTIONS")
LIBRARIES = ("admin",)
"""Namespaces whose views check for themselves."""


def needs(role: Role, *, write: Role | None = None) -> Callable[[View], View]:
    """Only for people with this role or one above; `write`: for those who send something. A fragment whose session has
    expired sends the whole page to the sign-in.
    """

    def decorate(view: View) -> View:
        @wraps(view)
        def wrapper(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            if not request.user.is_authenticated:
                return _to_sign_in(request)
            check_role(request, role if request.method in READING else write or role)
            return view(request, *args, **kwargs)

        checked = cache_control(private=True, no_cache=True)(wrapper)
        checked.needs = (role, write or role)  # type: ignore[attr-defined]
        return checked

    return decorate


def check_role(request: HttpRequest, wanted: Role) -> None:
    """For what depends on more than the view. Raises PermissionDenied."""
    viewer = viewer_of(request.user)
    if not viewer.may(wanted):
        own = viewer.role.label.lower() if viewer.role else "none"
        raise PermissionDenied(f"This needs the role {wanted.label.lower()} or one above it; yours: {own}.")


signed_in = needs(Role.VIEWER)
"""For everybody who signed in."""
responders = needs(Role.RESPONDER)
"""For those who say and do something about failures."""
administrators = needs(Role.ADMIN)
"""For those who may set Faultline up."""


def open_to_all(view: View) -> View:
    """Also for those who did not sign in; the view itself decides what they get."""
    view.open_to_all = True  # type: ignore[attr-defined]
    return view


def rule_of(view: Any) -> str:
    """Who may use a view, in words; empty when it doesn't say."""
    if hasattr(view, "needs"):
        return "/".join(dict.fromkeys(view.needs))
    if getattr(view, "open_to_all", False):
        return "all"
    owner = getattr(view, "view_class", getattr(view, "cls", None))
    return "api" if isinstance(owner, type) and issubclass(owner, APIView) else ""


class RightsMiddleware:
    """Refuses views that don't say who may use them."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        return self.get_response(request)

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: Any) -> None:
        match = request.resolver_match
        if rule_of(view) or (match is not None and set(match.app_names) & set(LIBRARIES)):
            return
        logger.error("%s: the view does not say who may use it (triage/access/rights.py)", request.path)
        raise PermissionDenied


def _to_sign_in(request: HttpRequest) -> HttpResponse:
    if request.headers.get("HX-Request") == "true":
        page = urlsplit(request.headers.get("HX-Current-URL", ""))
        back = page.path + (f"?{page.query}" if page.query else "")
        answer = HttpResponse(status=401)
        answer.headers["HX-Redirect"] = redirect_to_login(back or "/").url
        patch_vary_headers(answer, ("HX-Request", "Cookie"))
        return answer
    return redirect_to_login(request.get_full_path() if request.method in READING else _page_of(request))


def _page_of(request: HttpRequest) -> str:
    """The page whose form was sent: what is sent again after signing in would be lost, so one returns to the form."""
    page = urlsplit(request.headers.get("Referer", ""))
    if page.netloc != request.get_host():
        return "/"
    return page.path + (f"?{page.query}" if page.query else "")
