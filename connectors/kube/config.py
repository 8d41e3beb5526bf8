"""What an administrator says about a Kubernetes cluster: how one signs in, and which namespaces count."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from connectors.base import ConfigError
from connectors.reach import ANYWHERE, Reach
from connectors.values import number, path, text

_NAMESPACE = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")


class KubeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How the API of one cluster is asked. Holds no secrets: those are in the kubeconfig or the service account."""

    kubeconfig: Path | None = None
    """None: the service account of the pod that Faultline runs in."""
    context: str | None = None
    namespaces: tuple[str, ...] = ()
    """Empty: all of them."""
    request_seconds: float = 30.0
    time_limit: float = 600.0
    """Seconds for one collection, or one search."""
    page: int = 500
    spool_dir: Path | None = None
    reach: Reach = ANYWHERE
    """Where the API may be. When that is not everywhere, a page named the kubeconfig, and it may name nothing here."""

    KEYS = ("kubeconfig", "context", "namespaces", "request_seconds", "time_limit", "page", "spool_dir")

    @classmethod
    def parse(cls, config: Mapping[str, Any], where: str, reach: Reach = ANYWHERE) -> KubeConfig:
        """From a connector's plain values (KEYS). Raises ConfigError."""
        kubeconfig, context = text(config, "kubeconfig", where), text(config, "context", where)
        if context and not kubeconfig:
            raise ConfigError(f"{where}: context: needs kubeconfig, the file that it is in")
        if kubeconfig and os.pathsep in kubeconfig:  # which the official client takes for several files
            raise ConfigError(f"{where}: kubeconfig: must be one file, without {os.pathsep!r} in its name")
        return cls(
            kubeconfig=Path(kubeconfig.removeprefix("file:")).expanduser() if kubeconfig else None,
            context=context,
            namespaces=_namespaces(config.get("namespaces", ()), where),
            request_seconds=number(config, "request_seconds", 30.0, where),
            time_limit=number(config, "time_limit", 600.0, where),
            page=int(number(config, "page", 500, where, least=1)),
            spool_dir=path(config, "spool_dir", where),
            reach=reach,
        )

    @property
    def login(self) -> str:
        """What one signs in with, in words."""
        if self.kubeconfig is None:
            return "the service account of this pod"
        return f"{self.kubeconfig}, context {self.context}" if self.context else str(self.kubeconfig)


def _namespaces(value: object, where: str) -> tuple[str, ...]:
    names = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (None,)
    for name in names:
        if not isinstance(name, str) or not _NAMESPACE.fullmatch(name):
            raise ConfigError(f'{where}: namespaces: must be a list of namespaces, like ["research"]; [] is all')
    return names
