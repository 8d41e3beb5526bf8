"""What connectors see of pods and workloads, in the database, so that every worker knows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from django.utils import timezone

from connectors.kube.sightings import Sighting
from triage.models import SightedObject
from triage.services.facts import keepable, moment, seconds, short

KEPT = timedelta(days=14)


class DatabaseSightings:
    """The sightings of one cluster (connectors.kube.sightings.SightingStore)."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster

    def save(self, sightings: Sequence[Sighting]) -> None:
        """Keeps sightings; one that is older than what is kept changes nothing."""
        newest = {(s.kind, s.uid): s for s in sorted(sightings, key=lambda s: s.seen_at) if s.uid}
        rows = [
            SightedObject(
                cluster=self._cluster,
                kind=short(s.kind, 32),
                namespace=short(s.namespace, 63),
                name=short(s.name, 253),
                uid=short(s.uid, 80),
                node=short(s.node, 253),
                labels=keepable(s.labels),
                object=keepable(s.object),
                seen_at=moment(s.seen_at),
                deleted=s.deleted,
            )
            for s in newest.values()
        ]
        SightedObject.objects.bulk_create(
            sorted(rows, key=lambda row: (row.kind, row.uid)),  # in one order: workers never block each other
            update_conflicts=True,
            unique_fields=["cluster", "kind", "uid"],
            update_fields=["namespace", "name", "node", "labels", "object", "seen_at", "deleted"],
            batch_size=200,
        )

    def by_labels(self, kind: str, namespace: str, labels: Mapping[str, str]) -> list[Sighting]:
        """Objects that have all of the labels."""
        rows = SightedObject.objects.filter(
            cluster=self._cluster, kind=kind, namespace=namespace, labels__contains=dict(labels)
        )
        return [_sighting(row) for row in rows.order_by("name", "uid")]

    def by_uid(self, kind: str, uid: str) -> Sighting | None:
        """One object."""
        row = SightedObject.objects.filter(cluster=self._cluster, kind=kind, uid=uid).first()
        return None if row is None else _sighting(row)


def forget_old_sightings() -> int:
    """Removes what has not been seen for long. Returns how many."""
    return SightedObject.objects.filter(seen_at__lt=timezone.now() - KEPT).delete()[0]


def _sighting(row: SightedObject) -> Sighting:
    return Sighting(
        kind=row.kind,
        namespace=row.namespace,
        name=row.name,
        uid=row.uid,
        node=row.node,
        labels=row.labels,
        object=row.object,
        seen_at=seconds(row.seen_at) or 0.0,
        deleted=row.deleted,
    )
