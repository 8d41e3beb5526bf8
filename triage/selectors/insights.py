"""What failures cost over time, by domain, cluster and queue; what fails most; what was missing without a cause.

Weeks end now: week 0 is the last seven days, as `ended:7d` in the search box.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import Count, Q, Sum

from engine.model import UNATTRIBUTED, Source
from triage.access.sql import seen_rows
from triage.models import Attempt, Cluster, Incident
from triage.models.attempt import FAILURE
from triage.selectors.kept import kept
from triage.statistics import Between, Share, time_between, wilson

WEEK = timedelta(weeks=1)
RANGES = (4, 12, 26, 52)
MAX_GROUPS = 12
MAX_TOP = 8


@dataclass(frozen=True)
class Scope:
    """What is looked at."""

    now: datetime
    weeks: int = 12
    cluster: Cluster | None = None
    queue: str = ""

    @property
    def since(self) -> datetime:
        return self.now - self.weeks * WEEK

    def week(self, number: int) -> tuple[datetime, datetime]:
        """Begin and end of a week; 0 is the last one."""
        return self.now - (number + 1) * WEEK, self.now - number * WEEK


@dataclass
class Series:
    """One domain, cluster or queue, week by week, the oldest first."""

    name: str
    failures: list[int]
    lost: list[float]

    @property
    def now(self) -> int:
        return self.failures[-1]

    @property
    def lost_now(self) -> float:
        return self.lost[-1]

    @property
    def change(self) -> int:
        """Against the week before."""
        return self.failures[-1] - self.failures[-2]

    @property
    def lost_change(self) -> float:
        return self.lost[-1] - self.lost[-2]

    @property
    def between(self) -> Between:
        """Hours between failures in the last week."""
        return time_between(self.now, WEEK.total_seconds() / 3600)

    @property
    def total(self) -> int:
        return sum(self.failures)

    @property
    def total_lost(self) -> float:
        return sum(self.lost)


@dataclass(frozen=True)
class TopIncident:
    """An incident by what it cost in the range."""

    id: int
    title: str
    domain: str
    sub_domain: str
    attempts: int
    lost: float
    attempts_now: int
    lost_now: float


@dataclass(frozen=True)
class Missing:
    """A source that was not complete in failures without a cause."""

    source: str
    attempts: int


@dataclass(frozen=True)
class Insights:
    """All figures of the page."""

    scope: Scope
    domains: list[Series]
    clusters: list[Series]
    queues: list[Series]
    others: dict[str, int]
    """How many clusters and queues are not among those, the cheapest."""
    total: Series
    undiagnosed: Series | None
    top: list[TopIncident]
    without_cause: list[Share]
    """The share of failures without a cause, week by week, the oldest first."""
    missing: list[Missing] = field(default_factory=list)
    complete: int = 0
    """Failures without a cause in which nothing was missing."""


_SOURCES = frozenset(source.value for source in Source)
_WEEKS = """
SELECT GROUPING(domain, cluster_id, queue), domain, cluster_id, queue, week, count(*), coalesce(sum(lost_gpu_hours), 0)
FROM (
    SELECT greatest(0, floor(extract(epoch FROM %(now)s - sort_at) / 604800))::int AS week,
           domain, cluster_id, queue, lost_gpu_hours
    FROM triage_attempt AS one WHERE sort_at > %(since)s AND NOT outcome = 'succeeded' AND {{seen:one}} {narrowed}
) failures
GROUP BY week, GROUPING SETS ((domain), (cluster_id), (queue))
"""
_DOMAIN, _CLUSTER, _QUEUE = 0b011, 0b101, 0b110
"""What GROUPING gives for each set."""


def insights(scope: Scope) -> Insights:
    """Everything the page shows, counted once a minute for all who see the same."""
    asked = (scope.now, scope.weeks, scope.cluster.pk if scope.cluster else None, scope.queue)
    return kept("insights", asked, lambda: _count(scope))


def _count(scope: Scope) -> Insights:
    """A fixed number of queries, each of which reads an index."""
    names = dict(Cluster.objects.values_list("pk", "name"))
    groups: dict[int, dict[str, Series]] = {_DOMAIN: {}, _CLUSTER: {}, _QUEUE: {}}
    for grouping, domain, cluster, queue, week, count, lost in _rows(scope):
        name = {_DOMAIN: domain, _CLUSTER: names.get(cluster, ""), _QUEUE: queue}[grouping]
        one = groups[grouping].setdefault(name, Series(name, [0] * scope.weeks, [0.0] * scope.weeks))
        if week < scope.weeks:
            one.failures[-1 - week] += count
            one.lost[-1 - week] += lost
    undiagnosed = groups[_DOMAIN].pop("", None)
    domains = _worst(groups[_DOMAIN])
    total = Series("", [0] * scope.weeks, [0.0] * scope.weeks)
    for one in groups[_CLUSTER].values():
        total.failures = [a + b for a, b in zip(total.failures, one.failures, strict=True)]
        total.lost = [a + b for a, b in zip(total.lost, one.lost, strict=True)]
    unknown = groups[_DOMAIN].get(UNATTRIBUTED)
    diagnosed = [sum(one.failures[week] for one in domains) for week in range(scope.weeks)]
    missing, complete = _missing(scope)
    return Insights(
        scope=scope,
        domains=domains,
        clusters=_worst(groups[_CLUSTER])[:MAX_GROUPS],
        queues=_worst(groups[_QUEUE])[:MAX_GROUPS],
        others={
            "cluster": max(0, len(groups[_CLUSTER]) - MAX_GROUPS),
            "queue": max(0, len(groups[_QUEUE]) - MAX_GROUPS),
        },
        total=total,
        undiagnosed=undiagnosed,
        top=_top(scope),
        without_cause=[
            wilson(unknown.failures[week] if unknown else 0, diagnosed[week]) for week in range(scope.weeks)
        ],
        missing=missing,
        complete=complete,
    )


def queues(scope: Scope) -> list[str]:
    """The queues in which anything ran in the range."""
    found = Attempt.objects.filter(sort_at__gt=scope.since).exclude(queue="").order_by().values_list("queue", flat=True)
    names = kept("queues", (scope.now, scope.weeks), lambda: list(found.distinct()[:200]))
    return sorted(name for name in names if name.isprintable())


def clusters() -> list[Cluster]:
    return [one for one in Cluster.objects.exclude(name="").order_by("name") if one.name.isprintable()]


def minute(moment: datetime | None = None) -> datetime:
    """Now, to the minute, so that the links of a page name the weeks that it counted."""
    moment = moment or datetime.now(UTC)
    return moment.replace(second=0, microsecond=0) + timedelta(minutes=1)


# --- parts ------------------------------------------------------------------------------------------------------------


def _rows(scope: Scope) -> list[tuple[Any, ...]]:
    narrowed, params = "", {"now": scope.now, "since": scope.since}
    if scope.cluster is not None:
        narrowed += " AND cluster_id = %(cluster)s"
        params["cluster"] = scope.cluster.pk
    if scope.queue:
        narrowed += " AND queue = %(queue)s"
        params["queue"] = scope.queue
    return seen_rows(_WEEKS.format(narrowed=narrowed), params)


def _narrowed(scope: Scope) -> Q:
    narrowed = Q(sort_at__gt=scope.since) & FAILURE
    if scope.cluster is not None:
        narrowed &= Q(cluster=scope.cluster)
    return narrowed & Q(queue=scope.queue) if scope.queue else narrowed


def _worst(groups: dict[str, Series]) -> list[Series]:
    """Those that cost most in the last week first; what cost nothing then by the whole range."""
    return sorted(groups.values(), key=lambda one: (-one.lost_now, -one.total_lost, -one.total, one.name))


def _top(scope: Scope) -> list[TopIncident]:
    week = Q(sort_at__gt=scope.now - WEEK)
    rows = list(
        Attempt.objects.filter(_narrowed(scope), membership__isnull=False)
        .order_by()
        .values_list("membership__incident")
        .annotate(
            attempts=Count("pk"), lost=Sum("lost_gpu_hours"),
            attempts_now=Count("pk", filter=week), lost_now=Sum("lost_gpu_hours", filter=week, default=0.0),
        )
        .order_by("-lost", "membership__incident")[:MAX_TOP]
    )  # fmt: skip
    known = Incident.objects.in_bulk([row[0] for row in rows])
    return [
        TopIncident(pk, known[pk].title, known[pk].domain, known[pk].sub_domain, *figures)
        for pk, *figures in rows
        if pk in known
    ]


def _missing(scope: Scope) -> tuple[list[Missing], int]:
    """What was missing where no cause was found, and in how many of those nothing was. One query."""
    unknown = Attempt.objects.filter(_narrowed(scope), domain=UNATTRIBUTED).order_by()
    counted: dict[str, int] = defaultdict(int)
    complete = 0
    for sources, count in unknown.values_list("missing").annotate(rows=Count("pk")):
        complete += 0 if sources else count
        for source in set(sources) & _SOURCES:
            counted[source] += count
    known = [Missing(source, count) for source, count in counted.items()]
    return sorted(known, key=lambda one: (-one.attempts, one.source)), complete
