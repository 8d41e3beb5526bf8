"""Typed calls to a cluster with Kueue: its Workloads in the version that is served, their owners, events and nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from connectors.kube.errors import KubeError
from connectors.kube.owners import Owner
from connectors.kube.resources import EVENTS, KUEUE_VERSIONS, NODES, PODS, Resource, workloads
from connectors.kube.session import KubeSession, Page, WatchEvent
from connectors.refusals import Kind

IDLE_SECONDS = 1.5
"""A watch that gives nothing for so long has told everything up to now."""
NODE_EVENTS_IN = "default"
"""The namespace that holds events about nodes, which have none themselves."""


class KueueClient:
    """All calls raise KubeError, and ConnectorError when one can't sign in."""

    def __init__(self, session: KubeSession, version: str = "") -> None:
        self.session = session
        self.version = version
        """Of kueue.x-k8s.io; empty until the first answer."""

    def workload_pages(self, namespace: str | None, *, limit: int | None = None) -> Iterator[Page]:
        """Workloads in pages."""
        resource = self._served(namespace)
        yield from self.session.pages(resource, namespace, limit=limit)

    def workload(self, namespace: str, name: str) -> dict[str, Any] | None:
        """One Workload; None when it isn't there."""
        resource = self._served(namespace)
        return self._or_none(resource, namespace, name)

    def owner(self, namespace: str, owner: Owner) -> dict[str, Any] | None:
        """The object that a workload stands for; None when it isn't there, or is only a pod."""
        resource = owner.resource
        found = self._or_none(resource, namespace, owner.name) if resource is not None else None
        if found is None or (owner.uid and (found.get("metadata") or {}).get("uid") != owner.uid):
            return None
        return found

    def events(self, namespace: str) -> list[dict[str, Any]]:
        """Events of a namespace. Kubernetes keeps them for an hour, unless it is told otherwise."""
        return self.session.list(EVENTS, namespace)

    def node_events(self) -> list[dict[str, Any]]:
        return self.session.list(EVENTS, NODE_EVENTS_IN, fields="involvedObject.kind=Node")

    def node(self, name: str) -> dict[str, Any] | None:
        return self._or_none(NODES, None, name)

    def pod_pages(self, namespace: str | None, labels: str) -> Iterator[Page]:
        return self.session.pages(PODS, namespace, labels=labels)

    def watch_workloads(self, namespace: str | None, version: str, seconds: float, idle: float) -> Iterator[WatchEvent]:
        yield from self.session.watch(self._served(namespace), namespace, version, seconds=seconds, idle=idle)

    def watch_pods(
        self, namespace: str | None, version: str, seconds: float, idle: float, labels: str = ""
    ) -> Iterator[WatchEvent]:
        yield from self.session.watch(PODS, namespace, version, seconds=seconds, idle=idle, labels=labels)

    def _or_none(self, resource: Resource, namespace: str | None, name: str) -> dict[str, Any] | None:
        try:
            return self.session.get(resource, namespace, name)
        except KubeError as error:
            if error.gone:
                return None
            raise

    def _served(self, namespace: str | None) -> Resource:
        """Workloads in the newest version that the cluster serves."""
        if not self.version:
            for version in KUEUE_VERSIONS:
                try:
                    next(self.session.pages(workloads(version), namespace, limit=1), None)
                except KubeError as error:
                    if error.gone:
                        continue
                    raise
                self.version = version
                break
            else:
                raise KubeError(
                    Kind.ELSEWHERE,
                    f"Kubernetes at {self.session.url} does not serve kueue.x-k8s.io: install Kueue there, or remove "
                    "this source",
                    status=404,
                )
        return workloads(self.version)
