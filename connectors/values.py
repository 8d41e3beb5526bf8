"""Single values of a connector's configuration, each checked where it is read. Errors name connector and key."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from connectors.base import ConfigError

MOST = 1e15
"""The largest number that makes sense for anything; infinity and not-a-number are none."""


def named(config: Mapping[str, Any], kind: str, keys: Iterable[str]) -> tuple[str, str]:
    """The connector's name (its kind, when it has none), and how errors begin. Raises ConfigError for a key that isn't
    one of `keys`.
    """
    name = str(config.get("name", kind))
    where = f"connector {name}"
    only(config, keys, where)
    return name, where


def only(config: Mapping[str, Any], keys: Iterable[str], where: str) -> None:
    """Raises ConfigError for a key that isn't one of `keys`."""
    unknown = sorted(set(config) - set(keys))
    if unknown:
        raise ConfigError(f"{where}: unknown key {unknown[0]!r}")


def path(config: Mapping[str, Any], key: str, where: str) -> Path | None:
    """A path that may be absent. Raises ConfigError."""
    value = text(config, key, where)
    return Path(value) if value else None


def flag(config: Mapping[str, Any], key: str, default: bool, where: str) -> bool:
    """A yes or no. Raises ConfigError."""
    value = config.get(key, default)
    if not isinstance(value, bool):
        raise ConfigError(f"{where}: {key}: must be true or false")
    return value


def checked_url(value: object, where: str) -> str:
    """An http(s) address without user, query and trailing slash. Raises ConfigError."""
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{where}: is missing")
    try:
        parts = urllib.parse.urlsplit(value)
        if "@" in parts.netloc:
            raise ConfigError(f"{where}: holds a user or password; use username and password = env:NAME or file:PATH")
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
        usable = usable and not parts.query and not parts.fragment
    except ConfigError:
        raise
    except ValueError:
        usable = False
    if not usable or re.search(r"[\s\x00-\x1f]", value):
        raise ConfigError(f"{where}: must be like https://host:port/path")
    return value.rstrip("/")


def text(config: Mapping[str, Any], key: str, where: str) -> str | None:
    """A string that may be absent. Raises ConfigError."""
    value = config.get(key)
    if value is None or (isinstance(value, str) and value and "\0" not in value):
        return value
    raise ConfigError(f"{where}: {key}: must be a text")


def words(config: Mapping[str, Any], key: str, where: str, what: str, default: Sequence[str] = ()) -> tuple[str, ...]:
    """A list of texts; `what` they are, for people. Raises ConfigError."""
    value = config.get(key, default)
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(w, str) and w for w in value):
        raise ConfigError(f"{where}: {key}: must be a list of {what}")
    return tuple(value)


def number(config: Mapping[str, Any], key: str, default: float, where: str, least: float = 0.0) -> float:
    """A number above `least`, or at it when that is not 0. Raises ConfigError."""
    value = config.get(key, default)
    if not _is_number(value) or value < least or (not least and value <= 0):
        raise ConfigError(f"{where}: {key}: must be a number {'from ' + format(least, 'g') if least else 'above 0'}")
    return float(value)


def amount(config: Mapping[str, Any], key: str, default: float, where: str) -> float:
    """A number that may be 0. Raises ConfigError."""
    value = config.get(key, default)
    if not _is_number(value) or value < 0:
        raise ConfigError(f"{where}: {key}: must be a number from 0")
    return float(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MOST


def zone(config: Mapping[str, Any], key: str, where: str) -> ZoneInfo | None:
    """A time zone by its name, that may be absent. Raises ConfigError."""
    name = text(config, key, where)
    if name is None:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigError(f"{where}: {key}: {name!r} is no time zone, like Europe/Zurich") from None
