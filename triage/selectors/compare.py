"""One attempt against an earlier one: only what differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Q

from engine.model import Source
from triage import times, words
from triage.models import Attempt, Stream
from triage.selectors.config_lines import settings_of
from triage.selectors.merged import failing_evidence
from triage.selectors.pod_settings import is_pods, pod_settings
from triage.selectors.streams import StreamGone
from triage.text import printable

MAX_BASES = 30
CONFIG_STREAMS = 3
"""Streams of each attempt whose first lines are read."""


@dataclass(frozen=True)
class Change:
    """One thing that is not the same. Both sides are printable; empty where there is nothing."""

    name: str
    before: str
    after: str


@dataclass(frozen=True)
class NodeChange:
    added: tuple[str, ...]
    removed: tuple[str, ...]
    kept: int

    @property
    def any(self) -> bool:
        return bool(self.added or self.removed)


@dataclass(frozen=True)
class Comparison:
    """What differs between a base and an attempt."""

    base: Attempt
    nodes: NodeChange
    facts: tuple[Change, ...]
    settings: tuple[Change, ...] = ()
    settings_alike: int = 0
    settings_read: bool = False
    """Whether both attempts have a log whose first lines tell settings."""

    @property
    def settings_compared(self) -> int:
        return self.settings_alike + len(self.settings)

    @property
    def alike(self) -> bool:
        return not (self.nodes.any or self.facts or self.settings)


def usual_base(attempt: Attempt, siblings: Sequence[Attempt]) -> Attempt | None:
    """The attempt before this one, of the same workload."""
    earlier = [sibling for sibling in siblings if sibling.number < attempt.number]
    return max(earlier, key=lambda sibling: sibling.number, default=None)


def bases(attempt: Attempt) -> list[Attempt]:
    """What an attempt can be compared with, nearest first: others of its workload, then earlier runs of its name.

    One query.
    """
    workload = attempt.workload
    alike = Q(workload=workload)
    if workload.name:
        alike |= Q(
            workload__name=workload.name, cluster=attempt.cluster_id, user=attempt.user, sort_at__lte=attempt.sort_at
        )
    found = (
        Attempt.objects.filter(alike)
        .exclude(pk=attempt.pk)
        .select_related("workload", "cluster", "diagnosis", "verdict", "verdict__diagnosis")
        .order_by("-sort_at", "-id")[:MAX_BASES]
    )
    return sorted(found, key=lambda other: other.workload_id != workload.pk)


def siblings(attempt: Attempt) -> list[Attempt]:
    """The attempts of the same workload by number, this one included: those that can be walked against one base."""
    found = Attempt.objects.filter(workload=attempt.workload_id).select_related("workload", "diagnosis", "verdict")
    return list(found.defer("diagnosis__contract").order_by("-number")[:100])[::-1]


def quick(attempt: Attempt, base: Attempt) -> Comparison:
    """The differences that need nothing but the two rows; no query."""
    return Comparison(base, _nodes(attempt, base), tuple(_facts(attempt, base)))


def compare(attempt: Attempt, base: Attempt) -> Comparison:
    """All differences. Reads the first lines of both attempts' logs. Two queries."""
    facts = [*_facts(attempt, base), *_told(attempt, base)]
    now, before = _settings(attempt), _settings(base)
    changed = [
        Change(printable(name), printable(before.get(name, "")), printable(now.get(name, "")))
        for name in dict.fromkeys([*now, *before])
        if now.get(name) != before.get(name)
    ]
    both = bool(now and before)
    return Comparison(
        base,
        _nodes(attempt, base),
        tuple(facts),
        tuple(changed) if both else (),
        sum(now[name] == before[name] for name in now.keys() & before.keys()),
        both,
    )


def _nodes(attempt: Attempt, base: Attempt) -> NodeChange:
    now, before = set(attempt.nodes), set(base.nodes)
    if not now or not before:
        return NodeChange((), (), len(now & before))
    return NodeChange(
        tuple(printable(node) for node in attempt.nodes if node not in before),
        tuple(printable(node) for node in base.nodes if node not in now),
        len(now & before),
    )


def _facts(attempt: Attempt, base: Attempt) -> list[Change]:
    """Of the two rows: the verdict first, then the scheduler's words."""

    def row(of: Attempt) -> list[tuple[str, str]]:
        return [
            ("Verdict", of.title or str(of.get_triage_state_display())),
            (
                "Cause",
                ", ".join(filter(None, (words.domain(of.domain), words.sub_domain(of.sub_domain))))
                if of.domain
                else "",
            ),
            ("Blamed nodes", ", ".join(of.blamed_nodes[:12])),
            ("State", of.state),
            ("Exit code", of.exit_code or ""),
            ("Scheduler's reason", of.reason or ""),
            ("Ran for", times.duration(of.elapsed_seconds)),
            ("Queue", of.queue),
            ("Nodes", str(len(of.nodes)) if of.nodes else ""),
            ("GPUs a node", str(of.gpus_per_node or "")),
        ]

    return _changes(row(base), row(attempt))


def _told(attempt: Attempt, base: Attempt) -> list[Change]:
    """Of the two diagnoses: what came first, and when."""

    def row(of: Attempt) -> list[tuple[str, str]]:
        contract = of.diagnosis.contract if of.diagnosis else None
        if contract is None:
            return [("First error", ""), ("Time to failure", "")]
        first = first_error(contract)
        root = contract["root_cause"]
        at = times.parse(root["at"]) if root and root["at"] else times.parse(first["at"]) if first else None
        took = (at - of.started_at).total_seconds() if at and of.started_at else None
        return [
            ("First error", first["text"] if first else ""),
            ("Time to failure", times.duration(took) if took is not None and took >= 0 else ""),
        ]

    return _changes(row(base), row(attempt))


def first_error(contract: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The earliest evidence that proves the root or shows a symptom."""
    cited = failing_evidence(contract)
    timed = [item for item in contract["evidence"] if item["id"] in cited and item["at"]]
    return min(timed, key=lambda item: item["at"], default=None)


def _changes(before: list[tuple[str, str]], after: list[tuple[str, str]]) -> list[Change]:
    return [
        Change(name, printable(old), printable(new))
        for (name, old), (_, new) in zip(before, after, strict=True)
        if old != new
    ]


def _settings(attempt: Attempt) -> dict[str, str]:
    """Of the first logs of the job, by name; rank 0 comes first where ranks have logs of their own."""
    logs = attempt.streams.filter(source__in=(Source.APPLOG.value, Source.SCHEDULER.value)).exclude(blob="")
    streams: list[Stream] = sorted(logs[:2000], key=lambda stream: (stream.source, stream.rank or 0, stream.name))
    try:
        return pod_settings(filter(is_pods, streams)) | settings_of(streams[:CONFIG_STREAMS])
    except StreamGone:
        return {}
