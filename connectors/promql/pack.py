"""The ready queries (queries.yaml) and an administrator's own, as checked templates."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, Literal

import msgspec
import yaml

from connectors.base import ConfigError
from connectors.placeholders import Template
from connectors.values import words

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


class Exporter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    nodes: str
    about: str = ""


class Query(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    query: str
    """PromQL; `{nodes}` stands for the exporter's node matchers, `{window}` for the length of the window in seconds."""
    exporter: str = ""
    kind: Literal["range", "instant"] = "range"


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    exporters: dict[str, Exporter]
    queries: tuple[Query, ...]


class PackQuery(msgspec.Struct, frozen=True):
    """A query that can be asked."""

    name: str
    exporter: str
    instant: bool
    template: Template


def ready() -> _File:
    """The pack that comes with Faultline."""
    content = resources.files("connectors.promql").joinpath("queries.yaml").read_bytes()
    return msgspec.convert(yaml.safe_load(content), _File)


def load(config: Mapping[str, Any], where: str) -> tuple[PackQuery, ...]:
    """The queries that a connector asks. `config`: queries (names), skip (names), extra (queries), matchers (exporter
    -> node matchers), selector (matchers for all). Raises ConfigError.
    """
    pack = ready()
    known = {query.name for query in pack.queries}
    chosen = _names(config, "queries", known, where) or known
    skipped = _names(config, "skip", known, where)
    matchers = config.get("matchers", {})
    if not isinstance(matchers, Mapping) or not all(isinstance(value, str) for value in matchers.values()):
        raise ConfigError(f"{where}: matchers: must map exporters to label matchers")
    for exporter in matchers:
        if exporter not in pack.exporters:
            raise ConfigError(f"{where}: matchers: {exporter!r} is not one of {', '.join(sorted(pack.exporters))}")
    selector = config.get("selector", "")
    if not isinstance(selector, str) or (selector and not re.match(r"\s*[A-Za-z_]\w*\s*(=|!)", selector)):
        raise ConfigError(f'{where}: selector: must be label matchers without braces, like cluster="a"')
    try:
        extra = msgspec.convert(config.get("extra", []), tuple[Query, ...])
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: extra: {error}") from None
    queries = [query for query in pack.queries if query.name in chosen and query.name not in skipped]
    return tuple(
        _checked(query, {**{k: v.nodes for k, v in pack.exporters.items()}, **matchers}, selector, where)
        for query in _unique([*queries, *extra], where)
    )


def _names(config: Mapping[str, Any], key: str, known: set[str], where: str) -> set[str]:
    names = words(config, key, where, "names")
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ConfigError(f"{where}: {key}: {unknown[0]!r} is not one of {', '.join(sorted(known))}")
    return set(names)


def _unique(queries: Sequence[Query], where: str) -> Sequence[Query]:
    seen: set[str] = set()
    for query in queries:
        if not NAME.fullmatch(query.name):
            raise ConfigError(f"{where}: extra: {query.name!r}: a name has small letters, digits, - and _")
        if query.name in seen:
            raise ConfigError(f"{where}: extra: {query.name!r} is there already")
        seen.add(query.name)
    return queries


def _checked(query: Query, matchers: Mapping[str, str], selector: str, where: str) -> PackQuery:
    text = query.query
    if "{nodes}" in text:
        if query.exporter not in matchers:
            raise ConfigError(f"{where}: {query.name}: {{nodes}} needs an exporter: {', '.join(sorted(matchers))}")
        inside = ", ".join(filter(None, (selector.strip(), matchers[query.exporter])))
        text = text.replace("{nodes}", inside)
    return PackQuery(query.name, query.exporter, query.kind == "instant", Template(text, f"{where}: {query.name}"))
