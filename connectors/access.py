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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

MAX_LISTED = 20_000
MAX_DEPTH = 8
"""Folders that ANY_FOLDERS goes down."""


class Choices(msgspec.Struct, frozen=True):
    """Names that one part of a path may have, each with what it tells."""

    names: dict[str, dict[str, str]]


class AnyFolders(msgspec.Struct, frozen=True):
    """Any number of folders, none included."""


ANY_FOLDERS = AnyFolders()
Part = str | re.Pattern[str] | Choices | AnyFolders


class Refused(Exception):
    """A file is not read; why, in words."""


def why_not_listed(folder: Path) -> str:
    """Why a folder can't be looked into, after its name; empty when it can."""
    try:
        next(iter(folder.iterdir()), None)
    except FileNotFoundError:
        return "does not exist here: create it, mount its file system, or correct roots"
    except PermissionError:
        return "may not be read by the user that Faultline runs as: give it read access (an ACL or a group)"
    except NotADirectoryError:
        return "is no folder: correct roots"
    except OSError as error:
        return f"can not be listed: {error.strerror or error}"
    return ""


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

    def matching(
        self, parts: Sequence[Part], refused: Callable[[Refused], None] | None = None
    ) -> Iterator[tuple[Path, dict[str, str]]]:
        """Files along a path, name by name, with what its patterns' groups and its choices hold.

        A folder that a link leads out to is listed as little as a file there is read. Raises Refused; with `refused`
        only when the whole path can't be looked for, while a folder that can't be listed is told there.
        """
        fixed = next((i for i, part in enumerate(parts) if not isinstance(part, str)), len(parts))
        start = self.local("/" + "/".join(cast(Sequence[str], parts[:fixed])))
        if fixed == len(parts):
            yield start, {}
            return
        listing = _Listing(self, "/".join(part if isinstance(part, str) else "*" for part in parts), refused)
        found: list[tuple[Path, dict[str, str]]] = [(start, {})]
        for level, part in enumerate(parts[fixed:], fixed + 1):
            found = [one for folder, groups in found for one in listing.below(folder, groups, part)]
            if level < len(parts):
                found = [one for one in found if one[0].is_dir()]
        yield from found

    def list(self, folder: Path) -> list[str]:
        """The names in a folder. Raises Refused."""
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


class _Listing:
    """Looks through folders for one pattern, up to MAX_LISTED names."""

    def __init__(self, roots: Roots, shown: str, refused: Callable[[Refused], None] | None) -> None:
        self._roots, self._shown, self._refused, self._listed = roots, shown, refused, 0

    def below(self, folder: Path, groups: dict[str, str], part: Part) -> Iterator[tuple[Path, dict[str, str]]]:
        """What `part` stands for in a folder."""
        match part:
            case str():
                yield folder / part, groups
            case AnyFolders():
                yield from ((deeper, groups) for deeper in self._down(folder, MAX_DEPTH))
            case Choices(names):
                for name, told in names.items():
                    if _agrees(groups, told) and os.path.lexists(folder / name):
                        yield folder / name, {**groups, **told}
            case _:
                for name in self._names(folder):
                    found = part.fullmatch(name)
                    if found and _agrees(groups, found.groupdict()):
                        yield folder / name, {**groups, **found.groupdict()}

    def _down(self, folder: Path, depth: int) -> Iterator[Path]:
        yield folder
        for name in self._names(folder) if depth else ():
            below = folder / name
            if not name.startswith(".") and below.is_dir() and not below.is_symlink():
                yield from self._down(below, depth - 1)

    def _names(self, folder: Path) -> Iterator[str]:
        try:
            names = self._roots.list(folder)
        except Refused as refusal:
            if self._refused is None:
                raise
            self._refused(refusal)
            return
        for name in names:
            self._listed += 1
            if self._listed > MAX_LISTED:
                raise Refused(f"/{self._shown}: more than {MAX_LISTED} names to look through")
            yield name


def _agrees(groups: dict[str, str], told: dict[str, str]) -> bool:
    return all(groups.get(key, value) == value for key, value in told.items())


def _within(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


def _why(path: Path, error: OSError) -> str:
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return f"{path} does not exist here: it was removed, never written, or its file system is not mounted here"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{path} may not be read by the user that Faultline runs as: give it read access (an ACL or a group)"
    return f"{path}: {error.strerror or error}"
