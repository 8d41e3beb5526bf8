"""Where what was received lies until it is read."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings

from triage.blobs.disk import make_folders


def private_folder(name: str) -> Path:
    """A folder of the data directory that only the service's own user may look into. Raises OSError."""
    path: Path = settings.FAULTLINE_DATA_DIR / name
    if not path.is_dir():
        make_folders(path, settings.FAULTLINE_DATA_DIR)
    return path
