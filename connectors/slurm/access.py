"""Reading what jobs wrote, through allowed folders only.

Paths come from job scripts, so whoever submits a job chooses them: what a path really leads to, after every link, must
lie in an allowed folder, be a plain file, and belong to the job's user.
"""

from __future__ import annotations

import errno
import io
import os
import posixpath
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, cast

MAX_LISTED = 20_000


class Refused(Exception):
    """A file is not read; why, in words."""


class Roots:
    """(folder as the cluster names it, folder here) pairs."""

    def __init__(self, roots: Sequence[tuple[str, Path]]) -> None:
        self._roots = tuple(roots)
        self._real = tuple(os.path.realpath(here) for _, here in roots)

    def __bool__(self) -> bool:
        return bool(self._roots)

    def local(self, path: str) -> Path:
        """Where a path of the cluster is here. Raises Refused when no root holds it."""
        plain = posixpath.normpath(path)
        for there, here in self._roots:
            if plain == there or plain.startswith(there.rstrip("/") + "/"):
                return here / plain[len(there) :].lstrip("/")
        raise Refused(f"{path} lies outside of the allowed folders: add its folder to roots to have it read")

    def open(self, path: Path, owner: int | None = None) -> BinaryIO:
        """Opens a file for reading. What is checked is what was opened, whatever happens to the path meanwhile.
        Raises Refused.
        """
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError as error:
            raise Refused(_why(path, error)) from None
        try:
            facts = os.fstat(descriptor)
            if not stat.S_ISREG(facts.st_mode):
                raise Refused(f"{path} is no plain file")
            if not self._inside(descriptor, path):
                raise Refused(f"{path} is a link that leads out of the allowed folders and was not followed")
            if owner is not None and facts.st_uid != owner:
                raise Refused(
                    f"{path} belongs to user {facts.st_uid} and not to the job's user {owner}: it was not read "
                    "(check_owner = false allows it)"
                )
            return io.BufferedReader(cast(io.RawIOBase, os.fdopen(descriptor, "rb", buffering=0)), 1 << 16)
        except BaseException:
            os.close(descriptor)
            raise

    def matching(self, parts: Sequence[str | re.Pattern[str]]) -> Iterator[tuple[Path, dict[str, str]]]:
        """Files along a path whose components are names or patterns, with what the patterns' groups hold.

        A folder that a link leads out to is listed as little as a file there is read. Raises Refused.
        """
        names = [part if isinstance(part, str) else "*" for part in parts]
        base = list(parts[: next((i for i, part in enumerate(parts) if not isinstance(part, str)), len(parts))])
        start = self.local("/" + "/".join(cast(list[str], base)))
        rest = parts[len(base) :]
        if not rest:
            yield start, {}
            return
        listed = 0
        folders: list[tuple[Path, dict[str, str]]] = [(start, {})]
        for level, part in enumerate(rest):
            found: list[tuple[Path, dict[str, str]]] = []
            for folder, groups in folders:
                if isinstance(part, str):
                    found.append((folder / part, groups))
                    continue
                for name in self._list(folder):
                    listed += 1
                    if listed > MAX_LISTED:
                        raise Refused(f"/{'/'.join(names)}: more than {MAX_LISTED} names to look through")
                    match = part.fullmatch(name)
                    if match and all(groups.get(k, v) == v for k, v in match.groupdict().items()):
                        found.append((folder / name, {**groups, **match.groupdict()}))
            folders = found
            if level < len(rest) - 1:
                folders = [one for one in folders if one[0].is_dir()]
        yield from folders

    def _list(self, folder: Path) -> list[str]:
        real = os.path.realpath(folder)
        if not any(_within(real, root) for root in self._real):
            raise Refused(f"{folder} is a link that leads out of the allowed folders and was not followed")
        try:
            return sorted(os.listdir(real))
        except OSError as error:
            raise Refused(_why(folder, error)) from None

    def _inside(self, descriptor: int, path: Path) -> bool:
        try:
            real = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:  # no /proc: compare what the path leads to now with what was opened
            real = os.path.realpath(path)
            there, opened = os.stat(real, follow_symlinks=False), os.fstat(descriptor)
            if (there.st_dev, there.st_ino) != (opened.st_dev, opened.st_ino):
                return False
        return any(_within(real, root) for root in self._real)


def _within(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


def _why(path: Path, error: OSError) -> str:
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return f"{path} does not exist here: it was removed, never written, or its file system is not mounted here"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{path} may not be read by the user that Faultline runs as: give it read access (an ACL or a group)"
    return f"{path}: {error.strerror or error}"
