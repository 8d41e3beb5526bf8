"""Which pods belong to a workload: by the labels that each kind of owner puts on its pods."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlencode

import msgspec

from connectors.base import ConnectorError
from connectors.kube.resources import Resource

_PLURALS = {
    "Job": "jobs", "JobSet": "jobsets", "PyTorchJob": "pytorchjobs", "MPIJob": "mpijobs", "TFJob": "tfjobs",
    "XGBoostJob": "xgboostjobs", "PaddleJob": "paddlejobs", "JAXJob": "jaxjobs", "TrainJob": "trainjobs",
    "RayJob": "rayjobs", "RayCluster": "rayclusters", "RayService": "rayservices", "AppWrapper": "appwrappers",
    "LeaderWorkerSet": "leaderworkersets", "StatefulSet": "statefulsets", "Deployment": "deployments",
}  # fmt: skip
_KUBEFLOW = ("PyTorchJob", "MPIJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob")
WORKLOAD_ANNOTATION = "kueue.x-k8s.io/workload"
POD_GROUP = "kueue.x-k8s.io/pod-group-name"
OWNER_LABELS = (
    "batch.kubernetes.io/controller-uid", "controller-uid", "job-name", "jobset.sigs.k8s.io/jobset-name",
    "training.kubeflow.org/job-name", "ray.io/cluster", "ray.io/originated-from-cr-name",
    "leaderworkerset.sigs.k8s.io/name", "workload.codeflare.dev/appwrapper", POD_GROUP,
    "kueue.x-k8s.io/podset", "kueue.x-k8s.io/managed", "kueue.x-k8s.io/queue-name",
)  # fmt: skip
"""A pod with none of these belongs to no workload that is known here."""
GPU_RESOURCES = re.compile(
    r"(?:nvidia\.com/(?:gpu|mig-.+)|amd\.com/gpu|habana\.ai/gaudi|aws\.amazon\.com/neuron(?:device)?|google\.com/tpu"
    r"|gpu\.intel\.com/.+)"
)
_INDEXES = (
    "jobset.sigs.k8s.io/job-global-index", "jobset.sigs.k8s.io/job-index", "leaderworkerset.sigs.k8s.io/group-index",
    "leaderworkerset.sigs.k8s.io/worker-index", "training.kubeflow.org/replica-index",
    "batch.kubernetes.io/job-completion-index",
)  # fmt: skip
_LEADERS = ("master", "launcher", "chief", "head", "leader")
_UNSAFE = re.compile(r"[^\w./:@-]")


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """The object that a workload stands for, e.g. a PyTorchJob."""

    kind: str
    api_version: str
    name: str
    uid: str = ""

    @property
    def resource(self) -> Resource | None:
        """Where it is asked for; None for a pod, which stands for itself."""
        if self.kind in ("", "Pod"):
            return None
        group, _, version = self.api_version.rpartition("/")
        return Resource(group, version, _PLURALS.get(self.kind, f"{self.kind.lower()}s"), self.kind) if group else None


class WorkloadRef(msgspec.Struct, frozen=True, kw_only=True):
    """The handle of an attempt: all that is needed to find its pods when the workload itself is gone."""

    namespace: str
    name: str
    uid: str = ""
    number: int = 0
    owner: Owner | None = None

    def encode(self) -> str:
        parts = {"uid": self.uid, "number": self.number or ""}
        if self.owner is not None:
            parts |= {"kind": self.owner.kind, "api": self.owner.api_version, "owner": self.owner.name}
            parts |= {"owner_uid": self.owner.uid}
        return f"{self.namespace}/{self.name}?{urlencode({k: v for k, v in parts.items() if v}, safe='/')}"

    @classmethod
    def decode(cls, ref: str) -> WorkloadRef:
        """Raises ConnectorError."""
        place, _, query = ref.partition("?")
        namespace, slash, name = place.partition("/")
        if not slash or not namespace or not name or "/" in name or _UNSAFE.search(place):
            raise ConnectorError(f"{ref!r} names no workload: it must be like namespace/name")
        parts = dict(parse_qsl(query))
        owner = None
        if parts.get("kind") and parts.get("owner"):
            owner = Owner(
                kind=parts["kind"],
                api_version=parts.get("api", ""),
                name=parts["owner"],
                uid=parts.get("owner_uid", ""),
            )
        number = parts.get("number", "")
        return cls(
            namespace=namespace,
            name=name,
            uid=parts.get("uid", ""),
            number=int(number) if number.isdigit() else 0,
            owner=owner,
        )


def owner_of(workload: Mapping[str, Any]) -> Owner | None:
    """The controller of a Workload, else its first owner."""
    references = [r for r in (workload.get("metadata") or {}).get("ownerReferences") or [] if isinstance(r, dict)]
    references.sort(key=lambda reference: not reference.get("controller"))
    for reference in references:
        if reference.get("kind") and reference.get("name"):
            return Owner(
                kind=str(reference["kind"]),
                api_version=str(reference.get("apiVersion") or ""),
                name=str(reference["name"]),
                uid=str(reference.get("uid") or ""),
            )
    return None


def pod_selectors(ref: WorkloadRef) -> list[dict[str, str]]:
    """Labels of the workload's pods, in the order in which to try them: the first that finds pods is right."""
    owner = ref.owner
    if owner is None:
        names = (ref.name,)
        return [{POD_GROUP: ref.name}, *({label: name} for name in names for label in _BY_NAME)]
    if owner.kind == "Pod":
        return [{POD_GROUP: ref.name}]
    if owner.kind == "Job":
        by_uid = [{label: owner.uid} for label in ("batch.kubernetes.io/controller-uid", "controller-uid") if owner.uid]
        return [*by_uid, {"job-name": owner.name}]
    if owner.kind in ("JobSet", "TrainJob"):
        return [{"jobset.sigs.k8s.io/jobset-name": owner.name}]
    if owner.kind in _KUBEFLOW:
        return [{"training.kubeflow.org/job-name": owner.name}]
    if owner.kind == "RayCluster":
        return [{"ray.io/cluster": owner.name}]
    if owner.kind in ("RayJob", "RayService"):
        return [{"ray.io/originated-from-cr-name": owner.name}]
    if owner.kind == "LeaderWorkerSet":
        return [{"leaderworkerset.sigs.k8s.io/name": owner.name}]
    if owner.kind == "AppWrapper":
        return [{"workload.codeflare.dev/appwrapper": owner.name}]
    return [{label: owner.name} for label in _BY_NAME]


_BY_NAME = (
    "training.kubeflow.org/job-name", "jobset.sigs.k8s.io/jobset-name", "job-name", "ray.io/cluster",
    "ray.io/originated-from-cr-name", "leaderworkerset.sigs.k8s.io/name", "workload.codeflare.dev/appwrapper",
)  # fmt: skip


def belongs(pod: Mapping[str, Any], ref: WorkloadRef) -> bool:
    """Does a pod name the workload, or its owner, itself?"""
    meta = pod.get("metadata") or {}
    if (meta.get("annotations") or {}).get(WORKLOAD_ANNOTATION) == ref.name:
        return True
    owner = ref.owner
    if owner is None:
        return False
    if owner.kind == "Pod":
        return bool(meta.get("name") == owner.name and (not owner.uid or meta.get("uid") == owner.uid))
    return any(r.get("uid") == owner.uid for r in meta.get("ownerReferences") or [] if owner.uid)


def is_managed(pod: Mapping[str, Any]) -> bool:
    """May a pod belong to a workload at all?"""
    labels = (pod.get("metadata") or {}).get("labels") or {}
    return any(label in labels for label in OWNER_LABELS)


def selector(labels: Mapping[str, str]) -> str:
    """As the API takes it."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def in_order(pods: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Pods in the order of their ranks: leaders first, then by index, then by name."""
    return sorted(pods, key=_order)


def _order(pod: Mapping[str, Any]) -> tuple[Any, ...]:
    meta = pod.get("metadata") or {}
    labels = {**(meta.get("annotations") or {}), **(meta.get("labels") or {})}
    role = str(labels.get("training.kubeflow.org/replica-type") or labels.get("ray.io/node-type") or "").lower()
    indexes = tuple(int(labels[key]) if str(labels.get(key, "")).isdigit() else -1 for key in _INDEXES)
    name = str(meta.get("name") or "")
    number = re.search(r"(\d{1,9})$", name)
    return (role not in _LEADERS, indexes, int(number[1]) if number else -1, name)


def nodes_of(pods: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Nodes on which the pods ran, each once, in the pods' order."""
    names = (str((pod.get("spec") or {}).get("nodeName") or "") for pod in pods)
    return tuple(dict.fromkeys(name for name in names if name))


def gpus_per_node(pods: Sequence[Mapping[str, Any]]) -> int | None:
    """The most GPUs that the pods had on one node; None when they asked for none."""
    by_node: dict[str, int] = {}
    for pod in pods:
        spec = pod.get("spec") or {}
        node = str(spec.get("nodeName") or "")
        asked = sum(_gpus(container) for container in spec.get("containers") or [])
        by_node[node] = by_node.get(node, 0) + asked
    by_node.pop("", None)
    return max(by_node.values(), default=0) or None


def _gpus(container: Mapping[str, Any]) -> int:
    resources = container.get("resources") or {}
    asked = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return sum(int(str(n)) for name, n in asked.items() if GPU_RESOURCES.fullmatch(name) and str(n).isdigit())
