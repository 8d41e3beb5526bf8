"""Where what was received lies until it is read."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings


def private_folder(name: str) -> Path:
    """A folder of the data directory that only the service's own user may look into. Raises OSError."""
    path: Path = settings.FAULTLINE_DATA_DIR / name
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path
