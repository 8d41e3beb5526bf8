"""The sweep: what a killed worker, a restarted broker or a lost message left behind is picked up again."""

from __future__ import annotations

import logging
import time
from datetime import timedelta

import redis

from triage.celery import app
from triage.health import record_beat
from triage.models import Collection, CollectionState
from triage.services import spool
from triage.services.clock import database_now
from triage.services.discovery import forget_running
from triage.services.queue import knock
from triage.services.sightings import forget_old_sightings
from triage.services.sources import blob_store
from triage.services.turns import call_up, is_anything_due
from triage.tasks.periodic import Periodic
from triage.tasks.retries import RETRY

logger = logging.getLogger(__name__)

LEFTOVER_SECONDS = 24 * 3600
RUNNING_KEPT = timedelta(days=90)


@app.task(name="triage.sweep", base=Periodic, **RETRY)
def sweep() -> int:
    """Calls up what waited long enough, and knocks while anything is due. Returns how many were called up."""
    _say_alive()
    called = call_up()
    if called:
        logger.info("called up: %d", called)
    if is_anything_due():
        knock()
    _remove_leftovers()
    return called


def _say_alive() -> None:
    try:
        record_beat()
    except redis.RedisError as error:
        logger.warning("sweep not recorded: %s", error)


def _remove_leftovers() -> None:
    """What an upload that was cut off, or an import that failed half-way, left in the spool: it may hold secrets. What
    a worker that was killed left half written. And what was seen of pods long ago.
    """
    blob_store().remove_drafts(older_than=LEFTOVER_SECONDS)
    forget_old_sightings()
    forget_running(database_now() - RUNNING_KEPT)
    for path in spool.folder().iterdir():
        try:
            if time.time() - path.stat().st_mtime < LEFTOVER_SECONDS:
                continue
        except FileNotFoundError:
            continue
        wanted = Collection.objects.filter(ref=f"{spool.ROOT}:{path.name}").exclude(state=CollectionState.DONE)
        if not wanted.exists():
            path.unlink(missing_ok=True)
