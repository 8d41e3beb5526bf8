"""Where attempts and evidence come from: each configured source, and whether it answers."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from django.conf import settings
from django.utils import timezone

from triage.access.sight import current
from triage.configuration import Configuration
from triage.models import Attempt, Cluster, Collection, CollectionState, Discovery
from triage.services.sources import FILES, configuration

SILENT_TURNS = 20
"""A source that no worker searched in so many turns is said to be silent."""
SILENT_LEAST = timedelta(minutes=10)
RECENT = timedelta(hours=24)
MAX_COLLECTIONS = 2_000
BAD = ("error", "missing", "partial")


class State(StrEnum):
    """How a source that finds attempts is."""

    OK = "ok"
    FAILING = "failing"
    """It did not answer the last search to its end."""
    SILENT = "silent"
    """No worker searches it."""
    NEW = "new"
    """Not searched yet."""
    ASKED = "asked"
    """It finds none: it is asked when an attempt of its cluster is collected."""


@dataclass(frozen=True)
class Collected:
    """What a source gave for the attempts of the last day."""

    times: int
    incomplete: int
    note: str = ""
    """Of the latest that was not complete."""


@dataclass(frozen=True)
class SourceRow:
    """One configured source."""

    key: str
    cluster: str
    name: str
    kind: str
    state: State
    searched_at: datetime | None = None
    answered_at: datetime | None = None
    found: int = 0
    error: str = ""
    collected: Collected | None = None

    @property
    def finds(self) -> bool:
        return self.state != State.ASKED

    @property
    def trouble(self) -> bool:
        """Attempts may be missing because of it."""
        return self.state in (State.FAILING, State.SILENT)


@dataclass(frozen=True)
class Sources:
    """All of them, and what is wrong in the configuration."""

    rows: list[SourceRow]
    errors: tuple[str, ...]
    path: str
    """Of the configuration's file; empty when there is none."""
    hidden: bool
    """There are others, of clusters that the reader doesn't see whole."""


def sources() -> Sources:
    """The sources of the clusters that the reader sees whole, with their searches and what they gave in the last day.
    The number of queries is fixed.
    """
    found = configuration()
    given = _collected()
    rows = _rows(found)
    shown = [_with(row, given.get(row.key)) for row in _seen(rows)]
    everything = current().everything
    path = found.path if everything and found.path != "environment" else ""
    return Sources(shown, found.errors if everything else (), path, len(shown) < len(rows))


def troubles(clusters: tuple[str, ...] = ()) -> list[SourceRow]:
    """The sources because of which attempts may be missing, of these clusters or of all that the reader sees whole."""
    rows = _seen([row for row in _rows(configuration()) if row.trouble])
    return [row for row in rows if not clusters or not row.cluster or row.cluster in clusters]


def any_configured() -> bool:
    """Whether attempts appear by themselves."""
    return bool(_finders(configuration()))


# --- parts ------------------------------------------------------------------------------------------------------------


def _seen(rows: list[SourceRow]) -> list[SourceRow]:
    """Those of clusters that the reader sees whole: what a search says may name any job of its cluster."""
    seen = current()
    if seen.everything or not rows:
        return rows
    names = set(Cluster.objects.filter(pk__in=seen.clusters).values_list("name", flat=True))
    return [row for row in rows if row.cluster in names]


def _finders(found: Configuration) -> list[str]:
    keys = [source.key for cluster in found.clusters.values() for source in cluster.sources if source.finds]
    return [*([FILES] if settings.FAULTLINE_WATCH else []), *keys]


def _rows(found: Configuration) -> list[SourceRow]:
    finders = _finders(found)
    searched = {row.connector: row for row in Discovery.objects.filter(connector__in=finders)} if finders else {}
    now = timezone.now()
    rows = [_row(FILES, "", "watched folders", "files", searched.get(FILES), now)] if FILES in finders else []
    for cluster in found.clusters.values():
        for source in cluster.sources:
            if source.finds:
                rows.append(_row(source.key, cluster.name, source.name, source.kind, searched.get(source.key), now))
            else:
                rows.append(SourceRow(source.key, cluster.name, source.name, source.kind, State.ASKED))
    return rows


def _row(key: str, cluster: str, name: str, kind: str, row: Discovery | None, now: datetime) -> SourceRow:
    if row is None or row.last_run_at is None:
        return SourceRow(key, cluster, name, kind, State.NEW)
    patience = max(SILENT_LEAST, SILENT_TURNS * timedelta(seconds=settings.FAULTLINE_BEAT_SECONDS["discover"]))
    seen = max(filter(None, (row.last_run_at, row.heartbeat_at)))
    if row.answered_at is None or row.answered_at < row.last_run_at:
        state = State.FAILING
    else:
        state = State.OK
    if now - seen > patience:
        state = State.SILENT
    return SourceRow(key, cluster, name, kind, state, row.last_run_at, row.answered_at, row.last_found, row.last_error)


def _with(row: SourceRow, collected: Collected | None) -> SourceRow:
    return SourceRow(**{**vars(row), "collected": collected})


def _collected() -> dict[str, Collected]:
    """By source, of the attempts that ended within the last day; the newest MAX_COLLECTIONS are looked at."""
    recent = Attempt.objects.filter(sort_at__gte=timezone.now() - RECENT).order_by("-sort_at", "-id").values("pk")
    done = Collection.objects.filter(attempt__in=recent[:MAX_COLLECTIONS], state=CollectionState.DONE)
    tally: dict[str, list[Any]] = defaultdict(lambda: [0, 0, ""])
    for key, reports in done.order_by("-finished_at", "-id").values_list("connector", "reports")[:MAX_COLLECTIONS]:
        bad = [report for report in reports if report.get("status") in BAD]
        numbers = tally[key]
        numbers[0] += 1
        numbers[1] += bool(bad)
        numbers[2] = numbers[2] or next((report.get("note") or "" for report in bad), "")
    return {key: Collected(*numbers) for key, numbers in tally.items()}
