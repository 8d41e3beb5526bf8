"""`faultline.toml`: the clusters and their sources. Read and checked whole; every error names file, table and key.

Pure Python: connectors and settings are made of it, no database is needed.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from connectors.base import ConfigError, Connector
from connectors.registry import FACTORIES
from connectors.slurm.parser import ENDED_STATES
from connectors.values import MOST

FILE = "faultline.toml"
PREFIX = "FAULTLINE_CLUSTERS__"
"""Environment variables FAULTLINE_CLUSTERS__<cluster>__sources__<source>__<key> set or replace single values."""
FINDERS = frozenset({"slurm", "kueue", "files"})
"""Kinds of sources that can find attempts; the others only collect."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|d)?")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, None: 1}
_CLUSTER_KEYS = {"sources", "time_zone", "recollect_after", "live"}


class SourceConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One source of a cluster."""

    cluster: str
    name: str
    kind: str
    values: dict[str, Any]

    @property
    def key(self) -> str:
        """Its name among all connectors."""
        return f"{self.cluster}/{self.name}"

    @property
    def finds(self) -> bool:
        """Whether attempts are searched for in it."""
        return self.kind in FINDERS and (self.kind != "files" or bool(self.values.get("watch")))

    @property
    def collects(self) -> bool:
        """Whether it may have something of an attempt that another source found."""
        return self.kind not in FINDERS or (self.kind == "files" and bool(self.values.get("patterns")))

    def connector(self) -> Connector:
        """Raises ConfigError."""
        return FACTORIES[self.kind]({"name": self.name, **self.values})


class ClusterConfig(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    sources: tuple[SourceConfig, ...] = ()
    time_zone: str = "UTC"
    recollect_after: float = 900.0
    """Seconds after its end at which an attempt's sources are asked once more; 0: never."""
    live: float = 1800.0
    """Seconds between looks at a running attempt; 0: never."""

    def source(self, name: str) -> SourceConfig | None:
        return next((source for source in self.sources if source.name == name), None)


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """All of it. What is wrong is in `errors`, a line each; the rest can be used."""

    path: str = ""
    clusters: dict[str, ClusterConfig] = {}
    errors: tuple[str, ...] = ()


def config_path(base: Path) -> Path | None:
    """FAULTLINE_CONFIG; else faultline.toml in the project's folder, or in /etc/faultline; None when there is none."""
    named = os.environ.get("FAULTLINE_CONFIG")
    if named:
        return Path(named)
    return next((path for path in (base / FILE, Path("/etc/faultline") / FILE) if path.is_file()), None)


def load(path: Path | None, environment: Mapping[str, str] | None = None) -> Configuration:
    """The file with the environment's changes. Never raises: errors are a part of what is returned."""
    environment = os.environ if environment is None else environment
    shown = str(path) if path is not None else "environment"
    try:
        document = _read(path) if path is not None else {}
        _apply(document, environment)
    except ConfigError as error:
        return Configuration(path=shown, errors=(str(error),))
    return check(document, shown)


def check(document: Mapping[str, Any], shown: str) -> Configuration:
    """What stands in a document; `shown` is what it is called in errors. Never raises."""
    errors: list[str] = []
    unknown = sorted(set(document) - {"clusters"})
    errors += [f"{shown}: unknown table or key {key!r}: clusters are [clusters.NAME]" for key in unknown]
    clusters: dict[str, ClusterConfig] = {}
    tables = document.get("clusters", {})
    if not isinstance(tables, dict):
        return Configuration(path=shown, errors=(*errors, f"{shown}: clusters: must be tables, [clusters.NAME]"))
    for name, table in tables.items():
        found = _cluster(name, table, shown, errors)
        if found is not None:
            clusters[name] = found
    return Configuration(path=shown, clusters=clusters, errors=tuple(errors))


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8") from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None


def _apply(document: dict[str, Any], environment: Mapping[str, str]) -> None:
    """FAULTLINE_CLUSTERS__C1__SOURCES__LOKI__URL=... into the tables. Names match in any case, with _ for - and dot."""
    for variable in sorted(environment):
        if not variable.upper().startswith(PREFIX):
            continue
        parts = variable[len(PREFIX) :].split("__")
        if len(parts) < 2 or not all(parts):
            raise ConfigError(f"{variable}: must be like {PREFIX}C1__SOURCES__LOKI__URL")
        table = document.setdefault("clusters", {})
        for part in parts[:-1]:
            table = table.setdefault(_matching(table, part), {})
            if not isinstance(table, dict):
                raise ConfigError(f"{variable}: {part.lower()} is no table in the file")
        table[_matching(table, parts[-1])] = _value(environment[variable])


def _matching(table: Mapping[str, Any], part: str) -> str:
    def plain(name: str) -> str:
        return re.sub(r"[.-]", "_", name).lower()

    return next((key for key in table if plain(key) == plain(part)), part.lower())


def _value(text: str) -> Any:
    """A number, yes or no, list or quoted string of TOML; anything else is the text itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _cluster(name: str, table: Any, shown: str, errors: list[str]) -> ClusterConfig | None:
    where = f"{shown}: [clusters.{name}]"
    if not isinstance(table, dict):
        errors.append(f"{where}: must be a table")
        return None
    if not _NAME.fullmatch(name):
        errors.append(f"{where}: a cluster's name has letters, digits, dot, dash and underscore, at most 40")
        return None
    errors += [f"{where}: unknown key {key!r}" for key in sorted(set(table) - _CLUSTER_KEYS)]
    values: dict[str, Any] = {}
    for key in ("recollect_after", "live"):
        if key in table:
            seconds = duration(table[key])
            if seconds is None:
                errors.append(f'{where}: {key}: must be a duration like "15m", or 0 for never')
            else:
                values[key] = seconds
    zone = table.get("time_zone", "UTC")
    try:
        ZoneInfo(zone)
        values["time_zone"] = zone
    except (ZoneInfoNotFoundError, ValueError, OSError, TypeError):
        errors.append(f"{where}: time_zone: {zone!r} is no time zone, like Europe/Zurich")
    live = values.get("live", 1800.0)
    sources = table.get("sources", {})
    if not isinstance(sources, dict) or not sources:
        errors.append(f"{where}: has no source: add [clusters.{name}.sources.slurm] or the like")
        sources = {}
    zone = values.get("time_zone", "") if "time_zone" in table else ""
    found = [_source(name, source, entry, (live, zone), shown, errors) for source, entry in sources.items()]
    usable = tuple(source for source in found if source is not None)
    if sources and not any(source.finds for source in usable):
        kinds = ", ".join(sorted(FINDERS))
        errors.append(f"{where}: no source finds attempts: one of kind {kinds} is needed")
    return ClusterConfig(name=name, sources=usable, **values)


def _source(
    cluster: str, name: str, table: Any, common: tuple[float, str], shown: str, errors: list[str]
) -> SourceConfig | None:
    where = f"{shown}: [clusters.{cluster}.sources.{name}]"
    if not isinstance(table, dict):
        errors.append(f"{where}: must be a table")
        return None
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,19}", name):
        errors.append(f"{where}: a source's name has letters, digits, dash and underscore, at most 20")
        return None
    values = dict(table)
    kind = values.pop("kind", name)
    if not isinstance(kind, str) or kind not in FACTORIES:
        errors.append(f"{where}: kind {kind!r} is not one of {', '.join(sorted(FACTORIES))}")
        return None
    if kind in ("slurm", "kueue"):
        values.setdefault("cluster", cluster)
    live, zone = common
    if kind == "slurm" and live:
        values.setdefault("states", [*ENDED_STATES, "RUNNING"])
    if kind in ("slurm", "files") and zone:
        values.setdefault("timezone", zone)
    source = SourceConfig(cluster=cluster, name=name, kind=kind, values=values)
    try:
        source.connector()
    except ConfigError as error:
        errors.append(f"{where}: {str(error).removeprefix(f'connector {name}: ')}")
        return None
    return source


def duration(value: Any) -> float | None:
    """Seconds of `900`, `"900"`, `"15m"`, `"1h"`, `"2d"`; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value) if 0 <= value <= MOST else None
    found = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    return float(found[1]) * _UNITS[found[2]] if found else None
