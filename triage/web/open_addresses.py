"""Addresses that whoever has them may open: how often, and what caches and searchers are told."""

from __future__ import annotations

from django.conf import settings
from django.http.response import HttpResponseBase

from triage.rates import counted

LINK_RATE = 10
"""So many times as often as one address may one link be opened, by all who have it."""


def too_often(who: str, factor: int) -> float | None:
    """Seconds to wait; None when nobody has to."""
    limit = settings.FAULTLINE_SHARE_RATE * factor
    now = counted(who) if limit else None
    return now.left if now is not None and now.times > limit else None


def private(answer: HttpResponseBase, keeping: str = "no-store") -> HttpResponseBase:
    """Nothing for searchers, nothing for caches that are shared; `keeping`: what the reader's own cache may do."""
    answer.headers["X-Robots-Tag"] = "noindex, nofollow, noarchive"
    answer.headers["Referrer-Policy"] = "no-referrer"
    answer.headers["Cache-Control"] = f"private, {keeping}"
    return answer
