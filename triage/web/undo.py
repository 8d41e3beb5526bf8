"""What was just done can be taken back: the next page says what was done and offers it.

A view that has done something calls `offer` with a kind of undo and what that needs. The offer lies in the session
until a page shows it; its button sends it to `undo`, signed, so that it works without script and from an older tab too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.contrib.auth.models import User
from django.core import signing
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.views.decorators.http import require_POST

from triage.access.rights import check_role, signed_in
from triage.access.roles import Role
from triage.web.htmx import local_address

_SALT = "triage.undo"
_SESSION = "undo"
SECONDS = 3600
"""So long an offer can be taken."""

Undoer = Callable[[User, dict[str, Any]], str]
"""Takes something back, and says in a sentence what became of it."""
_KINDS: dict[str, Undoer] = {}
_ROLES: dict[str, Role] = {}


class NotUndone(Exception):
    """It can't be taken back any more; the message says why."""


@dataclass(frozen=True)
class Offer:
    """What a page shows."""

    said: str
    token: str


def undoes(kind: str, role: Role = Role.RESPONDER) -> Callable[[Undoer], Undoer]:
    """The function takes back what was offered as this kind; for people with this role."""

    def register(undoer: Undoer) -> Undoer:
        _KINDS[kind] = undoer
        _ROLES[kind] = role
        return undoer

    return register


def offer(request: HttpRequest, kind: str, said: str, **facts: Any) -> None:
    """Says what was done, on the next page, with a button that takes it back. `facts` are plain values."""
    assert kind in _KINDS, kind
    token = signing.dumps({"kind": kind, "by": request.user.pk, "facts": facts}, salt=_SALT, compress=True)
    request.session[_SESSION] = {"said": said, "token": token}


def offered(request: HttpRequest) -> Offer | None:
    """What is offered since the last page. Each is shown once."""
    session = getattr(request, "session", None)
    waiting = session.pop(_SESSION, None) if session is not None and _SESSION in session else None
    return Offer(**waiting) if waiting else None


@require_POST
@signed_in
def undo(request: HttpRequest) -> HttpResponse:
    """Takes back what was offered, and returns to the page that offered it."""
    back = HttpResponseRedirect(local_address(request))
    try:
        found = signing.loads(request.POST.get("offer", ""), salt=_SALT, max_age=SECONDS)
    except signing.SignatureExpired:
        messages.error(request, "Too late to undo this here: more than an hour has passed.")
        return back
    except signing.BadSignature:
        messages.error(request, "Nothing was undone: the offer was damaged on its way.")
        return back
    if found["by"] != request.user.pk:
        messages.error(request, "Nothing was undone: somebody else did that.")
        return back
    check_role(request, _ROLES[found["kind"]])
    try:
        messages.success(request, _KINDS[found["kind"]](request.user, found["facts"]))
    except NotUndone as reason:
        messages.warning(request, f"Not undone. {reason}")
    return back
