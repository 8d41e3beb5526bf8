"""Figures over weeks of attempts, which cost the more the more there are, are counted once for many looks."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import TypeVar

from django.conf import settings
from django.core.cache import cache

from triage.access import sight

T = TypeVar("T")


def kept(name: str, scope: object, count: Callable[[], T], *, when: Callable[[T], bool] = lambda found: True) -> T:
    """What `count` gives, at most FAULTLINE_FIGURES_SECONDS old. `scope` says by its repr what is counted; what
    somebody else sees is never given. What `when` refuses is counted anew at the next look.
    """
    if not settings.FAULTLINE_FIGURES_SECONDS:
        return count()
    seen = sight.current()
    eyes = (seen.everything, sorted(seen.clusters), sorted(seen.queues), sorted(seen.teams))
    key = f"figures:{name}:{sha256(repr((scope, eyes)).encode()).hexdigest()}"
    found: tuple[T] | None = cache.get(key)
    if found is None:
        found = (count(),)
        if not when(found[0]):
            return found[0]
        cache.set(key, found, settings.FAULTLINE_FIGURES_SECONDS)
    return found[0]
