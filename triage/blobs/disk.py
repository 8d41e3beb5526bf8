"""What a power cut must not undo."""

from __future__ import annotations

import os
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Names of files that are new in the folder are on the disk when this returns, as fsync() does for what is in them.
    Raises OSError.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def put_in_place(draft: Path, place: Path) -> None:
    """Gives a written file its name, instead of what had it; bytes and name are on the disk when this returns. Raises
    OSError.
    """
    with draft.open("rb") as written:
        os.fsync(written.fileno())
    os.replace(draft, place)
    sync_folder(place.parent)


def make_folders(folder: Path, below: Path) -> None:
    """Makes a folder and those above it, of which `below` is there; all of them are on the disk when this returns.
    Raises OSError.
    """
    missing = [one for one in (folder, *folder.parents) if below in one.parents and not one.is_dir()]
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for one in missing:
        sync_folder(one.parent)
