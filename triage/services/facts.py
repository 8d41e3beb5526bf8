"""Between the engine's vocabulary and the database: attempts, times, and text that Postgres can keep."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from engine import model as engine
from triage.models import Attempt
from triage.services.masking import mask_text

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_REFUSED = re.compile("[\x00\ud800-\udfff]")


def moment(at: float | None) -> datetime | None:
    """Epoch seconds as a datetime; None for None and for what no calendar holds."""
    if at is None:
        return None
    try:
        return _EPOCH + timedelta(microseconds=round(at * 1_000_000))
    except (OverflowError, ValueError):
        return None


def seconds(at: datetime | None) -> float | None:
    """A datetime as epoch seconds, exact to the microsecond."""
    return None if at is None else (at - _EPOCH) / timedelta(microseconds=1) / 1_000_000


def keepable(value: Any) -> Any:
    """Strings, and strings in containers, without what Postgres refuses: NUL and lone surrogates become U+FFFD."""
    if isinstance(value, str):
        return _REFUSED.sub("\ufffd", value) if _REFUSED.search(value) else value
    if isinstance(value, dict):
        return {keepable(key): keepable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [keepable(item) for item in value]
    return value


def short(value: str | None, length: int) -> str:
    """A string that fits a column."""
    text = keepable(value or "")
    return text if len(text) <= length else text[: length - 1] + "\u2026"


def told(value: str | None, length: int) -> str:
    """What somebody else says, be it a scheduler, a source or a person: its secrets hidden, and short enough."""
    return short(mask_text(keepable(value)) if value else "", length)


def told_tree(value: Any) -> Any:
    """The same for every string in containers, at any length. Keys stay."""
    if isinstance(value, str):
        return mask_text(keepable(value))
    if isinstance(value, dict):
        return {key: told_tree(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [told_tree(item) for item in value]
    return value


def engine_attempt(attempt: Attempt) -> engine.Attempt:
    """What the engine needs to know of an attempt. Its workload and cluster should be loaded."""
    workload = attempt.workload
    return engine.Attempt(
        workload=engine.Workload(
            id=workload.workload_id,
            name=workload.name,
            scheduler=workload.scheduler,
            cluster=attempt.cluster.name,
            user=workload.user,
            queue=workload.queue,
        ),
        number=attempt.number,
        state=attempt.state,
        exit_code=attempt.exit_code,
        reason=attempt.reason,
        started_at=seconds(attempt.started_at),
        ended_at=seconds(attempt.ended_at),
        nodes=tuple(attempt.nodes),
        gpus_per_node=attempt.gpus_per_node,
    )
