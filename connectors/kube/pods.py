"""The pods of an attempt: those that the API still has, and those that were seen while they existed."""

from __future__ import annotations

from typing import Any

import msgspec

from connectors.kube.errors import KubeError
from connectors.kube.owners import WorkloadRef, belongs, in_order, pod_selectors, selector
from connectors.kube.resources import PODS
from connectors.kube.session import KubeSession
from connectors.kube.sightings import SightingStore
from connectors.kube.times import in_window
from connectors.refusals import Kind

_HOPELESS = (Kind.DOWN, Kind.TLS, Kind.GARBAGE, Kind.STOPPED, Kind.OVER)


class AttemptPods(msgspec.Struct):
    """Pods in the order of their ranks."""

    pods: list[dict[str, Any]]
    there: set[str]
    """Uids of those that the API still has."""
    error: KubeError | None = None
    """Why the API could not be asked."""

    @property
    def gone(self) -> list[dict[str, Any]]:
        return [pod for pod in self.pods if uid_of(pod) not in self.there]


def uid_of(pod: dict[str, Any]) -> str:
    return str((pod.get("metadata") or {}).get("uid") or "")


def name_of(pod: dict[str, Any]) -> str:
    return str((pod.get("metadata") or {}).get("name") or "")


def pods_of(
    session: KubeSession | None,
    ref: WorkloadRef,
    started: float | None,
    ended: float | None,
    sightings: SightingStore | None,
) -> AttemptPods:
    """The pods of one attempt. What can't be asked for is in `error`; sightings are given all the same."""
    found: dict[str, dict[str, Any]] = {}
    error: KubeError | None = None
    if session is not None:
        try:
            found = {uid_of(pod): pod for pod in _listed(session, ref)}
        except KubeError as failure:
            error = failure
    there = set(found)
    for pod in _seen(sightings, ref):
        found.setdefault(uid_of(pod), pod)
    mine = [pod for pod in found.values() if in_window(pod, started, ended)]
    return AttemptPods(in_order(mine), there, error)


def _listed(session: KubeSession, ref: WorkloadRef) -> list[dict[str, Any]]:
    for labels in pod_selectors(ref):
        pods = session.list(PODS, ref.namespace, labels=selector(labels))
        if pods:
            return pods
    owner = ref.owner
    if owner is not None and owner.kind == "Pod":
        try:
            pod = session.get(PODS, ref.namespace, owner.name)
        except KubeError as error:
            if not error.gone:
                raise
            return []
        return [pod] if belongs(pod, ref) else []
    if owner is not None and not _has_labels(owner.kind):
        return [pod for pod in session.list(PODS, ref.namespace) if belongs(pod, ref)]
    return []


def _has_labels(kind: str) -> bool:
    """Is it known by which labels the pods of such an owner are found?"""
    return kind in (
        "Job", "JobSet", "TrainJob", "PyTorchJob", "MPIJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob",
        "RayCluster", "RayJob", "RayService", "LeaderWorkerSet", "AppWrapper",
    )  # fmt: skip


def _seen(sightings: SightingStore | None, ref: WorkloadRef) -> list[dict[str, Any]]:
    if sightings is None:
        return []
    for labels in pod_selectors(ref):
        seen = sightings.by_labels("Pod", ref.namespace, labels)
        if seen:
            return [sighting.object for sighting in seen]
    if ref.owner is not None and ref.owner.kind == "Pod" and ref.owner.uid:
        one = sightings.by_uid("Pod", ref.owner.uid)
        return [one.object] if one is not None else []
    return []
