"""Tells the database in whose name a request changes something; the database writes the audit (migration 0020)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from axes.signals import user_locked_out
from django.contrib.auth.models import AbstractBaseUser
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.db import DatabaseError, connection
from django.dispatch import receiver
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from triage.access.address import client_address
from triage.models import AuditEntry

READING = ("GET", "HEAD", "OPTIONS", "TRACE")


class AuditMiddleware:
    """Names the person for what a request sends, and takes the name back: the connection is kept for others."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        try:
            return self.get_response(request)
        finally:
            if getattr(request, "_audited", False):
                _forget()

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: Any) -> None:
        if request.method not in READING and request.user.is_authenticated:
            name_actor(request, request.user)


def name_actor(request: HttpRequest, user: AbstractBaseUser, token: int | None = None) -> None:
    """From here on changes are this user's."""
    request._audited = True  # type: ignore[attr-defined]
    who = {"user": user.pk, "name": user.get_username(), "token": token, "address": client_address(request)}
    _tell(json.dumps(who))


def _tell(who: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('faultline.who', %s, false)", [who])


def _forget() -> None:
    """A connection that can't be told is not kept: it would go on in the old name."""
    try:
        _tell("")
    except DatabaseError:
        connection.close()


@receiver(user_logged_in)
def _signed_in(request: HttpRequest, user: Any, **_: Any) -> None:
    match = getattr(request, "resolver_match", None)
    single = match is not None and match.url_name == "openid_connect_callback"
    _note(request, "signed in", user, how="by single sign-on" if single else "with a password")


@receiver(user_logged_out)
def _signed_out(request: HttpRequest, user: Any, **_: Any) -> None:
    if user is not None:
        _note(request, "signed out", user)


@receiver(user_login_failed)
def _failed(credentials: dict[str, Any], request: HttpRequest | None = None, **_: Any) -> None:
    _note(request, "sign-in failed", None, name=str(credentials.get("username", ""))[:150])


@receiver(user_locked_out)
def _locked(request: HttpRequest, username: str, **_: Any) -> None:
    _note(request, "locked out", None, name=str(username or "")[:150])


def _note(request: HttpRequest | None, action: str, user: Any, *, name: str = "", **facts: Any) -> None:
    AuditEntry.objects.create(
        actor=user.pk if user is not None else None,
        actor_name=user.get_username() if user is not None else "",
        address=client_address(request) if request is not None else None,
        action=action,
        subject="user",
        subject_id=str(user.pk) if user is not None else "",
        name=(user.get_username() if user is not None else name).replace("\x00", ""),
        changes=facts,
    )
