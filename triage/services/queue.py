"""Telling the broker about work, after the commit. Its absence never fails what was committed."""

from __future__ import annotations

import logging
from enum import StrEnum

from django.db import transaction
from kombu.exceptions import OperationalError

logger = logging.getLogger(__name__)


class Job(StrEnum):
    """Names of the tasks that services ask for."""

    TRIAGE = "triage.triage_attempt"
    COLLECT = "triage.collect"
    DIAGNOSE = "triage.diagnose"
    CHECK = "triage.check_source"
    DELIVER = "triage.deliver"
    SEARCH = "triage.discover_source"


def enqueue(job: Job, pk: int | str) -> None:
    """Sends a task with an id or a key as its argument once the current transaction is committed."""
    transaction.on_commit(lambda: _send(job, pk))


def _send(job: Job, pk: int | str) -> None:
    from triage.celery import app

    try:
        app.send_task(job.value, args=[pk])
    except (OperationalError, OSError) as error:
        logger.warning("broker not reached, %s %s waits for the sweep: %s", job.value, pk, error)
