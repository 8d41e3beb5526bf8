"""Running every source of a cluster once: what works, how long it took, and what to change where it doesn't.

A command asks from where it is started. A page has workers ask: they have the programs, the mounts and the secrets.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooLate
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec
from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models.functions import Now

from connectors.base import CollectionReport, ConfigError, Connector, ConnectorError
from triage.configuration import ClusterConfig, SourceConfig
from triage.models import CheckState, ClusterCheck, SourceCheck
from triage.services.clock import database_now
from triage.services.facts import keepable
from triage.services.queue import Job, enqueue
from triage.services.sources import configuration, make_connector

SECONDS = 20.0
_GRACE = 10.0
PATIENCE = 120.0
"""Seconds after which a check that no worker has taken on can be started anew."""


@dataclass(frozen=True)
class SourceAnswer:
    """What became of asking one source."""

    source: str
    kind: str
    report: CollectionReport

    @property
    def works(self) -> bool:
        return self.report.status in ("ok", "empty", "partial")


@transaction.atomic
def start_check(name: str, actor: AbstractBaseUser) -> ClusterCheck:
    """Has workers ask every source of a cluster once; while that goes on, nothing new. Raises ConfigError."""
    cluster = _cluster(name)
    now = database_now()
    ClusterCheck.objects.get_or_create(cluster=name, defaults={"asked_by": actor, "asked_at": now})
    check = ClusterCheck.objects.select_for_update().get(cluster=name)
    if any(is_going_on(one, now) for one in check.sources.all()):
        return check
    check.asked_by = actor  # type: ignore[assignment]
    check.asked_at = now
    check.save()
    check.sources.all().delete()
    for source in cluster.sources:
        row = SourceCheck.objects.create(check_of=check, source=source.name, kind=source.kind)
        enqueue(Job.CHECK, row.pk)
    return check


def is_going_on(one: SourceCheck, now: datetime) -> bool:
    """Whether an answer may still come. `now` is by the database's clock."""
    if one.state == CheckState.DONE:
        return False
    since, patience = (one.began_at, SECONDS + _GRACE) if one.began_at else (one.check_of.asked_at, PATIENCE)
    return now - since < timedelta(seconds=patience)


def run_check(source_check_id: int, seconds: float = SECONDS) -> None:
    """Asks one source of a check, on the worker that was given it; nothing when another one did, or it is over."""
    began = SourceCheck.objects.filter(pk=source_check_id, state=CheckState.WAITING).update(
        state=CheckState.ASKING, began_at=Now()
    )
    row = SourceCheck.objects.select_related("check_of").filter(pk=source_check_id).first()
    if not began or row is None:
        return
    cluster = configuration().clusters.get(row.check_of.cluster)
    source = cluster.source(row.source) if cluster is not None else None
    if cluster is None or source is None:
        report = CollectionReport(
            source=row.source, status="error", connector=row.source,
            note="this worker does not know the source: it has another faultline.toml, or other variables",
        )  # fmt: skip
    else:
        (found,) = _check_all(msgspec.structs.replace(cluster, sources=(source,)), seconds)
        report = found.report
    SourceCheck.objects.filter(pk=row.pk).update(state=CheckState.DONE, report=keepable(msgspec.to_builtins(report)))


def configuration_errors(cluster: str | None = None) -> list[str]:
    """What is wrong with the configuration, of all clusters or of one and what concerns all."""
    found = configuration()
    others = [f"[clusters.{name}" for name in _names(found.errors) if cluster is not None and name != cluster]
    return [error for error in found.errors if not any(other in error for other in others)]


def _names(errors: Sequence[str]) -> set[str]:
    return {part.split("]")[0].split(".")[0] for error in errors for part in error.split("[clusters.")[1:]}


def check_cluster(name: str, seconds: float = SECONDS) -> list[SourceAnswer]:
    """Asks every source of a cluster at the same time, each for at most `seconds`. Raises ConfigError."""
    return _check_all(_cluster(name), seconds)


def _cluster(name: str) -> ClusterConfig:
    clusters = configuration().clusters
    if name not in clusters:
        raise ConfigError(f"no cluster is called {name!r}; configured are: {', '.join(sorted(clusters)) or 'none'}")
    return clusters[name]


def _check_all(cluster: ClusterConfig, seconds: float) -> list[SourceAnswer]:
    pool = ThreadPoolExecutor(max_workers=max(len(cluster.sources), 1), thread_name_prefix="check")
    try:
        began = time.monotonic()
        asked = [(source, pool.submit(check_source, source, seconds)) for source in cluster.sources]
        checks = []
        for source, answer in asked:
            try:
                report = answer.result(max(began + seconds + _GRACE - time.monotonic(), 0.1))
            except TooLate:
                report = _failed(source, f"did not answer within {seconds:.0f} s", seconds)
            checks.append(SourceAnswer(source.name, source.kind, report))
        return checks
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def check_source(source: SourceConfig, seconds: float) -> CollectionReport:
    """Asks one source. Never raises."""
    began = time.monotonic()
    try:
        connector = make_connector(source)
        check = getattr(connector, "check", None)
        return check(seconds) if check is not None else _first_step(connector, source, began)
    except (ConfigError, ConnectorError) as error:
        return _failed(source, str(error), time.monotonic() - began)
    except Exception as error:
        words = f"internal error: {type(error).__name__}: {error}"
        return _failed(source, words, time.monotonic() - began)


def _first_step(connector: Connector, source: SourceConfig, began: float) -> CollectionReport:
    """For a connector without a check of its own: the first step of a search."""
    next(iter(connector.find({})), None)
    return CollectionReport(
        source=source.name, status="ok", connector=source.name, duration_s=round(time.monotonic() - began, 3)
    )


def _failed(source: SourceConfig, note: str, seconds: float) -> CollectionReport:
    return CollectionReport(
        source=source.name, status="error", note=note, connector=source.name, duration_s=round(seconds, 3)
    )
