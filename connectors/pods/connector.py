"""Logs of pods, read through the Kubernetes API: what the kubelets still have."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from connectors.base import CollectionReport, CollectRequest, CollectsOnly, check_report
from connectors.http import Deadline
from connectors.kube.errors import KubeError
from connectors.kube.resources import PODS
from connectors.kube.session import KubeSession
from connectors.kube.sightings import SightingStore
from connectors.pods.collection import PodsCollection
from connectors.pods.config import PodsConfig
from connectors.reach import ANYWHERE, Reach
from connectors.spool import Spool

CHECK_SECONDS = 20.0


class PodsConnector(CollectsOnly):
    """`sightings`: what was seen of pods that are gone by now, which then can be named."""

    def __init__(self, config: PodsConfig) -> None:
        self.name = config.name
        self.config = config
        self.sightings: SightingStore | None = None

    @classmethod
    def from_config(cls, config: Mapping[str, Any], reach: Reach = ANYWHERE) -> PodsConnector:
        """From plain values, see docs/connectors/pods.md. Raises ConfigError."""
        return cls(PodsConfig.parse(config, reach))

    @contextmanager
    def collect(self, request: CollectRequest, stop: threading.Event | None = None) -> Iterator[PodsCollection]:
        """The logs of an attempt. Raises ConnectorError."""
        seconds = min(self.config.kube.time_limit, request.limits.seconds)
        with (
            Spool.usable(self.config.kube.spool_dir) as spool,
            KubeSession(self.config.kube, Deadline(seconds, stop)) as session,
        ):
            yield PodsCollection(self.config, session, spool, request, self.sightings)

    def check(self, seconds: float = CHECK_SECONDS) -> CollectionReport:
        """Are pods and the log of one of them readable? Within `seconds`."""
        asked: list[str] = []

        def ask() -> tuple[str, str]:
            with KubeSession(self.config.kube, Deadline(seconds)) as session:
                session.asked = asked
                return self._check(session)

        return check_report(self.name, asked, ask)

    def _check(self, session: KubeSession) -> tuple[str, str]:
        for namespace in self.config.kube.namespaces or (None,):
            page = next(session.pages(PODS, namespace, fields="status.phase=Running", limit=1), None)
            for pod in page.items if page is not None else ():
                meta = pod.get("metadata") or {}
                container = str((pod.get("spec") or {}).get("containers", [{}])[0].get("name", ""))
                try:
                    with session.log(
                        str(meta.get("namespace")), str(meta.get("name")), container, seconds=5.0, tail_lines=1
                    ) as blocks:
                        next(iter(blocks), b"")
                except KubeError as error:
                    if error.status == 403:
                        raise
                    return "partial", f"pods can be listed, but no log was read: {error}"
                return "ok", ""
        return "empty", "pods can be listed, but none runs whose log could be read: check namespaces"
