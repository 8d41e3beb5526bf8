"""The connectors that are set up, by name. Configuration is checked when it is read, not when it is used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any, Protocol

from connectors.base import ConfigError, Connector
from connectors.files.connector import FilesConnector
from connectors.kueue.connector import KueueConnector
from connectors.loki.connector import LokiConnector
from connectors.pods.connector import PodsConnector
from connectors.promql.connector import PromConnector
from connectors.reach import ANYWHERE, Reach
from connectors.slurm.connector import SlurmConnector


class Factory(Protocol):
    """Makes a connector of a mapping of plain values; its server may be within `reach`. Raises ConfigError."""

    def __call__(self, config: Mapping[str, Any], reach: Reach = ANYWHERE) -> Connector: ...


FACTORIES: dict[str, Factory] = {
    "files": FilesConnector.from_config,
    "kueue": KueueConnector.from_config,
    "loki": LokiConnector.from_config,
    "pods": PodsConnector.from_config,
    "promql": PromConnector.from_config,
    "slurm": SlurmConnector.from_config,
}
"""By kind."""


def example(kind: str) -> str:
    """What a source of a kind may begin with: its keys in TOML, to be changed."""
    return resources.files(f"connectors.{kind}").joinpath("example.toml").read_text(encoding="utf-8")


class Registry:
    """Connectors by name."""

    def __init__(self, connectors: Mapping[str, Connector]) -> None:
        self._connectors = dict(connectors)

    @classmethod
    def from_config(cls, config: Mapping[str, Mapping[str, Any]]) -> Registry:
        """From `{name: {"kind": kind, ...}}`; without a kind the name is the kind. Raises ConfigError."""
        connectors: dict[str, Connector] = {}
        for name, values in config.items():
            kind = values.get("kind", name)
            if kind not in FACTORIES:
                raise ConfigError(f"connector {name}: kind {kind!r} is not one of {', '.join(sorted(FACTORIES))}")
            rest = {key: value for key, value in values.items() if key != "kind"}
            connectors[name] = FACTORIES[kind]({"name": name, **rest})
        return cls(connectors)

    def get(self, name: str) -> Connector:
        """The connector of that name. Raises ConfigError."""
        try:
            return self._connectors[name]
        except KeyError:
            raise ConfigError(f"connector {name!r} is not configured") from None

    def __iter__(self) -> Iterator[tuple[str, Connector]]:
        return iter(self._connectors.items())
