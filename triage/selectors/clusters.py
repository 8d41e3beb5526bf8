"""Clusters as they are configured, and the newest check of each. How searches go is told by sources.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from triage.configuration import ClusterConfig, Configuration, SourceConfig
from triage.layers import PAGE
from triage.models import (
    Attempt,
    CheckState,
    ClusterCheck,
    ConfiguredCluster,
    ConfiguredSource,
    EventKind,
    SourceCheck,
    TimelineEvent,
)
from triage.services.checking import is_going_on
from triage.services.clock import database_now

SLOW_TO_START = timedelta(seconds=10)
"""A check that waits longer for a worker says so."""
CHANGES_SHOWN = 20
WORKS = ("ok", "empty", "partial")


@dataclass(frozen=True)
class CheckedSource:
    """One source of a check, as far as it is."""

    name: str
    kind: str
    state: str
    """waiting | asking | done | lost"""
    report: dict[str, Any] = field(default_factory=dict)

    @property
    def works(self) -> bool:
        return self.state == "done" and self.report.get("status") in WORKS

    @property
    def asked(self) -> list[str]:
        return [line for line in str(self.report.get("query") or "").split("\n") if line]


@dataclass(frozen=True)
class Check:
    """The newest check of a cluster."""

    row: ClusterCheck
    sources: list[CheckedSource]
    going_on: bool
    unanswered: bool
    """Whether no worker has taken it on for a while."""

    @property
    def done(self) -> int:
        return sum(source.state in ("done", "lost") for source in self.sources)

    @property
    def working(self) -> int:
        return sum(source.works for source in self.sources)


@dataclass(frozen=True)
class SourceRow:
    """A source of a cluster, from wherever it is set up."""

    name: str
    kind: str
    finds: bool
    page: ConfiguredSource | None
    """Where it is set up on a page."""
    errors: Sequence[str]
    """Why it is left out."""
    shadowed: bool = False
    """Whether a page has one of the same name, which is not used."""


@dataclass(frozen=True)
class ClusterRow:
    """A cluster as lists show it."""

    name: str
    config: ClusterConfig | None
    """None when nothing of it can be used."""
    page: ConfiguredCluster | None
    sources: list[SourceRow]
    errors: list[str]
    """What is wrong with the cluster itself."""
    attempts: int = 0

    @property
    def trouble(self) -> int:
        """Sources with an error in their set-up, and the cluster's own errors."""
        return len(self.errors) + sum(bool(row.errors) for row in self.sources)


def list_clusters(found: Configuration) -> list[ClusterRow]:
    """Every cluster that is set up anywhere, by name."""
    pages = {row.name: row for row in ConfiguredCluster.objects.prefetch_related("sources__changed_by")}
    names = sorted({*found.clusters, *pages, *_named_in(found.errors)})
    return [_row(name, found, pages.get(name)) for name in names]


def get_cluster(found: Configuration, name: str) -> ClusterRow | None:
    """One of them, with how many attempts it has."""
    page = ConfiguredCluster.objects.prefetch_related("sources__changed_by").filter(name=name).first()
    if page is None and name not in found.clusters and name not in _named_in(found.errors):
        return None
    attempts = Attempt.objects.filter(cluster__name=name)[:1000].count()
    return _row(name, found, page, attempts)


def get_check(name: str) -> Check | None:
    """The newest check of a cluster."""
    row = ClusterCheck.objects.select_related("asked_by").prefetch_related("sources").filter(cluster=name).first()
    if row is None:
        return None
    now = database_now()
    sources = []
    unanswered = False
    for one in row.sources.all():
        one.check_of = row
        unanswered = unanswered or (one.state == CheckState.WAITING and now - row.asked_at > SLOW_TO_START)
        sources.append(CheckedSource(one.source, one.kind, _state(one, now), one.report))
    return Check(row, sources, any(source.state in ("waiting", "asking") for source in sources), unanswered)


def get_changes(name: str) -> list[TimelineEvent]:
    """The newest changes of a cluster's set-up, newest first."""
    kinds = (
        EventKind.CLUSTER_CONFIGURED, EventKind.CLUSTER_REMOVED, EventKind.SOURCE_CONFIGURED, EventKind.SOURCE_REMOVED,
    )  # fmt: skip
    events = TimelineEvent.objects.filter(cluster__name=name, kind__in=kinds).select_related("actor")
    return list(events.order_by("-happened_at", "-id")[:CHANGES_SHOWN])


def _state(one: SourceCheck, now: datetime) -> str:
    if one.state == CheckState.DONE:
        return "done"
    return str(one.state) if is_going_on(one, now) else "lost"


def _row(name: str, found: Configuration, page: ConfiguredCluster | None, attempts: int = 0) -> ClusterRow:
    config = found.clusters.get(name)
    of_pages = {source.name: source for source in page.sources.all()} if page is not None else {}
    used: dict[str, SourceConfig] = {source.name: source for source in config.sources} if config is not None else {}
    wrong = _errors_of_sources(found.errors, name)
    sources = []
    for source in sorted({*of_pages, *used, *wrong}):
        mine = of_pages.get(source)
        shadowed = mine is not None and found.places.get((name, source)) != PAGE
        mine = None if shadowed else mine
        kind = used[source].kind if source in used else mine.kind if mine is not None else ""
        sources.append(
            SourceRow(
                name=source, kind=kind, finds=source in used and used[source].finds, page=mine,
                errors=wrong.get(source, []), shadowed=shadowed,
            )
        )  # fmt: skip
    return ClusterRow(name, config, page, sources, _errors_of_cluster(found.errors, name), attempts)


def _named_in(errors: Sequence[str]) -> set[str]:
    found = set()
    for error in errors:
        inside = error.partition("[clusters.")[2].partition("]")[0]
        if inside:
            found.add(inside.partition(".sources.")[0])
    return found


def _errors_of_sources(errors: Sequence[str], cluster: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for error in errors:
        rest = error.partition(f"[clusters.{cluster}.sources.")[2]
        name, bracket, words = rest.partition("]: ")
        if bracket:
            found.setdefault(name, []).append(words)
    return found


def _errors_of_cluster(errors: Sequence[str], cluster: str) -> list[str]:
    return [words for error in errors if (words := error.partition(f"[clusters.{cluster}]: ")[2])]
