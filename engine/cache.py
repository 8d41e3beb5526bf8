"""A small cache on disk for what is slow to make and safe to lose: parsed rule packs and compiled scanner databases.

Folder: ``FAULTLINE_CACHE``, else ``$XDG_CACHE_HOME/faultline``, else ``~/.cache/faultline``. Every failure to read
or write is harmless: the thing is made again.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def folder() -> Path:
    explicit = os.environ.get("FAULTLINE_CACHE")
    if explicit:
        return Path(explicit)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path(os.path.expanduser("~")) / ".cache") / "faultline"


def get_bytes(name: str) -> bytes | None:
    try:
        return (folder() / name).read_bytes()
    except OSError:
        return None


def put_bytes(name: str, content: bytes) -> None:
    with contextlib.suppress(OSError):
        folder().mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder())
        with os.fdopen(handle, "wb") as out:
            out.write(content)
        os.replace(temporary, folder() / name)


def get(name: str, shape: type[T]) -> T | None:
    content = get_bytes(f"{name}.msgpack")
    if content is None:
        return None
    try:
        return msgspec.msgpack.decode(content, type=shape)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None


def put(name: str, value: Any) -> None:
    put_bytes(f"{name}.msgpack", msgspec.msgpack.encode(value))
