"""What an administrator says about folders: where bundles appear, and where logs of attempts lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from connectors.base import ConfigError
from connectors.files.patterns import PathPattern
from connectors.values import amount, flag, named, number, only, path, text, words, zone
from engine.model import Source

_KEYS = {"name", "roots", "watch", "patterns", "timezone", "time_limit", "spool_dir"}
_PATTERN_KEYS = {"source", "path", "cut", "before", "after"}
SOURCES = tuple(source.value for source in Source if source is not Source.METRIC)
OF_NODES = {Source.SYSLOG.value, Source.SCHEDULER.value}
"""Sources whose files go on over many attempts, so that they are cut to the window."""


class FilePattern(msgspec.Struct, frozen=True, kw_only=True):
    """Files of one source."""

    source: Source
    path: PathPattern
    cut: bool
    before: float
    after: float
    """Seconds around the attempt that are kept of a file that is cut."""


class FilesConfig(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    roots: dict[str, Path] = {}
    """By the name that refs and patterns use."""
    watch: tuple[str, ...] = ()
    """Roots in which bundles appear."""
    patterns: tuple[FilePattern, ...] = ()
    timezone: ZoneInfo | None = None
    """Of lines that name none."""
    time_limit: float = 600.0
    spool_dir: Path | None = None

    @classmethod
    def parse(cls, config: Mapping[str, Any]) -> FilesConfig:
        """From plain values. Raises ConfigError."""
        name, where = named(config, "files", _KEYS)
        roots = config.get("roots", {})
        if not isinstance(roots, Mapping) or not all(isinstance(folder, str | Path) for folder in roots.values()):
            raise ConfigError(f"{where}: roots must map names to folders")
        if any(not key or ":" in key or "/" in key for key in roots):
            raise ConfigError(f"{where}: roots: a name is empty or holds a colon or slash")
        watch = words(config, "watch", where, "names of roots")
        missing = [entry for entry in watch if entry not in roots]
        if missing:
            raise ConfigError(f"{where}: watch: {missing[0]!r} is not one of its roots")
        patterns = config.get("patterns", [])
        if not isinstance(patterns, Sequence) or isinstance(patterns, str):
            raise ConfigError(f"{where}: patterns: must be tables with source and path")
        return cls(
            name=name,
            roots={key: Path(folder) for key, folder in roots.items()},
            watch=watch,
            patterns=tuple(
                _pattern(entry, tuple(roots), f"{where}: patterns[{index}]") for index, entry in enumerate(patterns)
            ),
            timezone=zone(config, "timezone", where),
            time_limit=number(config, "time_limit", 600.0, where),
            spool_dir=path(config, "spool_dir", where),
        )


def _pattern(entry: object, roots: Sequence[str], where: str) -> FilePattern:
    if not isinstance(entry, Mapping):
        raise ConfigError(f"{where}: must have source and path")
    only(entry, _PATTERN_KEYS, where)
    source = entry.get("source")
    if source not in SOURCES:
        raise ConfigError(f"{where}: source: must be one of {', '.join(SOURCES)}")
    written = text(entry, "path", where)
    if not written:
        raise ConfigError(f"{where}: path: is missing")
    return FilePattern(
        source=Source(source),
        path=PathPattern.parse(written, roots, f"{where}: path"),
        cut=flag(entry, "cut", source in OF_NODES, where),
        before=amount(entry, "before", 900.0, where),
        after=amount(entry, "after", 600.0, where),
    )
