"""Workers say that they live, for `/readyz`, tell their figures where nobody else can, and trace."""

from __future__ import annotations

import logging
from typing import Any

import prometheus_client
import redis
from celery.signals import heartbeat_sent, worker_process_init, worker_ready
from django.conf import settings

from triage import tracing
from triage.health import record_worker
from triage.metrics.views import counters

logger = logging.getLogger(__name__)


@heartbeat_sent.connect
def say_alive(sender: Any = None, **details: Any) -> None:
    """With each heartbeat of the worker (every two seconds)."""
    hostname = getattr(getattr(sender, "eventer", None), "hostname", None) or "worker"
    try:
        record_worker(str(hostname))
    except redis.RedisError as error:
        logger.warning("worker's heartbeat not recorded: %s", error)


@worker_ready.connect
def tell_figures(**details: Any) -> None:
    """On a port of its own, if one is set."""
    port = settings.FAULTLINE_WORKER_METRICS_PORT
    if port:
        prometheus_client.start_http_server(port, registry=counters())
        logger.info("figures on port %d", port)


@worker_process_init.connect
def begin_traces(**details: Any) -> None:
    """In each process that does tasks: threads that send do not survive a fork."""
    tracing.begin("faultline-worker")
