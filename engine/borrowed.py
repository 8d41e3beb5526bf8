"""Until when an error can have happened that stands behind the last time of its log.

Such a line has the time of the one before it, which may be minutes old: a rank that prints every hundred steps. That
the others went on with their steps meanwhile shows it, and that they then reported a lost peer shows until when.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.findings import Placed
from engine.model import Role, Source
from engine.progress import Progress

_CONSEQUENCES = (Role.SYMPTOM, Role.TEARDOWN)


def bound(placed: Sequence[Placed], progress: Progress) -> None:
    """Sets `at_most` of errors whose borrowed time the job's later progress has shown to be too early."""
    last = progress.last_at
    if last is None or not progress.is_exact:
        return
    noticed = sorted(
        one.at
        for one in placed
        if one.at is not None and one.at >= last and one.rule.role in _CONSEQUENCES and _tells_its_time(one)
    )
    for one in placed:
        if one.at_least and one.at is not None and one.at < last and noticed:
            one.at_most = noticed[0]


def _tells_its_time(one: Placed) -> bool:
    return one.hit.source is Source.APPLOG and one.hit.inherited is None and one.aside is None
