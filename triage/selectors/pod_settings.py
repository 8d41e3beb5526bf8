"""Settings that the pods of a job carry, for comparing two runs: images with digests, commands, variables, limits."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from triage.models import Stream
from triage.selectors.streams import StreamGone
from triage.services.sources import blob_store

MAX_BYTES = 32 << 20
"""A larger list of pods is not read."""
MAX_VALUES = 4
MAX_VALUE = 300
_PRIVATE = re.compile(r"(?i)token|secret|passw|credential|api_?key|private")


def pod_settings(streams: Iterable[Stream]) -> dict[str, str]:
    """By name; of pods that differ all values, at most MAX_VALUES. A list that can't be read gives nothing.

    Raises StreamGone.
    """
    found: dict[str, dict[str, None]] = {}
    for stream in streams:
        for pod in _pods(stream):
            for name, value in _of_pod(pod):
                found.setdefault(name, {})[value[:MAX_VALUE]] = None
    return {name: ", ".join(list(values)[:MAX_VALUES]) for name, values in found.items()}


def is_pods(stream: Stream) -> bool:
    """Whether it is a list of pods that can be read."""
    named = stream.source == "scheduler" and stream.name.rpartition("/")[2].startswith("pods")
    return named and stream.size <= MAX_BYTES


def _pods(stream: Stream) -> Iterator[dict[str, Any]]:
    if not stream.blob:
        raise StreamGone(f"{stream.name}: no longer kept")
    try:
        with blob_store().open(stream.blob) as source:
            document = json.loads(source.read(MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return
    items = document.get("items", [document]) if isinstance(document, dict) else []
    yield from (item for item in items if isinstance(item, dict)) if isinstance(items, list) else ()


def _of_pod(pod: dict[str, Any]) -> Iterator[tuple[str, str]]:
    spec, status = _mapping(pod, "spec"), _mapping(pod, "status")
    for container in _mappings(spec, "initContainers") + _mappings(spec, "containers"):
        name = str(container.get("name") or "container")
        if isinstance(container.get("image"), str):
            yield f"image of {name}", container["image"]
        for key in ("command", "args"):
            words = container.get(key)
            if isinstance(words, list) and words:
                yield f"{key} of {name}", " ".join(str(word) for word in words)
        for variable in _mappings(container, "env"):
            key, value = variable.get("name"), variable.get("value")
            if isinstance(key, str) and isinstance(value, str) and not _PRIVATE.search(key):
                yield f"{key} of {name}", value
        for key, amount in _mapping(_mapping(container, "resources"), "limits").items():
            yield f"{key} of {name}", str(amount)
    for told in _mappings(status, "containerStatuses"):
        digest = str(told.get("imageID") or "").rpartition("@")[2]
        if digest:
            yield f"image digest of {told.get('name') or 'container'}", digest


def _mapping(value: dict[str, Any], key: str) -> dict[str, Any]:
    inner = value.get(key)
    return inner if isinstance(inner, dict) else {}


def _mappings(value: dict[str, Any], key: str) -> list[dict[str, Any]]:
    inner = value.get(key)
    return [item for item in inner if isinstance(item, dict)] if isinstance(inner, list) else []
