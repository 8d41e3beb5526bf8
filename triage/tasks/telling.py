"""Telling the outside: routes are asked, and each delivery is tried until it is taken."""

from __future__ import annotations

import logging
from datetime import timedelta

from triage.celery import app
from triage.channels.base import ChannelConfigError, ChannelError
from triage.channels.registry import KINDS
from triage.metrics import counters
from triage.models import Delivery
from triage.services.announcing import BATCH, plan_deliveries
from triage.services.channels import setup
from triage.services.delivering import (
    due_deliveries,
    first_receipt,
    forget_deliveries,
    lease_delivery,
    message_of,
    record_sent,
    record_trouble,
)
from triage.services.queue import Job, enqueue
from triage.tasks.periodic import Periodic
from triage.tasks.retries import RETRY

logger = logging.getLogger(__name__)
KEPT = timedelta(days=90)


@app.task(name="triage.tell", base=Periodic, **RETRY)
def tell() -> int:
    """Run by beat: makes deliveries of what was announced, and hands out those that are due. Returns how many."""
    while plan_deliveries() == BATCH:
        pass
    due = due_deliveries()
    for pk in due:
        enqueue(Job.DELIVER, pk)
    return len(due)


@app.task(name="triage.deliver", **RETRY)
def deliver(pk: int) -> None:
    """One try of one delivery."""
    delivery = lease_delivery(pk)
    if delivery is None:
        return
    channel = delivery.channel
    try:
        way = KINDS[channel.kind].make(channel.config, setup())
        receipt = way.send(message_of(delivery), str(delivery.again_id or delivery.pk), first_receipt(delivery))
    except ChannelConfigError as error:
        _not_taken(delivery, ChannelError(f"{channel.name}: {error.key}: {error}", permanent=True))
    except ChannelError as error:
        logger.warning("delivery %s over %s: %s", pk, channel.name, error)
        _not_taken(delivery, error)
    except Exception as error:  # a fault of ours must not keep a delivery leased for good
        logger.exception("delivery %s over %s", pk, channel.name)
        _not_taken(delivery, ChannelError(f"{type(error).__name__}: {error}"))
    else:
        counters.DELIVERIES.labels(channel.kind, "sent").inc()
        record_sent(delivery, receipt)


def _not_taken(delivery: Delivery, error: ChannelError) -> None:
    counters.DELIVERIES.labels(delivery.channel.kind, "refused" if error.permanent else "failed").inc()
    record_trouble(delivery, error)


@app.task(name="triage.forget_deliveries", base=Periodic)
def forget() -> None:
    """Run by beat, every hour."""
    forget_deliveries(KEPT)
