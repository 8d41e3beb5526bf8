"""Where pods run, captured while they exist: a list first, then a watch from where the list or the last watch ended."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from connectors.kube.errors import KubeError
from connectors.kube.owners import is_managed
from connectors.kube.sightings import Sighting, SightingStore, sighting_of
from connectors.kueue.client import KueueClient

BATCH = 200


class PlacementWatch:
    """Follows the pods of one namespace, or of all, and hands what it sees to a store."""

    def __init__(self, client: KueueClient, store: SightingStore, namespace: str | None, labels: str = "") -> None:
        self._client, self._store, self._namespace, self._labels = client, store, namespace, labels
        self._batch: dict[str, Sighting] = {}

    def follow(self, version: str, *, seconds: float, idle: float) -> str:
        """Everything since `version` (empty: everything that is there). Returns the version to go on from.

        Raises KubeError; what was seen until then is kept.
        """
        try:
            return self._follow(version or self._list(), seconds, idle)
        except KubeError as error:
            if not error.expired:
                raise
            return self._follow(self._list(), seconds, idle)  # 410 Gone: what happened meanwhile is in a new list
        finally:
            self._flush()

    def _list(self) -> str:
        version = ""
        for page in self._client.pod_pages(self._namespace, self._labels):
            for pod in page.items:
                self._see(pod)
            version = page.version
        return version

    def _follow(self, version: str, seconds: float, idle: float) -> str:
        for event in self._client.watch_pods(self._namespace, version, seconds, idle, self._labels):
            version = event.version or version
            if event.type != "BOOKMARK":
                self._see(event.object, deleted=event.type == "DELETED")
        return version

    def _see(self, pod: Mapping[str, Any], *, deleted: bool = False) -> None:
        if not is_managed(pod):
            return
        sighting = sighting_of(pod, time.time(), deleted=deleted)
        if sighting.uid and (sighting.node or (pod.get("status") or {}).get("phase") in ("Failed", "Pending")):
            self._batch[sighting.uid] = sighting
        if len(self._batch) >= BATCH:
            self._flush()

    def _flush(self) -> None:
        if self._batch:
            self._store.save(list(self._batch.values()))
            self._batch.clear()
