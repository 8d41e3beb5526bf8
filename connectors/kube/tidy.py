"""Objects of the API as they are kept: without what is secret or only bulk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

_DROPPED = {
    "managedFields", "env", "envFrom", "volumes", "volumeMounts", "volumeDevices", "volumesInUse", "command", "args",
    "images", "selfLink", "imagePullSecrets", "resourceVersion", "lifecycle", "livenessProbe", "readinessProbe",
    "startupProbe",
}  # fmt: skip
"""Environment and arguments may hold passwords."""
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def tidy(value: Any) -> Any:
    """The same without environment, arguments, volumes, probes and management fields."""
    if isinstance(value, dict):
        return {key: tidy(item) for key, item in value.items() if key not in _DROPPED and key != _LAST_APPLIED}
    if isinstance(value, list):
        return [tidy(item) for item in value]
    return value


def as_list(items: Sequence[dict[str, Any]]) -> bytes:
    """A file like `kubectl get ... -o json` writes."""
    return as_json({"apiVersion": "v1", "kind": "List", "items": list(items)})


def as_json(item: Any) -> bytes:
    """The same object gives the same bytes, wherever it was kept meanwhile."""
    return msgspec.json.format(msgspec.json.encode(item, order="deterministic"), indent=1) + b"\n"
