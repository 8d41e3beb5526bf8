"""Where the configuration comes from: the clusters' pages, `faultline.toml`, the environment. A later one wins.

A source that the file names is the file's alone; the pages' of the same name is not used. The environment sets or
replaces single values of either. What people may set on a page is narrower than what the machine's owner may set in
the file: no programs, and only paths and secrets that the owner set apart for it (`PageRules`).
"""

from __future__ import annotations

import os
import re
import tomllib
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from connectors.base import ConfigError
from connectors.reach import ANYWHERE, Reach
from triage.configuration import ClusterConfig, Configuration, check

FILE = "faultline.toml"
PREFIX = "FAULTLINE_CLUSTERS__"
"""Environment variables FAULTLINE_CLUSTERS__<cluster>__sources__<source>__<key> set or replace single values."""
PAGE = "the clusters' pages"
"""What they are called in errors."""
PAGE_SECRETS = "FAULTLINE_SOURCE_"
"""Environment variables that a page may name as a secret begin with it."""
MAX_TEXT = 64 * 1024
_PROGRAMS = ("command_prefix", "bin_dir", "environment")
PATHS = (
    "kubeconfig", "ca_file", "client_cert", "client_key", "slurmctld_log", "slurmd_log", "spool_dir", "roots",
)  # fmt: skip
_SECRETS = ("password", "token")


class PageSource(msgspec.Struct, frozen=True):
    """A source as it was written on a page: its keys in TOML."""

    kind: str
    text: str


class PageCluster(msgspec.Struct, frozen=True):
    """A cluster as it was set on a page; settings that are empty are not set."""

    settings: dict[str, str] = {}
    sources: dict[str, PageSource] = {}


class PageRules(msgspec.Struct, frozen=True):
    """What a page may name on the machines that workers run on."""

    folders: tuple[Path, ...] = ()
    reach: Reach = ANYWHERE
    """Where servers may be. Workers look once more at what a name leads to, whenever they connect."""

    def refusals(self, values: Mapping[str, Any]) -> Iterator[str]:
        """Why a source is not taken from a page, key by key."""
        for key, value in values.items():
            if key in _PROGRAMS:
                yield f"{key}: names programs or their surroundings, so it can only be set in {FILE} or the environment"
            elif key in _SECRETS and str(value).startswith("env:"):
                if not str(value).startswith(f"env:{PAGE_SECRETS}"):
                    yield f"{key}: on a page, env: must name a variable that begins with {PAGE_SECRETS}"
            elif key in PATHS or (key in _SECRETS and str(value).startswith("file:")):
                yield from (f"{key}: {why}" for path in _paths(value) if (why := self.why_not(path)))
            elif key == "url" and str(value).startswith("unix:"):
                yield f"{key}: a socket can only be set in {FILE} or the environment"
            elif key == "url" and (why := self.reach.why_not(_host(str(value)))):
                yield f"{key}: {why}"
            elif isinstance(value, Mapping):
                yield from (f"{key}.{words}" for words in self.refusals(value))

    def why_not(self, path: str) -> str:
        """Why a path is not taken from a page; empty when it is."""
        if not path.startswith("/"):
            return f"{path}: must be an absolute path"
        real = os.path.realpath(path)
        if any(_within(path, folder) and _within(real, os.path.realpath(folder)) for folder in self.folders):
            return ""
        allowed = ", ".join(map(str, self.folders)) or "no folder"
        return f"{path}: on a page, paths must lie in {allowed} (FAULTLINE_PAGE_FOLDERS)"


def _host(url: str) -> str:
    """Empty when there is none, which the connector says."""
    try:
        return urllib.parse.urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _paths(value: Any) -> Iterator[str]:
    """The paths on this machine in a value: of a mapping from the cluster's folders to those here, the latter."""
    if isinstance(value, Mapping):
        value = list(value.values())
    for one in value if isinstance(value, Sequence) and not isinstance(value, str) else [value]:
        yield str(one).removeprefix("file:")


def _within(path: str, folder: str | Path) -> bool:
    plain, base = os.path.normpath(path), os.path.normpath(folder)
    return plain == base or plain.startswith(base.rstrip("/") + "/")


def config_path(base: Path) -> Path | None:
    """FAULTLINE_CONFIG; else faultline.toml in the project's folder, or in /etc/faultline; None when there is none."""
    named = os.environ.get("FAULTLINE_CONFIG")
    if named:
        return Path(named)
    return next((path for path in (base / FILE, Path("/etc/faultline") / FILE) if path.is_file()), None)


def load(
    path: Path | None,
    environment: Mapping[str, str] | None = None,
    pages: Mapping[str, PageCluster] | None = None,
    rules: PageRules | None = None,
) -> Configuration:
    """All layers together. Never raises: errors are a part of what is returned."""
    environment = os.environ if environment is None else environment
    shown = str(path) if path is not None else "environment"
    errors: list[str] = []
    try:
        file = _read(path) if path is not None else {}
    except ConfigError as error:
        file = {}
        errors.append(str(error))
    document, places = _merged(pages or {}, file, shown, rules or PageRules(), errors)
    try:
        _apply(document, environment)
    except ConfigError as error:
        return Configuration(path=shown, errors=(*errors, str(error)))
    found = check(document, shown, lambda cluster, source: places.get((cluster, source), shown))
    clusters = {
        name: _confined(cluster, places, (rules or PageRules()).reach) for name, cluster in found.clusters.items()
    }
    return msgspec.structs.replace(found, clusters=clusters, errors=(*errors, *found.errors), places=places)


def _confined(cluster: ClusterConfig, places: Mapping[tuple[str, str], str], reach: Reach) -> ClusterConfig:
    """The cluster, with sources from pages within `reach`."""
    sources = tuple(
        msgspec.structs.replace(source, reach=reach) if (cluster.name, source.name) in places else source
        for source in cluster.sources
    )
    return msgspec.structs.replace(cluster, sources=sources)


def read_source(name: str, source: PageSource, rules: PageRules, where: str) -> dict[str, Any]:
    """The values of a page's source, as they would stand in the file. Raises ConfigError with a line an error."""
    if len(source.text) > MAX_TEXT:
        raise ConfigError(f"{where}: more than {MAX_TEXT} characters")
    try:
        values = tomllib.loads(source.text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where}: not valid TOML: {error}") from None
    if "kind" in values:
        raise ConfigError(f"{where}: kind: is chosen beside the text")
    refusals = [f"{where}: {why}" for why in rules.refusals(values)]
    if refusals:
        raise ConfigError("\n".join(refusals))
    return {**values, "kind": source.kind}


def _merged(
    pages: Mapping[str, PageCluster], file: dict[str, Any], shown: str, rules: PageRules, errors: list[str]
) -> tuple[dict[str, Any], dict[tuple[str, str], str]]:
    """Pages and file as one document, and where what is not in the file comes from."""
    clusters: dict[str, Any] = {}
    places: dict[tuple[str, str], str] = {}
    tables = file.get("clusters", {})
    if not isinstance(tables, dict):
        return file, places
    for name, page in pages.items():
        table = clusters[name] = {**page.settings}
        places[name, ""] = PAGE
        for source, written in page.sources.items():
            if _has(tables, name, source):
                continue
            places[name, source] = PAGE
            where = f"{PAGE}: [clusters.{name}.sources.{source}]"
            try:
                table.setdefault("sources", {})[source] = read_source(source, written, rules, where)
            except ConfigError as error:
                errors += str(error).splitlines()
    for name, table in tables.items():
        page_table = clusters.get(name)
        if isinstance(table, dict) and page_table is not None:
            sources = table.get("sources", {})
            both = {**page_table.get("sources", {}), **sources} if isinstance(sources, dict) else sources
            table = {**page_table, **table, "sources": both}
        clusters[name] = table
        places.pop((name, ""), None)
    return {**file, "clusters": clusters}, places


def _has(tables: Mapping[str, Any], cluster: str, source: str) -> bool:
    table = tables.get(cluster)
    sources = table.get("sources") if isinstance(table, dict) else None
    return isinstance(sources, dict) and source in sources


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
