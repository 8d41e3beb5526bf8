"""Blobs in a folder, named by what they hold, written so that a reader never sees half of one."""

from __future__ import annotations

import os
import re
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from triage.blobs.disk import make_folders, sync_folder
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
        if not drafts.is_dir():
            make_folders(drafts, self._folder.parent)
        handle, draft = tempfile.mkstemp(dir=drafts)
        try:
            with os.fdopen(handle, "wb") as target:
                written = write_blob(source, target, mask=mask, progress=progress)
                target.flush()
                os.fsync(target.fileno())
            key = f"{written.sha256[:2]}/{written.sha256}.zst"
            place = self._folder / key
            make_folders(place.parent, self._folder)
            os.replace(draft, place)
            sync_folder(place.parent)
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise
        return StoredBlob(key, written.size, written.lines, written.sha256)

    def reader(self, key: str) -> BlobReader:
        """Opens a blob for reading lines. Raises BlobError."""
        return BlobReader(self.path(key), self._hide)

    def open(self, key: str) -> BinaryIO:
        """The whole stream of a blob. Raises BlobError."""
        return open_stream(self.path(key), self._hide)

    def has(self, key: str) -> bool:
        """Whether the blob is there."""
        return bool(_KEY.fullmatch(key)) and self.path(key).is_file()

    def stored_bytes(self, key: str) -> int:
        """Bytes of a blob's file; 0 when it is gone."""
        try:
            return self.path(key).stat().st_size
        except FileNotFoundError:
            return 0

    def age(self, key: str, now: float) -> float:
        """Seconds since a blob was written; 0 when it is gone."""
        try:
            return now - self.path(key).stat().st_mtime
        except FileNotFoundError:
            return 0.0

    def list_keys(self) -> Iterator[str]:
        """Every blob in the store."""
        for folder in sorted(self._folder.glob("[0-9a-f][0-9a-f]")):
            for path in sorted(folder.iterdir()):
                if _KEY.fullmatch(key := f"{folder.name}/{path.name}"):
                    yield key

    def remove(self, key: str, *, unless_newer_than: float = 0) -> bool:
        """Removes a blob, unless it was written within so many seconds. False when nothing was removed.

        Looked at, set aside and looked at again: one that is written anew in between is put back. Nobody may begin to
        name it meanwhile: see `triage.services.blob_locks`.
        """
        place, drafts = self.path(key), self._folder / "drafts"
        drafts.mkdir(parents=True, exist_ok=True, mode=0o700)
        aside = drafts / f"removed-{uuid.uuid4().hex}"
        os.utime(drafts)
        now = drafts.stat().st_mtime  # by the clock that dates the blobs: it may be a file server's
        try:
            if now - place.stat().st_mtime < unless_newer_than:
                return False
            os.rename(place, aside)
        except FileNotFoundError:
            return False
        if now - aside.stat().st_mtime < unless_newer_than:
            os.rename(aside, place)
            sync_folder(place.parent)
            return False
        aside.unlink()
        return True

    def remove_drafts(self, *, older_than: float) -> int:
        """Removes what writers that were killed left half written; those at work write again and again. Returns how
        many files went.
        """
        gone = 0
        for draft in (self._folder / "drafts").glob("*"):
            with suppress(OSError):  # finished meanwhile, or nothing can be removed now
                if time.time() - draft.stat().st_mtime > older_than:
                    draft.unlink()
                    gone += 1
        return gone

    def path(self, key: str) -> Path:
        """Where the file of a blob is, or would be. Raises BlobError for what is no key."""
        if not _KEY.fullmatch(key):
            raise BlobError("not the key of a blob")
        return self._folder / key
