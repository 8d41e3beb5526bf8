"""What was seen of pods and workloads while they existed: where pods ran, and how their containers ended.

Pods vanish soon after a workload ends. Whoever searches or watches a cluster hands what it sees to a store, and a
later collection, in another process, takes from there what the API no longer has.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from connectors.kube.tidy import tidy


class Sighting(msgspec.Struct, frozen=True, kw_only=True):
    """The last that was seen of one object."""

    kind: str
    """Pod, or Workload (as it was at the end of one attempt)."""
    namespace: str
    name: str
    uid: str
    """For a Workload: with `#` and the attempt's number."""
    node: str = ""
    labels: dict[str, str] = {}
    object: dict[str, Any] = {}
    seen_at: float
    """Epoch seconds by this machine's clock."""
    deleted: bool = False


class SightingStore(Protocol):
    """Keeps the newest sighting of each object."""

    def save(self, sightings: Sequence[Sighting]) -> None:
        """Keeps sightings; a newer one of the same kind and uid replaces the older."""
        ...

    def by_labels(self, kind: str, namespace: str, labels: Mapping[str, str]) -> list[Sighting]:
        """Objects that have all of the labels."""
        ...

    def by_uid(self, kind: str, uid: str) -> Sighting | None:
        """One object."""
        ...


class MemorySightings:
    """A store of one process, for commands and tests."""

    def __init__(self, most: int = 50_000) -> None:
        self._most, self._lock = most, threading.Lock()
        self._kept: dict[tuple[str, str], Sighting] = {}

    def save(self, sightings: Sequence[Sighting]) -> None:
        with self._lock:
            for sighting in sightings:
                key = (sighting.kind, sighting.uid)
                self._kept.pop(key, None)
                self._kept[key] = sighting
            while len(self._kept) > self._most:
                self._kept.pop(next(iter(self._kept)))

    def by_labels(self, kind: str, namespace: str, labels: Mapping[str, str]) -> list[Sighting]:
        with self._lock:
            return [
                sighting
                for sighting in self._kept.values()
                if sighting.kind == kind
                and sighting.namespace == namespace
                and all(sighting.labels.get(key) == value for key, value in labels.items())
            ]

    def by_uid(self, kind: str, uid: str) -> Sighting | None:
        with self._lock:
            return self._kept.get((kind, uid))


def sighting_of(item: Mapping[str, Any], seen_at: float, *, uid: str = "", deleted: bool = False) -> Sighting:
    """From an object of the API, without what is secret or only bulk."""
    meta = item.get("metadata") or {}
    labels = meta.get("labels") or {}
    return Sighting(
        kind=str(item.get("kind") or "Pod"),
        namespace=str(meta.get("namespace") or ""),
        name=str(meta.get("name") or ""),
        uid=uid or str(meta.get("uid") or ""),
        node=str((item.get("spec") or {}).get("nodeName") or ""),
        labels={str(key): str(value) for key, value in labels.items()},
        object=tidy(item),
        seen_at=seen_at,
        deleted=deleted,
    )
