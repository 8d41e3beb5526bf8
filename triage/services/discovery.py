"""Attempts that a search found become known; whoever holds a source's lease searches it.

The lease and all its times are by the database's clock, so that workers whose clocks differ agree on who holds it.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec
from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now

from connectors.base import ConfigError, FoundAttempt
from engine import model as engine
from triage.configuration import ClusterConfig, SourceConfig
from triage.models import Attempt, Cluster, Discovery, RunningAttempt, TriageState
from triage.services.attempts import AttemptRefused, record_attempt
from triage.services.clock import database_now
from triage.services.collecting import add_collection
from triage.services.facts import engine_attempt, keepable, moment, short, told
from triage.services.queue import Job, enqueue
from triage.services.recollecting import plan_recollection
from triage.services.sources import find_source
from triage.services.triage import request_triage

FIRST_LOOK = 600.0
"""Seconds after its start before which a running attempt is not looked at."""


@dataclass(frozen=True)
class SearchLease:
    """The right to search one source, for as long as it is renewed."""

    discovery_id: int
    token: uuid.UUID
    cursor: dict[str, Any]


def lease_search(key: str) -> SearchLease | None:
    """Takes on the search of a source. None when another worker is at it."""
    discovery, _ = Discovery.objects.get_or_create(connector=key, cluster=key.partition("/")[0] if "/" in key else "")
    silent = Now() - timedelta(seconds=settings.FAULTLINE_LEASE_SECONDS)
    free = Q(lease__isnull=True) | Q(heartbeat_at__isnull=True) | Q(heartbeat_at__lt=silent)
    token = uuid.uuid4()
    if not Discovery.objects.filter(free, pk=discovery.pk).update(lease=token, heartbeat_at=Now()):
        return None
    cursor = Discovery.objects.values_list("cursor", flat=True).get(pk=discovery.pk)  # as the last holder left it
    return SearchLease(discovery.pk, token, cursor)


def renew_search(lease: SearchLease) -> bool:
    """Says that the search goes on; False when the lease was lost."""
    return bool(_held(lease).update(heartbeat_at=Now()))


def keep_cursor(lease: SearchLease, cursor: dict[str, Any]) -> bool:
    """Keeps how far the search has come; False, and nothing kept, when the lease was lost."""
    return bool(_held(lease).update(cursor=keepable(cursor), heartbeat_at=Now()))


def end_search(lease: SearchLease, *, found: int, error: str, answered: bool) -> None:
    """Gives the lease back, with what became of the search. A source that answered to the end may still have told of an
    attempt that could not be recorded: then there is an error too.
    """
    facts: dict[str, Any] = {"last_run_at": Now(), "last_error": told(error, 1000), "last_found": found}
    if answered:
        facts["answered_at"] = Now()
    _held(lease).update(lease=None, heartbeat_at=None, **facts)


def search_soon(key: str) -> None:
    """Asks a worker to search a source now instead of at the next turn. Raises ConfigError."""
    _, source = find_source(key)
    if not source.finds:
        raise ConfigError(f"source {key!r} finds no attempts: it is asked when one is collected")
    enqueue(Job.SEARCH, key)


def _held(lease: SearchLease) -> Any:
    return Discovery.objects.filter(pk=lease.discovery_id, lease=lease.token)


def record_found(found: FoundAttempt, cluster: ClusterConfig, source: SourceConfig) -> Attempt | None:
    """An attempt of a cluster, to be collected by all of its sources. None while it runs. Raises AttemptRefused."""
    facts = msgspec.structs.replace(
        found.attempt, workload=msgspec.structs.replace(found.attempt.workload, cluster=cluster.name)
    )
    if facts.ended_at is None and facts.started_at is not None:
        _record_running(facts, found.ref, cluster, source)
        return None
    return record_ended(facts, found.ref, cluster, source, label=found.label, content_key=found.content_key)


@transaction.atomic
def record_ended(
    facts: engine.Attempt, ref: str, cluster: ClusterConfig, source: SourceConfig, *, label: str, content_key: str
) -> Attempt:
    """Records an attempt that has ended, and asks for its triage when there is anything new."""
    attempt = _record(facts, ref, cluster, source, label, content_key, f"found by {source.key}")
    RunningAttempt.objects.filter(
        cluster=cluster.name, workload_id=facts.workload.id, number=facts.number, connector=source.key
    ).delete()
    return attempt


@transaction.atomic
def record_running(
    facts: engine.Attempt, ref: str, cluster: ClusterConfig, source: SourceConfig, outcome: str, reason: str
) -> Attempt:
    """Records what a running attempt looks like, and asks for its triage. It is looked at on until its end."""
    label = facts.workload.name or facts.workload.id
    return _record(facts, ref, cluster, source, label, f"live:{outcome}", reason)


def _record(
    facts: engine.Attempt,
    ref: str,
    cluster: ClusterConfig,
    source: SourceConfig,
    label: str,
    content_key: str,
    reason: str,
) -> Attempt:
    """Names all sources of the attempt's cluster, and asks for its triage when there is anything new."""
    Cluster.objects.update_or_create(name=cluster.name, defaults={"time_zone": cluster.time_zone})
    attempt, _ = record_attempt(_complete(facts, _known(facts)))
    news = False
    for one, handle in handles(cluster, source, ref):
        _, changed = add_collection(attempt, one.key, short(handle, 1024), label=label, content_key=content_key)
        news = news or changed
    news = news or attempt.triage_state == TriageState.FAILED
    if news and request_triage(attempt.pk, reason=reason[:200]):
        plan_recollection(attempt, cluster.recollect_after)
    return attempt


def _handle(one: SourceConfig, finder: SourceConfig, ref: str) -> str | None:
    """What a source is given to collect an attempt by: the finder's handle, where it understands that one. None when
    it has nothing of the attempt.
    """
    if one.key == finder.key or (one.kind == "pods" and finder.kind == "kueue"):
        return ref
    return "" if one.collects else None


def handles(cluster: ClusterConfig, finder: SourceConfig, ref: str) -> list[tuple[SourceConfig, str]]:
    """The sources of a cluster that may have something of an attempt, each with what it is given."""
    given = [(one, _handle(one, finder, ref)) for one in cluster.sources]
    return [(one, handle) for one, handle in given if handle is not None]


def _record_running(
    facts: engine.Attempt, ref: str, cluster: ClusterConfig, source: SourceConfig
) -> RunningAttempt | None:
    if not cluster.live:
        return None
    now = database_now()
    started = moment(facts.started_at) or now
    first = max(started + timedelta(seconds=max(FIRST_LOOK, min(cluster.live, 3600.0))), now)
    running, created = RunningAttempt.objects.get_or_create(
        cluster=cluster.name,
        connector=source.key,
        workload_id=short(facts.workload.id, 253),
        number=facts.number,
        defaults={"ref": short(ref, 1024), "facts": keepable(msgspec.to_builtins(facts)), "look_at": first},
    )
    if not created:
        running.ref, running.facts = short(ref, 1024), keepable(msgspec.to_builtins(facts))
        running.save(update_fields=["ref", "facts"])
    return running


def _known(facts: engine.Attempt) -> engine.Attempt | None:
    """What is known of the attempt already."""
    attempt = (
        Attempt.objects.select_related("workload", "cluster")
        .filter(
            workload__cluster__name=facts.workload.cluster,
            workload__scheduler=facts.workload.scheduler,
            workload__workload_id=facts.workload.id,
            number=facts.number,
        )
        .first()
    )
    if attempt is not None:
        return engine_attempt(attempt)
    running = RunningAttempt.objects.filter(
        cluster=facts.workload.cluster, workload_id=facts.workload.id, number=facts.number
    ).first()
    return msgspec.convert(running.facts, engine.Attempt) if running is not None else None


def _complete(facts: engine.Attempt, known: engine.Attempt | None) -> engine.Attempt:
    """What a later look no longer tells (pods are gone, a history is forgotten) is taken from the earlier one."""
    if known is None:
        return facts
    kept = {
        name: getattr(known, name)
        for name in ("started_at", "nodes", "gpus_per_node")
        if not getattr(facts, name) and getattr(known, name)
    }
    return msgspec.structs.replace(facts, **kept)


# --- attempts that still run ------------------------------------------------------------------------------------------


def running_to_look_at(limit: int = 20) -> list[int]:
    """Running attempts whose next look is due."""
    due = RunningAttempt.objects.filter(look_at__lte=Now()).order_by("look_at", "pk")
    return list(due.values_list("pk", flat=True)[:limit])


@transaction.atomic
def lease_look(running_id: int, every: float) -> RunningAttempt | None:
    """Takes on a look, and says when the next one is due. None when another worker did, or it has ended."""
    running = RunningAttempt.objects.select_for_update().filter(pk=running_id, look_at__lte=Now()).first()
    if running is None:
        return None
    running.look_at = database_now() + timedelta(seconds=max(every, 60.0))
    running.save(update_fields=["look_at"])
    return running


def record_look(running: RunningAttempt, outcome: str) -> None:
    """What a look showed."""
    RunningAttempt.objects.filter(pk=running.pk).update(outcome=outcome)


def forget_running(before: datetime) -> int:
    """Removes what nobody has told the end of for long. Returns how many."""
    return RunningAttempt.objects.filter(found_at__lt=before).delete()[0]


__all__ = [
    "AttemptRefused",
    "SearchLease",
    "end_search",
    "forget_running",
    "handles",
    "keep_cursor",
    "lease_look",
    "lease_search",
    "record_ended",
    "record_found",
    "record_look",
    "record_running",
    "renew_search",
    "running_to_look_at",
]
