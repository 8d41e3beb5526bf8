"""Nodes: what happened on one, whether it is worse than the others, and which of all of them are.

A node is a name within a cluster. Its rate is: in how many of the attempts that ran on it was it to blame.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import Any

from django.db.models import F, Func, IntegerField, OuterRef, Subquery, Sum
from django.db.models.fields.json import KeyTransform

from triage.access.sql import seen_rows
from triage.models import Attempt, AttemptNode, Cluster, EventKind, Gpu, TimelineEvent
from triage.selectors.kept import kept
from triage.statistics import Z_STRICT, Share, wilson

DAYS = 90
MAX_FAULTS = 50
"""Failures whose devices are counted."""
SHOWN_FAULTS = 15
MAX_GPUS = 64
MAX_ATTEMPTS = 5000
MAX_WORKLOADS = 12
RECENT = 300
"""Attempts that workloads are counted among: of thousands, those of today matter."""
NEWEST = 20
"""Attempts that are looked at for the number of GPUs."""
NODE_EVENTS = (EventKind.NODE_NOTED, EventKind.NODE_DRAINED, EventKind.NODE_RETURNED)
SERVICE_EVENTS = (EventKind.NODE_DRAINED, EventKind.NODE_RETURNED)


class Standing(StrEnum):
    """A node beside the others."""

    WORSE = "worse"
    NOT_WORSE = "not_worse"
    UNCLEAR = "unclear"
    """Blamed more often, but not so much that chance is no explanation."""
    NEVER = "never"
    """Never blamed."""
    IDLE = "idle"
    """Nothing ran on it."""


@dataclass(frozen=True)
class Day:
    """One day of a node."""

    day: date
    attempts: int = 0
    failed: int = 0
    """Attempts that ended on it and failed, whoever was to blame."""
    blamed: int = 0
    domain: str = ""
    """Of the first failure that is blamed on the node."""
    sub_domain: str = ""
    rule: str = ""
    """Of its root."""


@dataclass(frozen=True)
class Fault:
    """A failure that is blamed on the node."""

    attempt: Attempt
    title: str
    devices: tuple[str, ...]
    at: datetime


@dataclass(frozen=True)
class Device:
    """A device of the node that failures began at."""

    name: str
    faults: int
    last: datetime


@dataclass(frozen=True)
class Slot:
    """A GPU of the node, and how often failures began at it or at a part of it."""

    gpu: Gpu
    device: Device | None
    """With the failures; None when there was none."""


@dataclass(frozen=True)
class Touched:
    """A workload that ran here."""

    name: str
    attempts: int
    failed: int
    blamed: int


@dataclass(frozen=True)
class NodePage:
    """All that the page of a node shows."""

    name: str
    cluster: Cluster
    others: list[str]
    """Other clusters that have a node of this name."""
    days: list[Day]
    attempts: int
    failed: int
    blamed: int
    lost: float
    """GPU-hours of the failures that are blamed on it."""
    share: Share
    fleet: Share
    """Of the cluster's other nodes; a trial is one attempt on one node."""
    standing: Standing
    faults: list[Fault]
    devices: list[Device]
    workloads: list[Touched]
    workloads_since: datetime | None = None
    """They are counted among what ended then or later, since more than RECENT attempts ran here; None: among all."""
    events: list[TimelineEvent] = field(default_factory=list)
    gpus: int | None = None
    model: str = ""
    """Of its GPUs, where evidence tells one."""
    slots: list[Slot] = field(default_factory=list)
    """Its GPUs by bus id, as far as evidence tells them."""
    cut: bool = False
    """More attempts ran here than were looked at."""

    @property
    def service(self) -> TimelineEvent | None:
        """The event that took it out of service or back; None when there never was one."""
        return next((event for event in self.events if event.kind in SERVICE_EVENTS), None)

    @property
    def blamed_days(self) -> int:
        return sum(1 for day in self.days if day.blamed)

    @property
    def drained(self) -> bool:
        return self.service is not None and self.service.kind == EventKind.NODE_DRAINED


def clusters_of(name: str) -> list[Cluster]:
    """The clusters in which a node of this name was seen, the one with the latest attempt first."""
    ran = AttemptNode.objects.filter(node=name, ran=True, cluster=OuterRef("pk")).order_by("-sort_at")
    known = Cluster.objects.annotate(latest=Subquery(ran.values("sort_at")[:1])).filter(latest__isnull=False)
    return list(known.order_by("-latest", "name"))


_HERE = """
WITH clusters AS MATERIALIZED (
    SELECT cluster.id, cluster.name, found.latest FROM triage_cluster AS cluster CROSS JOIN LATERAL (
        SELECT sort_at AS latest FROM triage_attemptnode AS one
        WHERE node = %(name)s AND ran AND cluster_id = cluster.id AND {seen:one} ORDER BY sort_at DESC LIMIT 1
    ) found
), here AS MATERIALIZED (
    SELECT attempt_id AS id, workload_id, sort_at, began_on, ended_on, failed, blamed FROM triage_attemptnode AS one
    WHERE node = %(name)s AND ran AND sort_at >= %(since)s AND {seen:one} AND cluster_id = (
        SELECT id FROM clusters ORDER BY coalesce(name = %(asked)s, false) DESC, latest DESC, name LIMIT 1
    ) ORDER BY sort_at DESC, attempt_id DESC LIMIT %(limit)s
), to_blame AS MATERIALIZED (
    SELECT one.id, one.sort_at, here.ended_on, one.domain, one.sub_domain, one.rule, one.lost_gpu_hours AS lost
    FROM here JOIN triage_attempt AS one ON one.id = here.id WHERE here.blamed
), spans AS (
    SELECT began_on AS first, ended_on AS last, count(*) AS ran, count(*) FILTER (WHERE failed) AS failed,
           count(*) FILTER (WHERE blamed) AS blamed
    FROM here GROUP BY 1, 2
), roots AS (
    SELECT DISTINCT ON (ended_on) ended_on AS day, domain, sub_domain, rule
    FROM to_blame ORDER BY ended_on, sort_at, id
), recent AS MATERIALIZED (
    SELECT * FROM here ORDER BY sort_at DESC, id DESC LIMIT %(recent)s
), touched AS (
    SELECT coalesce(nullif(workload.name, ''), workload.workload_id) AS name, count(*) AS ran,
           count(*) FILTER (WHERE failed) AS failed, count(*) FILTER (WHERE blamed) AS blamed
    FROM recent JOIN triage_workload AS workload ON workload.id = recent.workload_id
    GROUP BY 1 ORDER BY blamed DESC, failed DESC, ran DESC, name LIMIT %(workloads)s
)
SELECT (SELECT coalesce(json_agg(json_build_array(first, last, ran, failed, blamed)), '[]') FROM spans),
       (SELECT coalesce(json_agg(json_build_array(day, domain, sub_domain, rule)), '[]') FROM roots),
       (SELECT coalesce(json_agg(json_build_array(name, ran, failed, blamed)), '[]') FROM touched),
       (SELECT min(sort_at) FROM recent WHERE (SELECT count(*) FROM here) > %(recent)s),
       (SELECT coalesce(json_agg(id), '[]') FROM (
           SELECT id FROM to_blame ORDER BY sort_at DESC, id DESC LIMIT %(faults)s
       ) newest),
       (SELECT coalesce(sum(lost), 0) FROM to_blame),
       (SELECT one.gpus_per_node FROM (SELECT id FROM recent ORDER BY sort_at DESC, id DESC LIMIT %(newest)s) newest
        JOIN triage_attempt AS one ON one.id = newest.id WHERE one.gpus_per_node > 0
        ORDER BY one.sort_at DESC, one.id DESC LIMIT 1),
       (SELECT coalesce(json_agg(id ORDER BY coalesce(name = %(asked)s, false) DESC, latest DESC, name), '[]')
        FROM clusters)
"""
"""What ran on the node is read from one index, newest first, and no further than it is counted; of the attempts
themselves only those that it is blamed for are, and the newest. The database counts, so that thousands stay there.
"""


@dataclass(frozen=True)
class _Here:
    """What ran on a node, newest MAX_ATTEMPTS at most, counted by the database."""

    spans: list[tuple[date, date, int, int, int]]
    """First and last day of attempts, how many had those, how many of them failed, and for how many it is blamed."""
    roots: dict[date, tuple[str, str, str]]
    """Of each day with a failure that is blamed on it, the first one's domain, component and rule."""
    workloads: list[Touched]
    workloads_since: datetime | None
    faults: list[int]
    """The newest failures that are blamed on it."""
    lost: float
    gpus: int | None
    clusters: list[int]
    """In which nodes of the name are known: the one that is shown, then the others, the latest first."""

    @classmethod
    def read(cls, name: str, asked: str | None, since: datetime) -> _Here:
        params = {
            "name": name, "asked": asked, "since": since, "limit": MAX_ATTEMPTS, "faults": MAX_FAULTS,
            "workloads": MAX_WORKLOADS, "recent": RECENT, "newest": NEWEST,
        }  # fmt: skip
        ((spans, roots, touched, touched_since, faults, lost, gpus, clusters),) = seen_rows(_HERE, params)
        day = date.fromisoformat
        return cls(
            [(day(first), day(last), *counts) for first, last, *counts in spans],
            {day(on): (domain, sub, rule) for on, domain, sub, rule in roots},
            [Touched(workload, *counts) for workload, *counts in touched],
            touched_since,
            faults,
            lost,
            gpus,
            clusters,
        )


def node_page(name: str, asked: str | None = None, *, now: datetime | None = None) -> NodePage | None:
    """A node in the last DAYS days: that of the cluster that is asked for, else of the one that used the name last.
    None when nothing ever ran on it. The number of queries is fixed.
    """
    now = now or datetime.now(UTC)
    since = _midnight(now) - timedelta(days=DAYS - 1)
    here = _Here.read(name, asked, since)
    known = Cluster.objects.in_bulk(here.clusters)
    if not known:
        return None
    cluster, *others = (known[pk] for pk in here.clusters if pk in known)
    attempts, failed, blamed = (sum(span[column] for span in here.spans) for column in (2, 3, 4))
    share = wilson(blamed, attempts)
    fleet = _others(_cluster_total(cluster, since), share)
    roots = _roots(name, here.faults)
    faults = _faults(roots)
    gpus = list(Gpu.objects.filter(cluster=cluster, node=name).order_by("bus")[:MAX_GPUS])
    slots, devices = _slots([gpu for gpu in gpus if gpu.bus], roots)
    return NodePage(
        name=name,
        cluster=cluster,
        others=[one.name for one in others],
        days=_days(here, since, now),
        attempts=attempts,
        failed=failed,
        blamed=blamed,
        lost=here.lost,
        share=share,
        fleet=fleet,
        standing=standing(share, fleet),
        faults=faults,
        devices=devices,
        workloads=here.workloads,
        workloads_since=here.workloads_since,
        events=list(node_events(name, cluster)[:100]),
        gpus=here.gpus,
        model=", ".join(
            sorted({gpu.model for gpu in gpus if gpu.model and gpu.bus} or {gpu.model for gpu in gpus} - {""})
        ),
        slots=slots,
        cut=attempts == MAX_ATTEMPTS,
    )


def node_events(name: str, cluster: Cluster) -> Any:
    """What people noted of a node, newest first."""
    events = TimelineEvent.objects.filter(node=name, cluster=cluster, kind__in=NODE_EVENTS)
    return events.select_related("actor").order_by("-happened_at", "-id")


def standing(share: Share, fleet: Share) -> Standing:
    """Whether a node is worse than the others. Only its 99.9 % interval says so, when it lies above theirs: of 600
    nodes that are alike, some 15 lie above by their 95 % interval.
    """
    if not share.trials:
        return Standing.IDLE
    if not share.hits:
        return Standing.NEVER
    if wilson(share.hits, share.trials, Z_STRICT).low > fleet.high:
        return Standing.WORSE
    return Standing.NOT_WORSE if share.share <= fleet.share else Standing.UNCLEAR


# --- the fleet --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FleetNode:
    """A row of the fleet's page."""

    name: str
    cluster: str
    attempts: int
    blamed: int
    lost: float
    last: datetime | None
    share: Share
    standing: Standing
    drained: bool = False


@dataclass(frozen=True)
class Fleet:
    """The nodes that were to blame, worst first, and what all of them together show."""

    nodes: list[FleetNode]
    total: int
    """Nodes on which something ran."""
    blamed_nodes: int
    share: Share
    more: int
    """Nodes that were to blame and are not among `nodes`."""
    drained: list[FleetNode]
    since: date
    """The first day that is looked at."""


_FLEET = """
WITH ran AS (
    SELECT node, cluster_id, count(*) AS attempts FROM triage_attempt AS one, unnest(nodes) AS node
    WHERE sort_at >= %(since)s AND {{seen:one}} {cluster} GROUP BY node, cluster_id
), blamed AS (
    SELECT node, cluster_id, count(*) AS times, sum(lost_gpu_hours) AS lost, max(sort_at) AS last
    FROM triage_attempt AS one, unnest(blamed_nodes) AS node
    WHERE blames AND NOT outcome = 'succeeded' AND node = ANY (nodes) AND sort_at >= %(since)s
          AND {{seen:one}} {cluster}
    GROUP BY node, cluster_id
)
SELECT ran.node, ran.cluster_id, ran.attempts, coalesce(times, 0), coalesce(lost, 0), last
FROM ran LEFT JOIN blamed ON blamed.node = ran.node AND blamed.cluster_id = ran.cluster_id
"""


def fleet(cluster: Cluster | None = None, *, limit: int = 50, search: str = "", now: datetime | None = None) -> Fleet:
    """The fleet in the last DAYS days. Ranked by the lower end of the interval: one fault in two attempts is less
    telling than ten in a hundred.
    """
    now = now or datetime.now(UTC)
    since = _midnight(now) - timedelta(days=DAYS - 1)
    names = dict(Cluster.objects.values_list("pk", "name"))
    condition = "AND cluster_id = %(cluster)s" if cluster else ""
    asked = {"since": since, "cluster": cluster.pk if cluster else None}
    rows = kept("fleet", asked, lambda: seen_rows(_FLEET.format(cluster=condition), asked))
    totals: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for _, cluster_id, attempts, blamed, _, _ in rows:
        totals[cluster_id][0] += blamed
        totals[cluster_id][1] += attempts
    drained = _drained(cluster)
    found = []
    for name, cluster_id, attempts, blamed, lost, last in rows:
        out = (name, cluster_id) in drained
        if search.lower() not in name.lower() or not (blamed or out or search):
            continue
        share = wilson(blamed, attempts)
        rest = wilson(totals[cluster_id][0] - blamed, totals[cluster_id][1] - attempts)
        found.append(
            FleetNode(name, names.get(cluster_id, ""), attempts, blamed, lost, last, share, standing(share, rest), out)
        )
    found.sort(key=lambda node: (-node.share.low, -node.share.share, node.name))
    shown = [node for node in found if node.blamed or search][:limit]
    blamed_nodes = sum(1 for row in rows if row[3])
    return Fleet(
        nodes=shown,
        total=len(rows),
        blamed_nodes=blamed_nodes,
        share=wilson(sum(blamed for blamed, _ in totals.values()), sum(trials for _, trials in totals.values())),
        more=max(0, sum(1 for node in found if node.blamed or search) - len(shown)),
        drained=[node for node in found if node.drained],
        since=since.date(),
    )


def _drained(cluster: Cluster | None) -> set[tuple[str, int]]:
    """The nodes that are out of service: their latest such event says so."""
    events = TimelineEvent.objects.filter(kind__in=SERVICE_EVENTS).exclude(node="")
    if cluster is not None:
        events = events.filter(cluster=cluster)
    latest = events.order_by("node", "cluster", "-happened_at", "-id").distinct("node", "cluster")
    rows = latest.values_list("node", "cluster", "kind")
    return {(node, cluster_id) for node, cluster_id, kind in rows if kind == EventKind.NODE_DRAINED and cluster_id}


# --- parts ------------------------------------------------------------------------------------------------------------


def _midnight(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def _cluster_total(cluster: Cluster, since: datetime) -> tuple[int, int]:
    """Of all nodes of a cluster: in how many attempts they ran, each on its own, and how often one was to blame."""

    def count() -> tuple[int, int]:
        recent = Attempt.objects.filter(cluster=cluster, sort_at__gte=since)
        total = recent.aggregate(trials=Sum(_size("nodes")), hits=Sum(_size("blamed_nodes")))
        return total["trials"] or 0, total["hits"] or 0

    return kept("cluster", (cluster.pk, since), count)


def _others(total: tuple[int, int], own: Share) -> Share:
    """The share of all nodes but one."""
    trials = max(0, total[0] - own.trials)
    return wilson(min(max(0, total[1] - own.hits), trials), trials)


def _size(column: str) -> Func:
    return Func(column, function="CARDINALITY", output_field=IntegerField())


def _days(here: _Here, since: datetime, now: datetime) -> list[Day]:
    begin, today = since.date(), now.astimezone(UTC).date()
    ran: Counter[date] = Counter()
    failed: Counter[date] = Counter()
    blamed: Counter[date] = Counter()
    for first, last, *counts in here.spans:
        day = max(begin, first)
        while day <= min(last, today):
            ran[day] += counts[0]
            day += timedelta(days=1)
        failed[last] += counts[1]
        blamed[last] += counts[2]
    return [
        Day(day, ran[day], failed[day], blamed[day], *here.roots.get(day, ("", "", "")))
        for day in (begin + timedelta(days=number) for number in range((today - begin).days + 1))
    ]


@dataclass(frozen=True)
class _Root:
    """Where the diagnosis of a failure sees its root."""

    title: str
    devices: tuple[str, ...]
    """Of the node that is looked at."""
    at: datetime


def _roots(name: str, ids: list[int]) -> dict[int, _Root]:
    """Of the failures with these ids, newest first. One query, of the roots alone: a whole row is wide."""
    rows = (
        Attempt.objects.filter(pk__in=ids)
        .annotate(root=KeyTransform("root_cause", F("diagnosis__contract")))
        .order_by("-sort_at", "-id")
        .values_list("pk", "sort_at", "root")
    )
    found = {}
    for pk, at, told in rows:
        root = told if isinstance(told, dict) else {}
        own = [device.removeprefix(f"{name}/") for device in root.get("devices", ()) if device.startswith(f"{name}/")]
        found[pk] = _Root(str(root.get("title") or ""), tuple(own), at)
    return found


def _faults(roots: dict[int, _Root]) -> list[Fault]:
    """The newest of these failures, as a row shows them. One query."""
    attempts = (
        Attempt.objects.filter(pk__in=list(roots)[:SHOWN_FAULTS])
        .select_related("workload", "diagnosis", "verdict__by")
        .defer("diagnosis__contract", "search", "nodes")
        .order_by("-sort_at", "-id")
    )
    faults = []
    for attempt in attempts:
        root = roots[attempt.pk]
        corrected = attempt.verdict is not None and attempt.verdict.is_correction
        faults.append(
            Fault(attempt, attempt.title if corrected else root.title or attempt.title, root.devices, attempt.sort_at)
        )
    return faults


def _devices(roots: dict[int, _Root]) -> list[Device]:
    counted: Counter[str] = Counter()
    last: dict[str, datetime] = {}
    for root in roots.values():  # newest first
        for device in dict.fromkeys(root.devices):
            counted[device] += 1
            last.setdefault(device, root.at)
    return [Device(name, number, last[name]) for name, number in sorted(counted.items(), key=lambda p: (-p[1], p[0]))]


def _slots(gpus: list[Gpu], roots: dict[int, _Root]) -> tuple[list[Slot], list[Device]]:
    """The GPUs with the faults that began at them or at a part of them, and the devices that belong to none."""
    devices = _devices(roots)
    slots = []
    for gpu in gpus:
        at = [root.at for root in roots.values() if any(_part_of(device, gpu.bus) for device in root.devices)]
        slots.append(Slot(gpu, Device(gpu.bus, len(at), at[0]) if at else None))
    buses = [gpu.bus for gpu in gpus]
    return slots, [device for device in devices if not any(_part_of(device.name, bus) for bus in buses)]


def _part_of(device: str, bus: str) -> bool:
    return device == bus or (device.startswith(bus) and not device[len(bus)].isalnum())
