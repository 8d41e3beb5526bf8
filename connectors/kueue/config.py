"""What an administrator says about a cluster with Kueue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from connectors.kube.config import KubeConfig
from connectors.reach import ANYWHERE, Reach
from connectors.values import flag, named, number, text, words

_KEYS = {
    "name", "cluster", "queues", "user_label", "pod_selector", "watch_seconds", "nodes", "since_hours",
    *KubeConfig.KEYS,
}  # fmt: skip


class KueueConfig(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    kube: KubeConfig
    cluster: str = ""
    queues: tuple[str, ...] = ()
    """LocalQueues; empty: all of them."""
    user_label: str = ""
    """Label or annotation of a Workload that says whose it is."""
    pod_selector: str = ""
    """Labels of the pods that are watched; empty: all, of which those are kept that belong to some workload."""
    watch_seconds: float = 5.0
    """The longest that one search watches each resource."""
    nodes: bool = True
    """Whether conditions and events of the nodes are read, which needs a ClusterRole."""
    since: float = 24 * 3600.0
    """Seconds that the first search looks back."""

    @classmethod
    def parse(cls, config: Mapping[str, Any], reach: Reach = ANYWHERE) -> KueueConfig:
        """From plain values. Raises ConfigError."""
        name, where = named(config, "kueue", _KEYS)
        return cls(
            name=name,
            kube=KubeConfig.parse(config, where, reach),
            cluster=text(config, "cluster", where) or "",
            queues=words(config, "queues", where, "local queues"),
            user_label=text(config, "user_label", where) or "",
            pod_selector=text(config, "pod_selector", where) or "",
            watch_seconds=number(config, "watch_seconds", 5.0, where),
            nodes=flag(config, "nodes", True, where),
            since=number(config, "since_hours", 24.0, where) * 3600,
        )
