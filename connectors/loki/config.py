"""What an administrator says about a Loki: where it is, and which queries find an attempt's lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from connectors.base import ConfigError
from connectors.endpoint import Endpoint
from connectors.grafana import Explore
from connectors.loki.paging import PAGE, split_selector
from connectors.placeholders import Template
from connectors.reach import ANYWHERE, Reach
from connectors.refusals import HttpError
from connectors.values import named, number, only, path, text, words

SOURCES = ("applog", "syslog", "scheduler")
SPLIT_BY = {"applog": ("container", "k8s_container_name", "filename"), "syslog": (), "scheduler": ()}
BEFORE = {"applog": 60.0, "syslog": 900.0, "scheduler": 900.0}
"""Seconds before the attempt's start. Kernel and scheduler may have told of trouble before the job began."""
AFTER = {"applog": 300.0, "syslog": 600.0, "scheduler": 600.0}
_QUERY_KEYS = {"source", "query", "name", "before", "after", "split_by"}
_KEYS = {
    "name", "queries", "page", "nodes_per_query", "time_limit", "spool_dir", *Explore.KEYS, *Endpoint.KEYS,
}  # fmt: skip


class LokiQuery(msgspec.Struct, frozen=True, kw_only=True):
    """One LogQL query with placeholders."""

    source: str
    name: str
    """Part of the streams' names when a source has several queries."""
    template: Template
    before: float
    after: float
    split_by: tuple[str, ...]
    """Labels whose values are streams of their own, besides node, pod and rank."""


class LokiConfig(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    endpoint: Endpoint
    queries: tuple[LokiQuery, ...]
    page: int = PAGE
    nodes_per_query: int = 32
    time_limit: float = 900.0
    explore: Explore = Explore("loki")
    spool_dir: Path | None = None

    @classmethod
    def parse(cls, config: Mapping[str, Any], reach: Reach = ANYWHERE) -> LokiConfig:
        """From plain values. Raises ConfigError."""
        name, where = named(config, "loki", _KEYS)
        queries = config.get("queries")
        if not isinstance(queries, Sequence) or isinstance(queries, str) or not queries:
            raise ConfigError(f"{where}: queries: at least one is needed, each with source and query")
        parsed = tuple(_query(entry, f"{where}: queries[{index}]", index) for index, entry in enumerate(queries))
        names = [(query.source, query.name) for query in parsed]
        if len(set(names)) < len(names):
            raise ConfigError(f"{where}: queries: two of one source have the same name")
        return cls(
            name=name,
            endpoint=Endpoint.from_config("Loki", name, config, reach),
            queries=parsed,
            page=int(number(config, "page", PAGE, where, least=1)),
            nodes_per_query=int(number(config, "nodes_per_query", 32, where, least=1)),
            time_limit=number(config, "time_limit", 900.0, where),
            explore=Explore.parse(config, "loki", where),
            spool_dir=path(config, "spool_dir", where),
        )


def _query(entry: object, where: str, index: int) -> LokiQuery:
    if not isinstance(entry, Mapping):
        raise ConfigError(f"{where}: must have source and query")
    only(entry, _QUERY_KEYS, where)
    source = entry.get("source")
    if source not in SOURCES:
        raise ConfigError(f"{where}: source: must be one of {', '.join(SOURCES)}")
    query = text(entry, "query", where)
    if not query:
        raise ConfigError(f"{where}: query: is missing")
    try:
        before_selector = query[: query.find("{")].strip()
        split_selector(query)
    except HttpError:
        before_selector = "none"
    if before_selector:
        raise ConfigError(f'{where}: query: must begin with a stream selector, like {{job="x"}}')
    return LokiQuery(
        source=source,
        name=text(entry, "name", where) or ("" if index == 0 else str(index)),
        template=Template(query, f"{where}: query"),
        before=number(entry, "before", BEFORE[source], where),
        after=number(entry, "after", AFTER[source], where),
        split_by=words(entry, "split_by", where, "labels", SPLIT_BY[source]),
    )
