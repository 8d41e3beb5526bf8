"""What stands at this moment: read from database and broker when it's asked for."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta

import redis
from django.conf import settings
from django.db import DatabaseError
from django.db.models import Count, Min
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from triage.health import WORKER_KEY, broker_client
from triage.models import Announcement, Attempt, Delivery, DeliveryState, Discovery, TriageState
from triage.services.clock import database_now

logger = logging.getLogger(__name__)
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
    return [*_attempts(), *_sources(), *_deliveries()]


def _attempts() -> Iterator[Metric]:
    now = database_now()
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
        .values_list("triage_state", "cluster__name")
        .annotate(count=Count("*"), since=Min("triage_requested_at"))
    )
    for state, cluster, count, first in rows:
        waiting.add_metric([cluster, state], count)
        oldest.add_metric([cluster, state], (now - first).total_seconds() if first is not None else 0.0)
    yield waiting
    yield oldest


def _sources() -> Iterator[Metric]:
    now = database_now()
    age = GaugeMetricFamily(
        "faultline_discovery_age_seconds",
        "Since a source was last searched for attempts.",
        labels=["cluster", "source"],
    )
    failing = GaugeMetricFamily(
        "faultline_discovery_failing", "Whether the last search of a source failed.", labels=["cluster", "source"]
    )
    for found in Discovery.objects.order_by("connector"):
        cluster, _, source = found.connector.rpartition("/")
        labels = [cluster or found.cluster, source]
        if found.last_run_at is not None:
            age.add_metric(labels, (now - found.last_run_at).total_seconds())
        failing.add_metric(labels, bool(found.last_error))
    yield age
    yield failing


def _deliveries() -> Iterator[Metric]:
    now = database_now()
    waiting = Delivery.objects.filter(state=DeliveryState.WAITING, channel__enabled=True)
    stand = waiting.aggregate(count=Count("*"), since=Min("created_at"))
    failed = Delivery.objects.filter(state=DeliveryState.FAILED, created_at__gte=now - timedelta(days=1)).count()
    yield GaugeMetricFamily("faultline_deliveries_waiting", "Messages that wait to go out.", stand["count"])
    yield GaugeMetricFamily(
        "faultline_deliveries_oldest_seconds",
        "Age of the oldest of them.",
        (now - stand["since"]).total_seconds() if stand["since"] else 0.0,
    )
    yield GaugeMetricFamily("faultline_deliveries_failed_day", "Messages of the last day that were given up.", failed)
    yield GaugeMetricFamily(
        "faultline_announcements_waiting", "Events that no route was asked about yet.", Announcement.objects.count()
    )


def _broker() -> list[Metric]:
    with broker_client() as client:
        messages = sum(int(client.llen(queue.name)) for queue in settings.CELERY_TASK_QUEUES)
        workers = sum(1 for _ in client.scan_iter(f"{WORKER_KEY}*", count=1000))
    return [
        GaugeMetricFamily("faultline_broker_messages", "Tasks that wait in the broker.", messages),
        GaugeMetricFamily("faultline_workers", "Workers that lived a few seconds ago.", workers),
    ]
