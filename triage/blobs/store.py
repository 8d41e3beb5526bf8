"""Blobs in a folder, named by what they hold, written so that a reader never sees half of one."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from triage.blobs.reader import BlobError, BlobReader, open_stream
from triage.blobs.writer import write_blob

_KEY = re.compile(r"[0-9a-f]{2}/[0-9a-f]{64}\.zst")


@dataclass(frozen=True)
class StoredBlob:
    """A blob in the store."""

    key: str
    size: int
    """Bytes of the stream."""
    lines: int
    sha256: str
    """Of the stream as stored."""


class BlobStore:
    """A folder of blobs, shared by all processes that can reach it."""

    def __init__(self, folder: Path, *, hide: Callable[[bytes], bytes] | None = None) -> None:
        """`hide` masks what is read, at equal length: what was stored before a kind of secret was known."""
        self._folder, self._hide = folder, hide

    def put(
        self,
        source: BinaryIO,
        *,
        mask: Callable[[bytes], bytes] | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> StoredBlob:
        """Stores a stream; the same bytes again give the same key. Errors of `source` pass through and leave
        nothing.
        """
        drafts = self._folder / "drafts"
        drafts.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, draft = tempfile.mkstemp(dir=drafts)
        try:
            with os.fdopen(handle, "wb") as target:
                written = write_blob(source, target, mask=mask, progress=progress)
                target.flush()
                os.fsync(target.fileno())
            key = f"{written.sha256[:2]}/{written.sha256}.zst"
            place = self._folder / key
            place.parent.mkdir(exist_ok=True, mode=0o700)
            os.replace(draft, place)
            _sync_folder(place.parent)
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise
        return StoredBlob(key, written.size, written.lines, written.sha256)

    def reader(self, key: str) -> BlobReader:
        """Opens a blob for reading lines. Raises BlobError."""
        return BlobReader(self._path(key), self._hide)

    def open(self, key: str) -> BinaryIO:
        """The whole stream of a blob. Raises BlobError."""
        return open_stream(self._path(key), self._hide)

    def has(self, key: str) -> bool:
        """Whether the blob is there."""
        return bool(_KEY.fullmatch(key)) and self._path(key).is_file()

    def remove(self, key: str) -> None:
        """Removes a blob; nothing happens when it is gone already."""
        self._path(key).unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        if not _KEY.fullmatch(key):
            raise BlobError("not the key of a blob")
        return self._folder / key


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
