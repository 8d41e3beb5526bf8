"""What tasks do while the database is away."""

from __future__ import annotations

from typing import Any

from django.db import InterfaceError, OperationalError

RETRY: dict[str, Any] = {
    "autoretry_for": (OperationalError, InterfaceError),
    "retry_backoff": True,
    "retry_backoff_max": 60,
    "max_retries": 8,
}
