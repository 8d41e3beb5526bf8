"""The resources of the Kubernetes API that Faultline reads, and how their paths are made."""

from __future__ import annotations

import msgspec


class Resource(msgspec.Struct, frozen=True):
    """A kind of object. Items of a list come without their kind, so it is known here."""

    group: str
    """Empty for the core group."""
    version: str
    plural: str
    kind: str

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None, name: str | None = None) -> str:
        """For reports: what is asked."""
        base = f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"
        inside = f"/namespaces/{namespace}" if namespace else ""
        return f"{base}{inside}/{self.plural}" + (f"/{name}" if name else "")


PODS = Resource("", "v1", "pods", "Pod")
EVENTS = Resource("", "v1", "events", "Event")
NODES = Resource("", "v1", "nodes", "Node")
KUEUE_VERSIONS = ("v1beta2", "v1beta1", "v1")
"""Of kueue.x-k8s.io, in the order in which they are tried."""


def workloads(version: str) -> Resource:
    return Resource("kueue.x-k8s.io", version, "workloads", "Workload")
