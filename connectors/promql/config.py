"""What an administrator says about a Prometheus, Mimir, Thanos or VictoriaMetrics."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from connectors.base import ConfigError
from connectors.endpoint import Endpoint, checked_url, number, text
from connectors.promql.pack import PackQuery, load

_KEYS = {
    "name", "queries", "skip", "extra", "matchers", "selector", "step", "resolution", "samples_per_query", "before",
    "after", "nodes_per_query", "time_limit", "grafana_url", "grafana_datasource", "spool_dir", *Endpoint.KEYS,
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
    grafana_url: str = ""
    grafana_datasource: str = ""
    spool_dir: Path | None = None

    @classmethod
    def parse(cls, config: Mapping[str, Any]) -> PromConfig:
        """From plain values. Raises ConfigError."""
        name = str(config.get("name", "promql"))
        where = f"connector {name}"
        unknown = sorted(set(config) - _KEYS)
        if unknown:
            raise ConfigError(f"{where}: unknown key {unknown[0]!r}")
        grafana = config.get("grafana_url")
        folder = text(config, "spool_dir", where)
        return cls(
            name=name,
            endpoint=Endpoint.from_config("Prometheus", name, config),
            queries=load(config, where),
            step=int(number(config, "step", 0, where, least=1)) if config.get("step") is not None else None,
            resolution=int(number(config, "resolution", 15, where, least=1)),
            samples_per_query=int(number(config, "samples_per_query", 200_000, where, least=1000)),
            before=number(config, "before", 600.0, where),
            after=number(config, "after", 300.0, where),
            nodes_per_query=int(number(config, "nodes_per_query", 64, where, least=1)),
            time_limit=number(config, "time_limit", 600.0, where),
            grafana_url=checked_url(grafana, f"{where}: grafana_url") if grafana else "",
            grafana_datasource=text(config, "grafana_datasource", where) or "",
            spool_dir=Path(folder) if folder else None,
        )
