"""Pages and fragments. A page is always answered whole; only what polls asks for a fragment, at an address of its own.

So Back can never show a fragment: no fragment's address is ever in the history, and one that is opened by hand leads
to its page.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render, resolve_url
from django.utils.cache import patch_vary_headers
from django.utils.http import url_has_allowed_host_and_scheme


def is_htmx(request: HttpRequest) -> bool:
    return request.headers.get("HX-Request") == "true"


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
