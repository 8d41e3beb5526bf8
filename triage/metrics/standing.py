"""What stands at this moment: read from database and broker when it's asked for."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

import redis
from django.conf import settings
from django.db import DatabaseError
from django.db.models import Count, Min
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from triage.health import WORKER_KEY, broker_client
from triage.models import (
    Announcement,
    Attempt,
    Collection,
    CollectionState,
    Delivery,
    DeliveryState,
    Discovery,
    TriageState,
)
from triage.services.clock import database_now
from triage.services.sources import FILES, configuration

logger = logging.getLogger(__name__)
MOST_CLUSTERS, OTHERS = 50, "(others)"
UNFINISHED = (TriageState.PENDING, TriageState.COLLECTING, TriageState.DIAGNOSING)


class Standing(Collector):
    """Gauges of queues, sources, deliveries and workers. What can't be asked is left out; `faultline_up` says so."""

    def describe(self) -> list[Metric]:
        """Nothing is known before it is asked."""
        return []

    def collect(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("faultline_up", "Whether this part could be asked.", labels=["part"])
        for part, ask in (("database", _database), ("broker", _broker)):
            try:
                yield from ask()
                up.add_metric([part], 1)
            except (DatabaseError, redis.RedisError) as error:
                logger.warning("metrics: %s: %s", part, error)
                up.add_metric([part], 0)
        yield up


def _database() -> list[Metric]:
    return [*_attempts(), *_collections(), *_sources(), *_deliveries()]


def _attempts() -> Iterator[Metric]:
    waiting = GaugeMetricFamily(
        "faultline_attempts_unfinished", "Attempts whose triage has not come to an end.", labels=["cluster", "state"]
    )
    oldest = GaugeMetricFamily(
        "faultline_attempts_oldest_seconds",
        "Age of the oldest request for triage that has not ended.",
        labels=["cluster", "state"],
    )
    rows = (
        Attempt.objects.filter(triage_state__in=UNFINISHED)
        .order_by()
        .values_list("cluster__name", "triage_state")
        .annotate(count=Count("*"), since=Min("triage_requested_at"))
    )
    yield from _counted(waiting, oldest, rows)


def _collections() -> Iterator[Metric]:
    waiting = GaugeMetricFamily(
        "faultline_collections_unfinished",
        "Questions to a source about an attempt that are not answered.",
        labels=["cluster", "source"],
    )
    oldest = GaugeMetricFamily(
        "faultline_collections_oldest_seconds", "Since the oldest of them could be asked.", labels=["cluster", "source"]
    )
    rows = (
        Collection.objects.filter(attempt__triage_state=TriageState.COLLECTING)
        .exclude(state=CollectionState.DONE)
        .order_by()
        .values_list("attempt__cluster__name", "connector")
        .annotate(count=Count("*"), since=Min("queued_at"))
    )
    named = [(cluster, connector.rpartition("/")[2], count, first) for cluster, connector, count, first in rows]
    yield from _counted(waiting, oldest, named)


def _counted(
    waiting: GaugeMetricFamily, oldest: GaugeMetricFamily, rows: Iterable[tuple[str, str, int, datetime | None]]
) -> Iterator[Metric]:
    """`rows`: cluster, second label, how many wait, and since when the first of them."""
    now = database_now()
    for labels, count, first in _bounded(rows):
        waiting.add_metric(labels, count)
        oldest.add_metric(labels, _age(now, first))
    yield waiting
    yield oldest


def _bounded(rows: Iterable[tuple[str, str, int, datetime | None]]) -> Iterator[tuple[list[str], int, datetime | None]]:
    """A row for each label of the clusters with most, and one for each label of all others together: anybody who may
    send attempts may name a cluster.
    """
    told = list(rows)
    sizes: Counter[str] = Counter()
    for cluster, _, count, _ in told:
        sizes[cluster] += count
    most = {cluster for cluster, _ in sizes.most_common(MOST_CLUSTERS)}
    summed: dict[tuple[str, str], tuple[int, datetime | None]] = {}
    for cluster, label, count, first in told:
        key = (cluster if cluster in most else OTHERS, label)
        before, since = summed.get(key, (0, None))
        summed[key] = before + count, min(filter(None, (since, first)), default=None)
    for key, (count, first) in summed.items():
        yield list(key), count, first


def _age(now: datetime, first: datetime | None) -> float:
    return max(0.0, (now - first).total_seconds()) if first is not None else 0.0


def _sources() -> Iterator[Metric]:
    now = database_now()
    age = GaugeMetricFamily(
        "faultline_discovery_age_seconds",
        "Since a source was last searched for attempts.",
        labels=["cluster", "source"],
    )
    answered = GaugeMetricFamily(
        "faultline_discovery_answered_age_seconds",
        "Since a source last answered a search to its end: what ended later may not be known yet.",
        labels=["cluster", "source"],
    )
    failing = GaugeMetricFamily(
        "faultline_discovery_failing", "Whether the last search of a source failed.", labels=["cluster", "source"]
    )
    for found in _searched():
        cluster, _, source = found.connector.rpartition("/")
        labels = [cluster or found.cluster, source]
        if found.last_run_at is not None:
            age.add_metric(labels, (now - found.last_run_at).total_seconds())
        if found.answered_at is not None:
            answered.add_metric(labels, _age(now, found.answered_at))
        failing.add_metric(labels, bool(found.last_error))
    yield age
    yield answered
    yield failing


def _searched() -> list[Discovery]:
    """Not what was once configured: it would be silent for ever."""
    known = configuration()
    rows = Discovery.objects.order_by("connector")
    if not known.clusters or known.errors:
        return list(rows)
    keys = {FILES, *(source.key for cluster in known.clusters.values() for source in cluster.sources)}
    return [row for row in rows if row.connector in keys]


def _deliveries() -> Iterator[Metric]:
    now = database_now()
    waiting = Delivery.objects.filter(state=DeliveryState.WAITING, channel__enabled=True)
    stand = waiting.aggregate(count=Count("*"), since=Min("created_at"))
    failed = Delivery.objects.filter(state=DeliveryState.FAILED, created_at__gte=now - timedelta(days=1)).count()
    yield GaugeMetricFamily("faultline_deliveries_waiting", "Messages that wait to go out.", stand["count"])
    yield GaugeMetricFamily(
        "faultline_deliveries_oldest_seconds",
        "Age of the oldest of them.",
        _age(now, stand["since"]),
    )
    yield GaugeMetricFamily("faultline_deliveries_failed_day", "Messages of the last day that were given up.", failed)
    told = Announcement.objects.aggregate(count=Count("*"), since=Min("event__recorded_at"))
    yield GaugeMetricFamily(
        "faultline_announcements_waiting", "Events that no route was asked about yet.", told["count"]
    )
    yield GaugeMetricFamily(
        "faultline_announcements_oldest_seconds", "Age of the oldest of them.", _age(now, told["since"])
    )


def _broker() -> list[Metric]:
    with broker_client() as client:
        lengths = {queue.name: int(client.llen(queue.name)) for queue in settings.CELERY_TASK_QUEUES}
        workers = sum(1 for _ in client.scan_iter(f"{WORKER_KEY}*", count=1000))
    queues = GaugeMetricFamily(
        "faultline_queue_messages", "Tasks that wait in one queue of the broker.", labels=["queue"]
    )
    for name, length in lengths.items():
        queues.add_metric([name], length)
    return [
        queues,
        GaugeMetricFamily("faultline_broker_messages", "Tasks that wait in the broker.", sum(lengths.values())),
        GaugeMetricFamily("faultline_workers", "Workers that lived a few seconds ago.", workers),
    ]
