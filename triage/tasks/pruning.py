"""What is no longer kept goes: files of observations once the blob store has their bytes, and what policies say."""

from __future__ import annotations

import logging
from datetime import timedelta

from django.conf import settings

from triage.celery import app
from triage.services import observations, once, retention
from triage.tasks.periodic import Periodic

logger = logging.getLogger(__name__)

SECONDS = 1800


@app.task(name="triage.prune_observations", base=Periodic)
def prune_observations() -> None:
    """Run by beat, every hour."""
    observations.prune(older_than=timedelta(hours=settings.FAULTLINE_KEEP_OBSERVATIONS_HOURS))
    once.forget(older_than=timedelta(hours=24))


@app.task(name="triage.prune", base=Periodic)
def prune() -> None:
    """Run by beat, every hour; what is left over goes with the next one."""
    for share in retention.prune(seconds=SECONDS):
        if share.rows:
            logger.info("%s: %d rows of %s, %d bytes, went", share.cluster, share.rows, share.kind, share.bytes)
