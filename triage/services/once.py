"""Calls that name an Idempotency-Key are done once; repeated, they get the first answer."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db.models.functions import Now

from triage.models import IdempotentCall

MAX_KEY = 200
_ABANDONED = timedelta(minutes=10)


class KeyReused(ValueError):
    """The key was given with another call before."""


class StillAtWork(Exception):
    """The first call with this key has not ended yet."""


def answer_once(
    user: AbstractBaseUser, key: str, call: str, do: Callable[[], tuple[int, Any]]
) -> tuple[int, Any, bool]:
    """Status and answer of `do`, which is only called when this call was not answered before; and whether it was.

    `call` is a hash of what is asked. What `do` raises is not kept: the call may be repeated. Raises KeyReused,
    StillAtWork.
    """
    IdempotentCall.objects.filter(user=user, key=key, status=None, created_at__lt=Now() - _ABANDONED).delete()
    kept, created = IdempotentCall.objects.get_or_create(user=user, key=key, defaults={"call": call})
    if not created:
        if kept.call != call:
            raise KeyReused(key)
        if kept.status is None:
            raise StillAtWork(key)
        return kept.status, kept.answer, True
    IdempotentCall.objects.filter(pk=kept.pk).update(created_at=Now())  # by the clock that it is judged by
    try:
        status, answer = do()
    except BaseException:
        kept.delete()
        raise
    kept.status, kept.answer = status, answer
    kept.save(update_fields=["status", "answer"])
    return status, answer, False


def forget(*, older_than: timedelta) -> int:
    """Deletes answers of so long ago."""
    return IdempotentCall.objects.filter(created_at__lt=Now() - older_than).delete()[0]
