"""The spool: received bundles, named by their content, kept until their streams are in the blob store."""

from __future__ import annotations

import hashlib
import os
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO

from engine.bundle import ARCHIVES
from triage.blobs.disk import put_in_place
from triage.services.folders import private_folder

ROOT = "spool"
"""Name of the spool's folder among the roots of the files connector."""
PACKED = ".tar"
"""How folders and loose files are packed: for minutes only, so compressing them isn't worth the time."""
_BLOCK = 1 << 20


class SpoolError(ValueError):
    """Something can't be received; one line."""


@dataclass(frozen=True)
class Spooled:
    """A bundle in the spool."""

    ref: str
    """For the files connector."""
    path: Path
    sha256: str


def folder() -> Path:
    """The spool's folder; only the service's own user may look into it."""
    return private_folder("spool")


def archive_suffix(name: str) -> str:
    """The archive suffix of a file name. Raises SpoolError when it has none."""
    for suffix in sorted(ARCHIVES, key=len, reverse=True):
        if name.lower().endswith(suffix):
            return suffix
    raise SpoolError(f"not an archive: {', '.join(ARCHIVES)}")


@contextmanager
def draft(suffix: str = PACKED) -> Iterator[Path]:
    """A new file in the spool, removed at the end unless it was kept."""
    handle, name = tempfile.mkstemp(dir=folder(), prefix=".draft-", suffix=suffix)
    os.close(handle)
    try:
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def keep(path: Path) -> Spooled:
    """Takes a complete draft into the spool under the name of its content."""
    content_hash = sha256(path)
    name = content_hash + archive_suffix(path.name)
    place = folder() / name
    put_in_place(path, place)
    return Spooled(f"{ROOT}:{name}", place, content_hash)


def sha256(path: Path) -> str:
    """Of a file's content, hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as content:
        while block := content.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def discard(ref: str) -> None:
    """Removes a bundle from the spool; nothing happens when it is gone, or when the ref is of another root."""
    root, _, name = ref.partition(":")
    if root == ROOT and name == PurePosixPath(name).name:
        (folder() / name).unlink(missing_ok=True)


def copy(source: IO[bytes], target: Path, limit: int) -> int:
    """Copies a file into a draft. Raises SpoolError when it is larger than `limit` bytes."""
    size = 0
    with target.open("wb") as out:
        while block := source.read(_BLOCK):
            size += len(block)
            if size > limit:
                raise SpoolError(f"larger than {limit} bytes")
            out.write(block)
    return size


def pack_folder(bundle: Path, target: Path) -> None:
    """Packs a bundle's folder as a .tar; the same files give the same bytes. Raises SpoolError.

    Labels (expected.yaml), hidden files and links are left out.
    """
    with _packed(target) as tar:
        for path in sorted(bundle.rglob("*"), key=lambda path: path.relative_to(bundle).as_posix()):
            name = path.relative_to(bundle)
            if path.is_symlink() or not path.is_file() or name.as_posix() == "expected.yaml":
                continue
            if any(part.startswith(".") for part in name.parts):
                continue
            try:
                with path.open("rb") as content:
                    _add(tar, name.as_posix(), content, path.stat().st_size)
            except OSError as error:
                raise SpoolError(f"{name}: {error.strerror}") from None


def pack_files(members: list[tuple[str, BinaryIO, int]], target: Path) -> None:
    """Packs (name, content, size) as a .tar, by name. Names must be relative and unique."""
    with _packed(target) as tar:
        for name, content, size in sorted(members, key=lambda member: member[0]):
            content.seek(0)
            _add(tar, name, content, size)


@contextmanager
def _packed(target: Path) -> Iterator[tarfile.TarFile]:
    with tarfile.open(target, mode="w", format=tarfile.PAX_FORMAT) as tar:
        yield tar


def _add(tar: tarfile.TarFile, name: str, content: IO[bytes], size: int) -> None:
    info = tarfile.TarInfo(str(PurePosixPath(name)))
    info.size, info.mode = size, 0o600
    tar.addfile(info, content)
