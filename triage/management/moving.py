"""What `export_instance` and `import_instance` have in common: how it ended, in words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from django.core.management.base import CommandError

from triage.services.instance import InstanceRefused


def moved(path: Path, move: Callable[[], dict[str, int]]) -> str:
    """Moves rows and streams, and says how many. Raises CommandError."""
    try:
        counts = move()
    except InstanceRefused as error:
        raise CommandError(str(error)) from None
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from None
    rows = sum(count for name, count in counts.items() if name != "blobs")
    return f"{path}: {rows} rows, {counts.get('blobs', 0)} streams"
