"""Times of the Kubernetes API."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

SLACK = 120.0
"""Seconds that a pod may be created before its workload counts as admitted."""


def parse(value: Any) -> float | None:
    """A time of the API (RFC 3339) in epoch seconds; None for anything else."""
    if not isinstance(value, str):
        return None
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        return None
    return at.timestamp() if at.tzinfo is not None else None


def rfc3339_seconds(at: float) -> str:
    """As the API takes times: in whole seconds, rounded down."""
    return datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def in_window(pod: Mapping[str, Any], started: float | None, ended: float | None) -> bool:
    """Was a pod there during an attempt? Pods of a later admission have the same labels."""
    created = parse((pod.get("metadata") or {}).get("creationTimestamp"))
    if created is None:
        return True
    return (ended is None or created <= ended) and (started is None or created >= started - SLACK)
