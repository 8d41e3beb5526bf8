"""A row that names a blob and the removal of that blob never pass each other.

Whoever names blobs holds them until the commit and looks whether they are there; whoever removes one keeps the others
out while it looks for rows and removes the file. So either the row is seen and the blob stays, or no row is written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from django.conf import settings
from django.db import connection, transaction

from triage.blobs import BlobError, BlobStore

_LOCK = 120
"""One for all blobs: an attempt may name more of them than the server has room for locks."""


def hold_blobs(keys: Collection[str]) -> None:
    """Until the transaction ends none of these is removed. Raises BlobError when one is gone already."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock_shared(%s)", [_LOCK])
    store = BlobStore(settings.FAULTLINE_DATA_DIR / "blobs")
    for key in keys:
        if not store.has(key):
            raise BlobError(f"{key} was removed while it was collected")


@contextmanager
def removing_blobs() -> Iterator[None]:
    """Waits for those who are naming blobs; nobody names one until it is left."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        yield
