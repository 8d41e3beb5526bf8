"""Pages and fragments. A page is always answered whole; only what polls asks for a fragment, at an address of its own.

So Back can never show a fragment: no fragment's address is ever in the history, and one that is opened by hand leads
to its page.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render, resolve_url
from django.utils.cache import patch_vary_headers
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import cache_control

View = Callable[..., HttpResponse]


def is_htmx(request: HttpRequest) -> bool:
    return request.headers.get("HX-Request") == "true"


def signed_in(view: View) -> View:
    """Only for people who signed in. A fragment whose session has expired sends the whole page to the sign-in."""

    @wraps(view)
    def wrapper(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if request.user.is_authenticated:
            return view(request, *args, **kwargs)
        if is_htmx(request):
            page = urlsplit(request.headers.get("HX-Current-URL", ""))
            back = page.path + (f"?{page.query}" if page.query else "")
            answer = HttpResponse(status=401)
            answer.headers["HX-Redirect"] = redirect_to_login(back or "/").url
            patch_vary_headers(answer, ("HX-Request", "Cookie"))
            return answer
        return redirect_to_login(request.get_full_path() if request.method in ("GET", "HEAD") else _page_of(request))

    return cache_control(private=True, no_cache=True)(wrapper)


def administrators(view: View) -> View:
    """Only for people who may set Faultline up; others are told so."""

    @wraps(view)
    def wrapper(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if not request.user.is_staff:
            raise PermissionDenied
        return view(request, *args, **kwargs)

    return signed_in(wrapper)


def _page_of(request: HttpRequest) -> str:
    """The page whose form was sent: what is sent again after signing in would be lost, so one returns to the form."""
    page = urlsplit(request.headers.get("Referer", ""))
    if page.netloc != request.get_host():
        return "/"
    return page.path + (f"?{page.query}" if page.query else "")


def local_address(request: HttpRequest, name: str = "next") -> str:
    """The address that a form sends to return to; only one of this site is taken, else the list of failures."""
    target = request.POST.get(name, "")
    allowed = url_has_allowed_host_and_scheme(target, {request.get_host()}, require_https=request.is_secure())
    return target if allowed else resolve_url("failures")


def etag_of(state: str) -> str:
    """The ETag of a fragment in this state."""
    return f'"{sha256(state.encode()).hexdigest()[:20]}"'


def is_known(request: HttpRequest, state: str) -> bool:
    """Whether the browser has the fragment in this state already."""
    return request.headers.get("If-None-Match") == etag_of(state)


def fragment(request: HttpRequest, template: str, context: dict[str, Any], page: str, state: str) -> HttpResponse:
    """A fragment with `state` as its ETag: 304 when the browser has it, the page itself when htmx didn't ask."""
    if not is_htmx(request):
        return HttpResponseRedirect(page)
    etag = etag_of(state)
    if is_known(request, state):
        answer = HttpResponse(status=304)
    else:
        answer = render(request, template, {**context, "etag": etag})
    answer.headers["ETag"] = etag
    patch_vary_headers(answer, ("HX-Request", "Cookie"))
    return answer
