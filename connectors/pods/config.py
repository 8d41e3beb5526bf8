"""What an administrator says about reading logs of pods."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from connectors.base import ConfigError
from connectors.kube.config import KubeConfig
from connectors.reach import ANYWHERE, Reach
from connectors.values import amount, flag, named, number

_KEYS = {
    "name", "containers", "skip_containers", "init_containers", "previous", "container_bytes", "log_seconds",
    "follow_seconds", *KubeConfig.KEYS,
}  # fmt: skip
SIDECARS = r"istio-(?:proxy|init)|linkerd-(?:proxy|init)|vault-agent.*|cloud-sql-proxy|gke-gcsfuse.*"


class PodsConfig(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    kube: KubeConfig
    containers: str = ""
    """Regular expression of the containers to read, by their whole name; empty: all."""
    skip_containers: str = SIDECARS
    init_containers: bool = True
    previous: bool = True
    """Whether what a container wrote before its last restart is read too."""
    container_bytes: int = 2 * 1024**3
    """Of one log; of a longer one the beginning and the end are read."""
    log_seconds: float = 300.0
    """For one log."""
    follow_seconds: float = 10.0
    """How long the logs of a running attempt are followed, all together; 0: not at all."""

    @classmethod
    def parse(cls, config: Mapping[str, Any], reach: Reach = ANYWHERE) -> PodsConfig:
        """From plain values. Raises ConfigError."""
        name, where = named(config, "pods", _KEYS)
        return cls(
            name=name,
            kube=KubeConfig.parse(config, where, reach),
            containers=_pattern(config, "containers", "", where),
            skip_containers=_pattern(config, "skip_containers", SIDECARS, where),
            init_containers=flag(config, "init_containers", True, where),
            previous=flag(config, "previous", True, where),
            container_bytes=int(number(config, "container_bytes", 2 * 1024**3, where, least=1024)),
            log_seconds=number(config, "log_seconds", 300.0, where),
            follow_seconds=amount(config, "follow_seconds", 10.0, where),
        )

    def wants(self, container: str) -> bool:
        if self.containers and not re.fullmatch(self.containers, container):
            return False
        return not (self.skip_containers and re.fullmatch(self.skip_containers, container))


def _pattern(config: Mapping[str, Any], key: str, default: str, where: str) -> str:
    value = config.get(key, default)
    if not isinstance(value, str):
        raise ConfigError(f"{where}: {key}: must be a regular expression")
    try:
        re.compile(value)
    except re.error as error:
        raise ConfigError(f"{where}: {key}: no regular expression: {error}") from None
    return value
