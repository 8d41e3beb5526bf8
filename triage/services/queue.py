"""Telling the broker about work, after the commit. Its absence never fails what was committed."""

from __future__ import annotations

import logging
from enum import StrEnum

import redis
from django.conf import settings
from django.db import transaction
from kombu.exceptions import OperationalError

from triage.quick_broker import quick_broker

logger = logging.getLogger(__name__)

KNOCKS = 200
"""So many messages that there is something to do are enough, for as many processes: who leaves some sends another."""


class Job(StrEnum):
    """Names of the tasks that services ask for."""

    WORK = "triage.work"
    CHECK = "triage.check_source"
    DELIVER = "triage.deliver"
    SEARCH = "triage.discover_source"


def enqueue(job: Job, pk: int | str) -> None:
    """Sends a task with an id or a key as its argument once the current transaction is committed."""
    transaction.on_commit(lambda: _send(job, pk))


def knock() -> None:
    """Says that there is something to do, once the current transaction is committed. What is due only later, the sweep
    says: a thousand sources that are away for a while are no messages that workers hold until then.
    """
    transaction.on_commit(lambda: None if _knocked_enough() else _send(Job.WORK))


def _send(job: Job, *args: int | str) -> None:
    from triage.celery import app

    try:
        app.send_task(job.value, args=args)
    except (OperationalError, OSError) as error:
        logger.warning("broker not reached, %s%s waits for the sweep: %s", job.value, args or "", error)


def _knocked_enough() -> bool:
    try:
        return int(quick_broker().llen(settings.FAULTLINE_KNOCKS)) >= KNOCKS  # type: ignore[arg-type]
    except (redis.RedisError, OSError):
        return False
