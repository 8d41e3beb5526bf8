"""What an administrator says about a Prometheus, Mimir, Thanos or VictoriaMetrics."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from connectors.endpoint import Endpoint
from connectors.grafana import Explore
from connectors.promql.pack import PackQuery, load
from connectors.reach import ANYWHERE, Reach
from connectors.values import named, number, path

_KEYS = {
    "name", "queries", "skip", "extra", "matchers", "selector", "step", "resolution", "samples_per_query", "before",
    "after", "nodes_per_query", "time_limit", "spool_dir", *Explore.KEYS, *Endpoint.KEYS,
}  # fmt: skip


class PromConfig(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    endpoint: Endpoint
    queries: tuple[PackQuery, ...]
    step: int | None = None
    """Seconds, for the whole window; None: by window and number of series."""
    resolution: int = 15
    """Seconds between two scrapes; nothing finer is asked for."""
    samples_per_query: int = 200_000
    before: float = 600.0
    """Seconds before the attempt's start, for what was normal."""
    after: float = 300.0
    nodes_per_query: int = 64
    time_limit: float = 600.0
    explore: Explore = Explore("prometheus")
    spool_dir: Path | None = None

    @classmethod
    def parse(cls, config: Mapping[str, Any], reach: Reach = ANYWHERE) -> PromConfig:
        """From plain values. Raises ConfigError."""
        name, where = named(config, "promql", _KEYS)
        return cls(
            name=name,
            endpoint=Endpoint.from_config("Prometheus", name, config, reach),
            queries=load(config, where),
            step=int(number(config, "step", 0, where, least=1)) if config.get("step") is not None else None,
            resolution=int(number(config, "resolution", 15, where, least=1)),
            samples_per_query=int(number(config, "samples_per_query", 200_000, where, least=1000)),
            before=number(config, "before", 600.0, where),
            after=number(config, "after", 300.0, where),
            nodes_per_query=int(number(config, "nodes_per_query", 64, where, least=1)),
            time_limit=number(config, "time_limit", 600.0, where),
            explore=Explore.parse(config, "prometheus", where),
            spool_dir=path(config, "spool_dir", where),
        )
