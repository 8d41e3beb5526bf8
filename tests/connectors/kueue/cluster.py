"""Objects of a cluster with Kueue, as its API gives them. Invented names."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

NOW = 1_794_000_000.0


def at(seconds: float) -> str:
    """A time of the API."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(kind: str, status: bool, reason: str, when: float, message: str = "") -> dict[str, Any]:
    return {
        "type": kind, "status": "True" if status else "False", "reason": reason, "message": message or reason,
        "lastTransitionTime": at(when), "observedGeneration": 1,
    }  # fmt: skip


def owner(name: str = "t5-xl", kind: str = "PyTorchJob", api: str = "kubeflow.org/v1") -> dict[str, Any]:
    return {
        "apiVersion": api, "kind": kind,
        "metadata": {"name": name, "namespace": "research", "uid": f"owner-{name}"}, "status": {},
    }  # fmt: skip


def workload(
    name: str = "t5-xl", *conditions: dict[str, Any], kind: str = "PyTorchJob", api: str = "kubeflow.org/v1",
    version: str = "v1beta1", queue: str = "research-lq", namespace: str = "research", **status: Any,
) -> dict[str, Any]:  # fmt: skip
    """`name` is the owner's."""
    return {
        "apiVersion": f"kueue.x-k8s.io/{version}",
        "kind": "Workload",
        "metadata": {
            "name": f"{kind.lower()}-{name}-1f0c2", "namespace": namespace, "uid": f"wl-{name}",
            "creationTimestamp": at(NOW - 300), "labels": {"kueue.x-k8s.io/job-uid": f"owner-{name}", "user": "ada"},
            "ownerReferences": [
                {"apiVersion": api, "kind": kind, "name": name, "uid": f"owner-{name}", "controller": True}
            ],
        },
        "spec": {"queueName": queue, "active": True, "podSets": [{"name": "worker", "count": 2}]},
        "status": {"conditions": list(conditions), **status},
    }  # fmt: skip


def admitted(when: float = NOW) -> list[dict[str, Any]]:
    return [condition("QuotaReserved", True, "QuotaReserved", when - 1), condition("Admitted", True, "Admitted", when)]


def evicted(when: float, reason: str = "Preempted", detail: str = "InCohortReclamation") -> list[dict[str, Any]]:
    message = "Preempted to accommodate a workload (UID: 31f8) due to reclamation within the cohort"
    return [
        condition("QuotaReserved", False, "Pending", when + 30, message),
        condition("Admitted", False, "NoReservation", when + 30, "The workload has no reservation"),
        condition("Evicted", True, reason, when, message),
        *([condition("Preempted", True, detail, when, message)] if reason == "Preempted" else []),
        condition("Requeued", True, reason, when, message),
    ]


def pod(
    job: str, index: int, node: str = "", *, created: float = NOW + 1, exit_code: int | None = None, gpus: int = 8,
    restarts: int = 0, labels: dict[str, str] | None = None, namespace: str = "research", uid: str = "",
) -> dict[str, Any]:  # fmt: skip
    name = f"{job}-worker-{index}"
    state: dict[str, Any] = {"running": {"startedAt": at(created + 2)}}
    if exit_code is not None:
        end = {"exitCode": exit_code, "reason": "Error", "startedAt": at(created + 2), "finishedAt": at(created + 600)}
        state = {"terminated": end}
    status = {"name": "pytorch", "restartCount": restarts, "state": state, "lastState": {}}
    if restarts:
        status["lastState"] = {"terminated": {"exitCode": 1, "reason": "Error", "startedAt": at(created),
                                              "finishedAt": at(created + 1)}}  # fmt: skip
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name, "namespace": namespace, "uid": uid or f"pod-{name}", "creationTimestamp": at(created),
            "labels": labels or {
                "training.kubeflow.org/job-name": job, "training.kubeflow.org/replica-index": str(index),
                "training.kubeflow.org/replica-type": "worker",
            },
            "managedFields": [{"manager": "kubelet"}],
        },
        "spec": {
            **({"nodeName": node} if node else {}),
            "containers": [
                {"name": "pytorch", "image": "registry.example/train:1", "env": [{"name": "TOKEN", "value": "hush"}],
                 "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
            ],
        },
        "status": {"phase": "Failed" if exit_code else "Running", "containerStatuses": [status]},
    }  # fmt: skip


def event(kind: str, name: str, uid: str, reason: str, when: float, message: str, namespace: str = "research",
          number: int = 1) -> dict[str, Any]:  # fmt: skip
    return {
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": f"{name}.{number:x}", "namespace": namespace, "uid": f"ev-{name}-{number}"},
        "involvedObject": {"kind": kind, "name": name, "namespace": namespace, "uid": uid},
        "type": "Warning", "reason": reason, "message": message, "count": 1, "firstTimestamp": at(when),
        "lastTimestamp": at(when), "source": {"component": "kubelet"},
    }  # fmt: skip


def node(name: str, ready: bool = True, when: float = NOW) -> dict[str, Any]:
    return {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": f"node-{name}"},
        "status": {"conditions": [condition("Ready", ready, "KubeletReady" if ready else "NodeStatusUnknown", when)]},
    }  # fmt: skip
