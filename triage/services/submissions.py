"""What programs say of an attempt: made known once, its facts stated bit by bit."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction

from engine import model as engine
from triage.models import Attempt
from triage.services.attempts import record_attempt
from triage.services.facts import engine_attempt, keepable, seconds

FACTS = ("state", "exit_code", "reason", "started_at", "ended_at", "nodes", "gpus_per_node")
WORKLOAD = ("name", "user", "queue")


@transaction.atomic
def submit_attempt(
    *, cluster: str, scheduler: str, workload_id: str, number: int, facts: dict[str, Any],
    actor: AbstractBaseUser | None = None,
) -> tuple[Attempt, bool]:  # fmt: skip
    """Makes an attempt known, or states facts of one that is. What `facts` leaves out stays as it is.

    The second value says whether it is new. Raises AttemptRefused.
    """
    known = (
        Attempt.objects.select_related("workload", "cluster")
        .filter(
            workload__cluster__name=keepable(cluster),
            workload__scheduler=keepable(scheduler),
            workload__workload_id=keepable(workload_id),
            number=number,
        )
        .first()
    )
    if known is None:
        base = engine.Attempt(
            workload=engine.Workload(id=workload_id, scheduler=scheduler, cluster=cluster), number=number
        )
        return record_attempt(_with(base, facts), actor=actor)
    return _state(known, facts, actor), False


@transaction.atomic
def state_facts(attempt_id: int, facts: dict[str, Any], *, actor: AbstractBaseUser | None = None) -> Attempt:
    """States facts of a known attempt. Raises Attempt.DoesNotExist, AttemptRefused."""
    return _state(Attempt.objects.get(pk=attempt_id), facts, actor)


def _state(known: Attempt, facts: dict[str, Any], actor: AbstractBaseUser | None) -> Attempt:
    locked = Attempt.objects.select_for_update(of=("self",)).select_related("workload", "cluster").get(pk=known.pk)
    if not facts:
        return locked
    attempt, _ = record_attempt(_with(engine_attempt(locked), facts), actor=actor)
    return attempt


def _with(base: engine.Attempt, facts: dict[str, Any]) -> engine.Attempt:
    plain = {name: _value(value) for name, value in facts.items() if name in FACTS}
    workload = {name: value for name, value in facts.items() if name in WORKLOAD}
    if workload:
        plain["workload"] = msgspec.structs.replace(base.workload, **workload)
    return msgspec.structs.replace(base, **plain)


def _value(value: Any) -> Any:
    if isinstance(value, datetime):
        return seconds(value)
    return tuple(value) if isinstance(value, list) else value
