"""Attempts become known, and what the scheduler says of them changes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from engine import model as engine
from triage.access.sight import all_seeing, current
from triage.models import Attempt, Cluster, EventKind, Workload
from triage.services.events import record_event
from triage.services.facts import keepable, moment, short, told

MAX_NUMBER = 2**31 - 1
_SEARCHED_NODES = 64


class AttemptRefused(ValueError):
    """The facts of an attempt can't be kept; one line that names the key."""


def record_attempt(facts: engine.Attempt, *, actor: AbstractBaseUser | None = None) -> tuple[Attempt, bool]:
    """Records an attempt, or what is new about a known one; the row is locked until the transaction ends.

    Identity is cluster, scheduler, workload id and number. Returns the attempt and whether it is new. Raises
    AttemptRefused, also when whoever looks may not: the answer is the same whether the attempt is known or not.
    """
    _check(facts)
    with transaction.atomic():
        if not current().sees_cluster(_cluster_id(facts)) and not _known(facts).exists():
            raise AttemptRefused(
                "workload.cluster: your teams don't see this cluster whole, so nothing new can be sent for it"
            )
        attempt, created = _record(facts, actor)
        if not Attempt.objects.filter(pk=attempt.pk).exists():
            raise AttemptRefused("workload.queue: is not one that your teams see")
    return attempt, created


@all_seeing
def _record(facts: engine.Attempt, actor: AbstractBaseUser | None) -> tuple[Attempt, bool]:
    cluster, _ = Cluster.objects.get_or_create(name=short(facts.workload.cluster, 200))
    workload = _workload(cluster, facts.workload)
    values: dict[str, Any] = {
        "state": short(facts.state, 128),
        "exit_code": None if facts.exit_code is None else short(facts.exit_code, 64),
        "reason": None if facts.reason is None else told(facts.reason, 512),
        "started_at": moment(facts.started_at),
        "ended_at": moment(facts.ended_at),
        "nodes": [short(node, 253) for node in facts.nodes],
        "gpus_per_node": facts.gpus_per_node,
    }
    attempt, created = Attempt.objects.get_or_create(
        workload=workload,
        number=facts.number,
        defaults={
            **values,
            "cluster": cluster,
            "user": workload.user,
            "queue": workload.queue,
            "search": search_of(Attempt(workload=workload, cluster=cluster, **values)),
            # until somebody asks: the sweep does once nothing has come for a while, not before anything could come
            "triage_queued_at": Now() + timedelta(seconds=settings.FAULTLINE_QUIET_SECONDS),
        },
    )
    if created:
        # read back what the database generates
        attempt = Attempt.objects.select_for_update().get(pk=attempt.pk)
        record_event(EventKind.ATTEMPT_RECORDED, attempt=attempt, actor=actor, state=attempt.state)
    else:
        attempt = Attempt.objects.select_for_update().get(pk=attempt.pk)
        changed = [name for name, value in values.items() if getattr(attempt, name) != value]
        if (attempt.user, attempt.queue) != (workload.user, workload.queue):
            attempt.user, attempt.queue = workload.user, workload.queue
            attempt.save(update_fields=["user", "queue"])
        if changed:
            for name in changed:
                setattr(attempt, name, values[name])
            attempt.save(update_fields=changed)
            record_event(EventKind.ATTEMPT_CHANGED, attempt=attempt, actor=actor, changed=changed)
    attempt.workload, attempt.cluster = workload, cluster
    refresh_search(attempt)
    return attempt, created


def refresh_search(attempt: Attempt) -> None:
    """Brings the words that a text search looks into up to date."""
    search = search_of(attempt)
    if search != attempt.search:
        attempt.search = search
        Attempt.objects.filter(pk=attempt.pk).update(search=search)


def search_of(attempt: Attempt) -> str:
    """The words that a text search looks into."""
    diagnosis = attempt.diagnosis
    workload = attempt.workload
    words = [
        workload.workload_id,
        workload.name,
        workload.user,
        workload.queue,
        workload.scheduler,
        attempt.cluster.name,
    ]
    words += [attempt.state, attempt.reason or "", *attempt.nodes[:_SEARCHED_NODES]]
    if diagnosis is not None:
        root = diagnosis.root_cause or {}
        words += [diagnosis.title, diagnosis.rule, diagnosis.domain, diagnosis.sub_domain, diagnosis.outcome]
        words += [*root.get("nodes", ())[:_SEARCHED_NODES], *root.get("devices", ())[:_SEARCHED_NODES]]
    if attempt.verdict is not None:
        words += [attempt.verdict.title, attempt.verdict.domain, attempt.verdict.sub_domain]
        words += attempt.verdict.nodes[:_SEARCHED_NODES]
    return str(keepable(" ".join(dict.fromkeys(word.lower() for word in words if word))))


@all_seeing
def _cluster_id(facts: engine.Attempt) -> int | None:
    return Cluster.objects.filter(name=short(facts.workload.cluster, 200)).values_list("pk", flat=True).first()


def _known(facts: engine.Attempt) -> QuerySet[Attempt]:
    return Attempt.objects.filter(
        workload__cluster__name=short(facts.workload.cluster, 200),
        workload__scheduler=short(facts.workload.scheduler, 32),
        workload__workload_id=short(facts.workload.id, 253),
        number=facts.number,
    )


def _workload(cluster: Cluster, facts: engine.Workload) -> Workload:
    values = {"name": told(facts.name, 253), "user": short(facts.user, 253), "queue": short(facts.queue, 253)}
    workload, created = Workload.objects.get_or_create(
        cluster=cluster, scheduler=short(facts.scheduler, 32), workload_id=short(facts.id, 253), defaults=values
    )
    changed = [] if created else [name for name, value in values.items() if value and getattr(workload, name) != value]
    if changed:
        for name in changed:
            setattr(workload, name, values[name])
        workload.save(update_fields=changed)
    return workload


def _check(facts: engine.Attempt) -> None:
    if len(facts.workload.id) > 253:
        raise AttemptRefused("workload.id: longer than 253 characters")
    if len(facts.workload.scheduler) > 32:
        raise AttemptRefused("workload.scheduler: longer than 32 characters")
    if not 0 <= facts.number <= MAX_NUMBER:
        raise AttemptRefused(f"attempt.number: not between 0 and {MAX_NUMBER}")
    if facts.gpus_per_node is not None and not 0 <= facts.gpus_per_node <= MAX_NUMBER:
        raise AttemptRefused(f"attempt.gpus_per_node: not between 0 and {MAX_NUMBER}")
    for name in ("started_at", "ended_at"):
        at = getattr(facts, name)
        if at is not None and moment(at) is None:
            raise AttemptRefused(f"attempt.{name}: not a time that a calendar holds")
