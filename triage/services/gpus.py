"""Keeps what evidence tells of the GPUs of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

from django.db import transaction

from triage.access.sight import all_seeing
from triage.gpus import Told
from triage.models import Cluster, Gpu
from triage.services.facts import short

_TELLING = ("number", "uuid", "serial", "model")
_LENGTHS = {"uuid": 64, "serial": 32, "model": 80}


@all_seeing
@transaction.atomic
def keep_gpus(cluster: Cluster, told: Sequence[Told], at: datetime) -> int:
    """Brings the GPUs of a cluster up to date with what was told of them at a moment; returns how many rows changed.

    What was told later stays: an attempt of last month fills gaps only, and only where it speaks of the same GPU.
    """
    known = {
        (row.node, row.bus): row for row in Gpu.objects.filter(cluster=cluster, node__in={one.node for one in told})
    }
    changed = []
    for one in sorted(told, key=lambda one: (one.node, one.bus)):  # one order for all, so that two don't wait in a ring
        row = known.get((one.node, one.bus))
        if row is None:
            row = Gpu(cluster=cluster, node=short(one.node, 253), bus=one.bus[:16], told_at=at)
            merged = one
        else:
            before = Told(row.node, row.bus, row.number, row.uuid, row.serial, row.model)
            newer = at >= row.told_at
            replaced = one.is_other_than(before)
            if replaced and not newer:
                continue
            merged = one if replaced else one.with_more(before) if newer else before.with_more(one)
            if merged == before:
                continue
            row.told_at = max(at, row.told_at)
            row.changed_at = at if replaced else row.changed_at
        for name in _TELLING:
            value = asdict(merged)[name]
            setattr(row, name, short(value, _LENGTHS[name]) if name in _LENGTHS else value)
        changed.append(row)
    Gpu.objects.bulk_create(
        changed,
        batch_size=1000,
        update_conflicts=True,
        unique_fields=["cluster", "node", "bus"],
        update_fields=[*_TELLING, "told_at", "changed_at"],
    )
    return len(changed)
