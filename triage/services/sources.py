"""The connectors of this installation, by its settings."""

from __future__ import annotations

from functools import cache

from django.conf import settings

from connectors.registry import Registry
from triage.blobs import BlobStore
from triage.services import spool


@cache
def registry() -> Registry:
    """The connectors that are set up. Raises ConfigError."""
    watched = {f"watch{number}": path for number, path in enumerate(settings.FAULTLINE_WATCH)}
    return Registry.from_config({"files": {"roots": {spool.ROOT: spool.folder(), **watched}, "watch": list(watched)}})


def blob_store() -> BlobStore:
    """Where raw streams are kept."""
    return BlobStore(settings.FAULTLINE_DATA_DIR / "blobs")
