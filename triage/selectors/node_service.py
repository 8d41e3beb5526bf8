"""Whether nodes are in service: what was last said of each."""

from __future__ import annotations

from collections.abc import Sequence

from triage.models import EventKind, TimelineEvent

SERVICE_EVENTS = (EventKind.NODE_DRAINED, EventKind.NODE_RETURNED)


def service_of(cluster_id: int, nodes: Sequence[str]) -> list[tuple[str, TimelineEvent]]:
    """The latest drain or return of each of these nodes that ever had one, in their order. One query."""
    if not nodes:
        return []
    events = TimelineEvent.objects.filter(kind__in=SERVICE_EVENTS, node__in=nodes, cluster=cluster_id)
    latest = {event.node: event for event in events.order_by("node", "-happened_at", "-id").distinct("node")}
    return [(node, latest[node]) for node in nodes if node in latest]
