"""Loki's answers: entries with their labels, and the lines that the engine reads.

An entry becomes a line in CRI form, `2026-11-03T02:00:00.123456789Z stdout F text`: Loki's own time with all of its
nanoseconds stands first, and whatever envelope the text has of its own stays behind it. A CRI prefix can't be mistaken
for a part of the text, as a bare time followed by `CUDA error: ...` (a host and a tag?) could.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from engine.names import NodeNames

NODE_LABELS = (
    "node", "node_name", "nodename", "hostname", "host", "host_name", "k8s_node_name", "kubernetes_node", "instance",
)  # fmt: skip
POD_LABELS = ("pod", "pod_name", "k8s_pod_name", "kubernetes_pod_name")
RANK_LABELS = ("rank", "global_rank")


class Entry(msgspec.Struct, array_like=True, gc=False):
    """One log entry: `[<ns>, <line>]` or `[<ns>, <line>, {...}]`."""

    ns: int
    """Nanoseconds since the epoch."""
    line: str
    extra: dict[str, Any] = {}

    def metadata(self) -> dict[str, str]:
        """Structured metadata. With categorize-labels it has a key of its own, without it is the third element."""
        found = self.extra.get("structuredMetadata", self.extra)
        if not isinstance(found, dict):
            return {}
        return {str(k): str(v) for k, v in found.items() if k != "parsed" or not isinstance(v, dict)}


class LokiStream(msgspec.Struct):
    """Entries with the same labels, in the direction that was asked for."""

    stream: dict[str, str]
    values: list[Entry]


class _Data(msgspec.Struct):
    resultType: str
    result: list[LokiStream]


class Answer(msgspec.Struct):
    """The answer of query_range."""

    data: _Data
    status: str = "success"
    warnings: list[str] | None = None


_DECODER = msgspec.json.Decoder(Answer, strict=False)  # the time is a number in quotes


def parse_streams(body: bytes) -> Answer:
    """Raises msgspec.DecodeError when it isn't an answer with streams."""
    answer = _DECODER.decode(body)
    if answer.data.resultType != "streams":
        raise msgspec.ValidationError(f"resultType is {answer.data.resultType}, not streams")
    return answer


class Place(msgspec.Struct, frozen=True):
    """Which of the attempt's streams an entry belongs to."""

    node: str | None
    pod: str | None
    rank: int | None
    parts: tuple[str, ...] = ()
    """Values of the labels that a query is split by, e.g. container and file."""


class Places:
    """Labels -> Place, with the nodes as the scheduler writes them."""

    def __init__(self, nodes: Sequence[str], split_by: Sequence[str]) -> None:
        self._nodes = NodeNames(nodes)
        self._split_by = tuple(split_by)
        self.relevant = {*NODE_LABELS, *POD_LABELS, *RANK_LABELS, *split_by}

    def of(self, labels: Mapping[str, str]) -> Place:
        rank = next((labels[key] for key in RANK_LABELS if labels.get(key, "").isdigit()), None)
        return Place(
            node=self._node(labels),
            pod=next((labels[key] for key in POD_LABELS if labels.get(key)), None),
            rank=int(rank) if rank is not None and len(rank) < 9 else None,
            parts=tuple(labels[key] for key in self._split_by if labels.get(key)),
        )

    def _node(self, labels: Mapping[str, str]) -> str | None:
        """A label that names one of the attempt's nodes; else the first that names any."""
        first = None
        for key in NODE_LABELS:
            value = labels.get(key, "")
            host = value.rsplit(":", 1)[0] if value.rpartition(":")[2].isdigit() else value
            if not host:
                continue
            known = self._nodes.known(host)
            if known:
                return known
            first = first or host
        return first


class LineWriter:
    """Entries -> lines."""

    def __init__(self) -> None:
        self._second, self._text = -1, ""

    def stamp(self, ns: int) -> str:
        """RFC 3339 with nanoseconds, in UTC."""
        second = ns // 1_000_000_000
        if second != self._second:
            self._second, self._text = second, time.strftime("%Y-%m-%dT%H:%M:%S.", time.gmtime(second))
        return f"{self._text}{ns - second * 1_000_000_000:09d}Z"

    def lines(self, ns: int, line: str, channel: str = "stdout") -> str:
        """An entry as one line, or as several when it holds line breaks; each with the entry's time."""
        prefix = f"{self.stamp(ns)} {channel} F "
        if "\n" not in line:
            return f"{prefix}{line}\n"
        return "".join(f"{prefix}{part}\n" for part in line.rstrip("\n").split("\n"))
