"""The clusters and their sources, as they are configured. Checked whole; every error names its place, table and key.

Pure Python: connectors are made of it, no database is needed. layers.py says where it comes from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from connectors.base import ConfigError, Connector
from connectors.reach import ANYWHERE, Reach
from connectors.registry import FACTORIES
from connectors.slurm.parser import ENDED_STATES
from connectors.values import MOST
from triage.retention import Retention, read_retention

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
    reach: Reach = ANYWHERE
    """Where its server may be."""

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
        return FACTORIES[self.kind]({"name": self.name, **self.values}, self.reach)


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
    retention: Retention = Retention()
    places: dict[tuple[str, str], str] = {}
    """Where a cluster (with "") or one of its sources is set up, when it isn't in `path`."""


Place = Callable[[str, str], str]
"""What the place is called where a cluster, or one of its sources (else ""), is configured."""


def check(document: Mapping[str, Any], shown: str, place: Place | None = None) -> Configuration:
    """What stands in a document; `shown` is what it is called in errors, unless `place` knows better. Never raises."""
    where = place or (lambda cluster, source: shown)
    errors: list[str] = []
    unknown = sorted(set(document) - {"clusters", "retention"})
    errors += [f"{shown}: unknown table or key {key!r}: clusters are [clusters.NAME]" for key in unknown]
    retention = read_retention(document.get("retention", {}), shown, duration, errors)
    clusters: dict[str, ClusterConfig] = {}
    tables = document.get("clusters", {})
    if not isinstance(tables, dict):
        errors.append(f"{shown}: clusters: must be tables, [clusters.NAME]")
        return Configuration(path=shown, errors=tuple(errors), retention=retention)
    for name, table in tables.items():
        found = _cluster(name, table, where, errors)
        if found is not None:
            clusters[name] = found
    return Configuration(path=shown, clusters=clusters, errors=tuple(errors), retention=retention)


def _cluster(name: str, table: Any, place: Place, errors: list[str]) -> ClusterConfig | None:
    where = f"{place(name, '')}: [clusters.{name}]"
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
    found = [_source(name, source, entry, (live, zone), place, errors) for source, entry in sources.items()]
    usable = tuple(source for source in found if source is not None)
    if sources and not any(source.finds for source in usable):
        kinds = ", ".join(sorted(FINDERS))
        errors.append(f"{where}: no source finds attempts: one of kind {kinds} is needed")
    return ClusterConfig(name=name, sources=usable, **values)


def _source(
    cluster: str, name: str, table: Any, common: tuple[float, str], place: Place, errors: list[str]
) -> SourceConfig | None:
    where = f"{place(cluster, name)}: [clusters.{cluster}.sources.{name}]"
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
