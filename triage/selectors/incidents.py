"""Reading one incident: its attempts and nodes, what looks related. Rows add no queries."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Case, Count, Exists, Func, Max, OuterRef, Prefetch, Q, QuerySet, Value, When, Window

from triage.access.viewer import seen_people
from triage.models import (
    Attempt,
    EventKind,
    Incident,
    IncidentKey,
    Membership,
    NotTheSame,
    Ticket,
    TimelineEvent,
)

MAX_ATTEMPTS = 25
MAX_NODES = 20
MAX_WORKLOADS = 10
AMONG = 500
"""Attempts that the page of an incident looks at, of the thousands that one may have."""
MOST_NODES = 50
"""So many of its nodes are looked for in other incidents."""
SERVICE_EVENTS = (EventKind.NODE_DRAINED, EventKind.NODE_RETURNED)


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
class Related:
    """Another incident that may be the same failure, and why it is proposed."""

    incident: Incident
    same_rule: bool
    nodes: tuple[str, ...]
    """Nodes that attempts of both blame, at most two."""


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
    related: list[Related]
    first_node: str = ""
    """The node that its first attempt blames first."""
    among: int | None = None
    """So many attempts that became known last are looked at for attempts, nodes and workloads; None: all of them."""


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


def incident_detail(incident_id: int, *, attempts: int = MAX_ATTEMPTS, among: int | None = None) -> IncidentDetail:
    """What the page of an incident shows. `among`: where it has more attempts, only so many that became known last are
    looked at, and nodes and workloads counted of these. Raises Incident.DoesNotExist.
    """
    incident = get_incident(incident_id)
    part = among if among is not None and incident.attempts_count > among else None
    members = _members(incident, part)
    nodes = list(_nodes(members))
    workloads = (
        members.order_by()
        .values("workload", "workload__workload_id", "workload__name", "workload__user")
        .annotate(times=Count("pk"), last=Max("sort_at"), number=Window(Count("*")))
        .order_by("-times", "-last")
    )[:MAX_WORKLOADS]
    merged = list(incident.merged.order_by("pk"))
    return IncidentDetail(
        incident=incident,
        attempts=members_of(incident, attempts, part),
        nodes=_with_service(nodes[:MAX_NODES]),
        node_count=len(nodes),
        workloads=[
            WorkloadShare(row["workload__workload_id"], row["workload__name"], row["workload__user"], row["times"])
            for row in workloads
        ],
        workload_count=next((row["number"] for row in workloads), 0),
        tickets=list(incident.tickets.select_related("by")),
        merged=merged,
        keys=_keys([incident.pk, *(one.pk for one in merged)]),
        related=_related(incident, [row["node"] for row in nodes[:MOST_NODES]], among),
        first_node=_first_node(incident),
        among=part,
    )


def members_of(incident: Incident, limit: int = MAX_ATTEMPTS, among: int | None = None) -> list[Attempt]:
    """The attempts of an incident, newest first, with what a row shows of them: which is looked up for those alone."""
    newest = _members(incident, among).order_by("-sort_at", "-id").values("pk")[:limit]
    rows = Attempt.objects.filter(pk__in=newest).select_related("workload", "cluster", "diagnosis", "verdict__by")
    return list(rows.defer("diagnosis__contract", "search").order_by("-sort_at", "-id"))


def ordered_parts(incident: Incident) -> list[tuple[str, str]]:
    """The parts of the fingerprint, what people know best first."""
    known = ("rule", "message", "frame", "symptoms", "domain", "sub_domain", "outcome")
    rest = [name for name in incident.parts if name not in known]
    return [(name, str(incident.parts[name])) for name in (*known, *sorted(rest)) if name in incident.parts]


def people() -> list[User]:
    """Who can be given an incident."""
    return list(seen_people().order_by("first_name", "last_name", "username")[:500])


# --- parts ------------------------------------------------------------------------------------------------------------


def _members(incident: Incident, among: int | None = None) -> QuerySet[Attempt]:
    """The attempts of an incident; of many only those that became known last, which an index has in this order."""
    if among is None:
        return Attempt.objects.filter(membership__incident=incident)
    latest = Membership.objects.filter(incident=incident).order_by("-attempt")
    return Attempt.objects.filter(pk__in=latest.values("attempt")[:among])


def _first_node(incident: Incident) -> str:
    """Of its first attempt, which ended when the incident says."""
    first = Attempt.objects.filter(membership__incident=incident, sort_at=incident.first_at).order_by("id")
    return next(iter(first.values_list("blamed_nodes", flat=True).first() or ()), "")


def _related(incident: Incident, nodes: list[str], among: int | None, limit: int = 3) -> list[Related]:
    """Others that may be the same failure: of the same rule, or of the same component on one of the same nodes. People
    can say that they are not.
    """
    said = NotTheSame.objects.filter(Q(low=incident, high=OuterRef("pk")) | Q(high=incident, low=OuterRef("pk")))
    same_node = Membership.objects.filter(incident=OuterRef("pk"), attempt__blamed_nodes__overlap=nodes or [""])
    others = Incident.objects.filter(
        domain=incident.domain, sub_domain=incident.sub_domain, merged_into=None, attempts_count__gt=0
    ).exclude(pk=incident.pk)
    alike = Q(rule=incident.rule) if incident.rule else Q(pk__in=[])
    found = others.filter(alike | Exists(same_node)).exclude(Exists(said)).annotate(same_rule=_as_number(alike))
    shown = list(found.order_by("-same_rule", "-last_at", "-id")[:limit])
    shared: dict[int, list[str]] = {}
    if nodes and shown:
        lists = [Membership.objects.filter(incident=one).order_by("-attempt") for one in shown]
        first, *rest = (each.values_list("attempt", "incident")[:among] for each in lists)
        others_of = dict(first.union(*rest, all=True))
        named = Attempt.objects.filter(pk__in=list(others_of), blamed_nodes__overlap=nodes).order_by()
        pairs = named.annotate(node=Func("blamed_nodes", function="unnest")).values_list("pk", "node")
        for pk, node in sorted({(others_of[attempt], node) for attempt, node in pairs}):
            if node in nodes:
                shared.setdefault(pk, []).append(node)
    return [
        Related(one, bool(one.same_rule), tuple(shared.get(one.pk, ())[:2]))  # type: ignore[attr-defined]
        for one in shown
    ]


def _as_number(condition: Q) -> Case:
    return Case(When(condition, then=Value(1)), default=Value(0))


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


def _keys(incidents: list[int]) -> list[str]:
    keys = IncidentKey.objects.filter(incident__in=incidents).order_by("pk")
    return list(keys.values_list("key", flat=True)[:20])
