"""Reading incidents: the list, one with its attempts and nodes, what looks related. Rows add no queries."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Count, Exists, Func, Max, OuterRef, Prefetch, Q, QuerySet

from triage.access.viewer import seen_people
from triage.models import (
    Attempt,
    EventKind,
    Incident,
    IncidentKey,
    IncidentStatus,
    Membership,
    NotTheSame,
    Ticket,
    TimelineEvent,
)
from triage.selectors.attempts import CursorError

PAGE_SIZE = 50
MAX_ATTEMPTS = 25
MAX_NODES = 20
SERVICE_EVENTS = (EventKind.NODE_DRAINED, EventKind.NODE_RETURNED)
STATES = {
    "open": Q(status__in=[status for status in IncidentStatus if status != IncidentStatus.RESOLVED]),
    "resolved": Q(status=IncidentStatus.RESOLVED),
}


@dataclass(frozen=True)
class IncidentPage:
    """One page of the list, the last to fail first."""

    incidents: list[Incident]
    """With `assignee`."""
    older: str | None


@dataclass(frozen=True)
class NodeShare:
    """A node that attempts of the incident blame."""

    node: str
    cluster: str
    times: int
    last_at: datetime
    drained: bool = False
    """Out of service now, as people said."""


@dataclass(frozen=True)
class WorkloadShare:
    workload_id: str
    name: str
    user: str
    times: int


@dataclass(frozen=True)
class IncidentDetail:
    """All that the page of an incident shows beside its timeline."""

    incident: Incident
    attempts: list[Attempt]
    """Newest first, at most MAX_ATTEMPTS."""
    nodes: list[NodeShare]
    node_count: int
    workloads: list[WorkloadShare]
    workload_count: int
    tickets: list[Ticket]
    merged: list[Incident]
    keys: list[str]


def list_incidents(
    state: str = "open", *, assignee: int | None = None, domain: str = "", cursor: str | None = None
) -> IncidentPage:
    """A page of incidents. `state` is open or resolved; merged ones show only in what they were merged into.

    Raises CursorError.
    """
    query = _listed(state, assignee, domain)
    if cursor:
        at, pk = _decode(cursor)
        query = query.filter(Q(last_at__lte=at) & (Q(last_at__lt=at) | Q(pk__lt=pk)))
    found = list(query.select_related("assignee").order_by("-last_at", "-id")[: PAGE_SIZE + 1])
    shown = found[:PAGE_SIZE]
    older = _encode(shown[-1]) if len(found) > PAGE_SIZE else None
    return IncidentPage(shown, older)


def incident_counts(user: User) -> dict[str, int]:
    """How many there are in each view of the list: open, resolved, mine. One query."""
    return Incident.objects.filter(merged_into=None, attempts_count__gt=0).aggregate(
        open=Count("pk", filter=STATES["open"]),
        resolved=Count("pk", filter=STATES["resolved"]),
        mine=Count("pk", filter=STATES["open"] & Q(assignee=user)),
    )


@dataclass(frozen=True)
class Beside:
    """What stands before and after an incident in the list of the open ones."""

    newer: int | None
    older: int | None


def beside(incident: Incident) -> Beside:
    """Ids of the next newer and the next older open incident. Two queries."""
    if incident.last_at is None:
        return Beside(None, None)
    at, pk = incident.last_at, incident.pk
    listed = _listed("open", None, "")
    newer = listed.filter(Q(last_at__gte=at) & (Q(last_at__gt=at) | Q(pk__gt=pk))).order_by("last_at", "id")
    older = listed.filter(Q(last_at__lte=at) & (Q(last_at__lt=at) | Q(pk__lt=pk))).order_by("-last_at", "-id")
    return Beside(newer.values_list("pk", flat=True).first(), older.values_list("pk", flat=True).first())


def get_incident(incident_id: int) -> Incident:
    """One incident. Raises Incident.DoesNotExist."""
    others = [Prefetch(name, queryset=Incident.objects.all()) for name in ("merged_into", "split_from")]
    return Incident.objects.select_related("assignee").prefetch_related(*others).get(pk=incident_id)


def in_force(incident: Incident) -> Incident | None:
    """The incident itself, or what it was merged into; None when that is not seen."""
    found: Incident | None = incident
    while found is not None and found.merged_into_id is not None:
        found = Incident.objects.filter(pk=found.merged_into_id).first()
    return found


def incident_detail(incident_id: int, *, attempts: int = MAX_ATTEMPTS) -> IncidentDetail:
    """What the page of an incident shows. Raises Incident.DoesNotExist."""
    incident = get_incident(incident_id)
    members = Attempt.objects.filter(membership__incident=incident)
    nodes = list(_nodes(members)[: MAX_NODES + 1])
    workloads = (
        members.order_by()
        .values("workload__workload_id", "workload__name", "workload__user")
        .annotate(times=Count("pk"), last=Max("sort_at"))
        .order_by("-times", "-last")
    )
    return IncidentDetail(
        incident=incident,
        attempts=members_of(incident, attempts),
        nodes=_with_service(nodes[:MAX_NODES]),
        node_count=len(nodes) if len(nodes) <= MAX_NODES else _nodes(members).count(),
        workloads=[
            WorkloadShare(row["workload__workload_id"], row["workload__name"], row["workload__user"], row["times"])
            for row in workloads[:10]
        ],
        workload_count=members.order_by().values("workload").distinct().count(),
        tickets=list(incident.tickets.select_related("by")),
        merged=list(incident.merged.order_by("pk")),
        keys=list(_keys(incident)),
    )


def members_of(incident: Incident, limit: int = MAX_ATTEMPTS) -> list[Attempt]:
    """The attempts of an incident, newest first, with what a row shows of them."""
    rows = Attempt.objects.filter(membership__incident=incident)
    rows = rows.select_related("workload", "cluster", "diagnosis", "verdict__by")
    return list(rows.defer("diagnosis__contract", "search").order_by("-sort_at", "-id")[:limit])


def ordered_parts(incident: Incident) -> list[tuple[str, str]]:
    """The parts of the fingerprint, what people know best first."""
    known = ("rule", "message", "frame", "symptoms", "domain", "sub_domain", "outcome")
    rest = [name for name in incident.parts if name not in known]
    return [(name, str(incident.parts[name])) for name in (*known, *sorted(rest)) if name in incident.parts]


def related(incident: Incident, limit: int = 3) -> list[Incident]:
    """Others that may be the same failure: of the same rule, or of the same component on one of the same nodes. People
    can say that they are not.
    """
    said = NotTheSame.objects.filter(Q(low=incident, high=OuterRef("pk")) | Q(high=incident, low=OuterRef("pk")))
    nodes = list(_nodes(Attempt.objects.filter(membership__incident=incident)).values_list("node", flat=True)[:50])
    same_node = Membership.objects.filter(incident=OuterRef("pk"), attempt__blamed_nodes__overlap=nodes or [""])
    others = Incident.objects.filter(
        domain=incident.domain, sub_domain=incident.sub_domain, merged_into=None, attempts_count__gt=0
    ).exclude(pk=incident.pk)
    alike = Q(rule=incident.rule) if incident.rule else Q(pk__in=[])
    return list(others.filter(alike | Exists(same_node)).exclude(Exists(said)).order_by("-last_at", "-id")[:limit])


def people() -> list[User]:
    """Who can be given an incident."""
    return list(seen_people().order_by("first_name", "last_name", "username")[:500])


# --- parts ------------------------------------------------------------------------------------------------------------


def _listed(state: str, assignee: int | None, domain: str) -> QuerySet[Incident]:
    query = Incident.objects.filter(STATES.get(state, STATES["open"]), merged_into=None, attempts_count__gt=0)
    if assignee is not None:
        query = query.filter(assignee=assignee)
    return query.filter(domain=domain) if domain else query


def _nodes(members: QuerySet[Attempt]) -> QuerySet[Any]:
    named = members.exclude(blamed_nodes=[]).order_by().annotate(node=Func("blamed_nodes", function="unnest"))
    named = named.values("node", "cluster", "cluster__name").annotate(times=Count("pk"), last=Max("sort_at"))
    return named.order_by("-times", "node")


def _with_service(rows: list[dict[str, Any]]) -> list[NodeShare]:
    """Each with whether it is out of service: the latest such event says so. One query."""
    events = TimelineEvent.objects.filter(kind__in=SERVICE_EVENTS, node__in=[row["node"] for row in rows])
    latest = events.order_by("node", "cluster", "-happened_at", "-id").distinct("node", "cluster")
    kinds = {(node, cluster): kind for node, cluster, kind in latest.values_list("node", "cluster", "kind")}
    return [
        NodeShare(
            row["node"],
            row["cluster__name"],
            row["times"],
            row["last"],
            kinds.get((row["node"], row["cluster"])) == EventKind.NODE_DRAINED,
        )
        for row in rows
    ]


def _keys(incident: Incident) -> QuerySet[Any]:
    direct = Q(incident=incident) | Q(incident__merged_into=incident)
    return IncidentKey.objects.filter(direct).order_by("pk").values_list("key", flat=True)[:20]


def _encode(incident: Incident) -> str:
    raw = json.dumps([incident.last_at.isoformat() if incident.last_at else "", incident.pk])
    return base64.urlsafe_b64encode(raw.encode()).decode().rstrip("=")


def _decode(cursor: str) -> tuple[datetime, int]:
    try:
        moment, pk = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        at = datetime.fromisoformat(moment)
        if type(pk) is not int or not 0 <= pk < 2**63:
            raise ValueError(cursor)
    except (ValueError, TypeError, RecursionError):
        raise CursorError("cursor: not one of ours") from None
    return at if at.tzinfo else at.replace(tzinfo=UTC), pk
