"""File access that never leaves its roots, whatever links, `..` and odd names lie inside."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from connectors.base import ConnectorError
from engine.bundle import ARCHIVES

ATTEMPT_FILE = "attempt.yaml"


class Roots:
    """Named folders. A ref is `<root>:<path below it>`; what it resolves to lies inside the root, or it is refused."""

    def __init__(self, roots: Mapping[str, Path]) -> None:
        self._roots = {name: Path(os.path.abspath(path)) for name, path in roots.items()}

    def resolve(self, ref: str) -> Path:
        """The real path of a ref. Raises ConnectorError for an unknown root and for anything outside of it."""
        name, separator, relative = ref.partition(":")
        root = self._roots.get(name)
        if not separator or root is None:
            raise ConnectorError(f"{ref}: no configured root is called {name!r}")
        if "\x00" in relative or os.path.isabs(relative):
            raise ConnectorError(f"{ref}: not a path below root {name!r}")
        real_root = os.path.realpath(root)
        real = os.path.realpath(os.path.join(real_root, relative))
        if os.path.commonpath([real_root, real]) != real_root:
            raise ConnectorError(f"{ref}: leads out of root {name!r}")
        if not os.path.lexists(real):
            raise ConnectorError(f"{ref}: no such file or folder")
        return Path(real)

    def bundles(self, name: str) -> Iterator[tuple[str, Path]]:
        """The capture bundles directly in a root, as (ref, path), by name: archives, and folders with an attempt.yaml.

        Hidden names and links that lead out are passed over. Raises ConnectorError when the root can't be listed.
        """
        root = self._roots[name]
        try:
            names = sorted(os.listdir(root))
        except OSError as error:
            raise ConnectorError(f"{root}: {error.strerror}", temporary=True) from None
        for entry in names:
            if entry.startswith("."):
                continue
            ref = f"{name}:{entry}"
            try:
                path = self.resolve(ref)
            except ConnectorError:
                continue
            if (path.is_file() and entry.endswith(ARCHIVES)) or (path / ATTEMPT_FILE).is_file():
                yield ref, path


def content_key(path: Path) -> str:
    """Size and change time of a file, or of everything in a folder: changes when the content does. Cheap, no
    reading.
    """
    if path.is_file():
        facts = path.stat()
        return f"{facts.st_size}-{facts.st_mtime_ns}"
    files, size, newest = 0, 0, 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                facts = os.lstat(os.path.join(folder, name))
            except FileNotFoundError:
                continue
            files, size, newest = files + 1, size + facts.st_size, max(newest, facts.st_mtime_ns)
    return f"{files}-{size}-{newest}"
