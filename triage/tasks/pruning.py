"""Files of observations go once the blob store has their bytes and nothing is added any more."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings

from triage.celery import app
from triage.services import observations, once


@app.task(name="triage.prune_observations")
def prune_observations() -> None:
    """Run by beat, every hour."""
    observations.prune(older_than=timedelta(hours=settings.FAULTLINE_KEEP_OBSERVATIONS_HOURS))
    once.forget(older_than=timedelta(hours=24))
