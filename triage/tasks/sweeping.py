"""The sweep: what a killed worker, a restarted broker or a lost message left behind is picked up again."""

from __future__ import annotations

import logging
import time
from datetime import timedelta

import redis
from django.conf import settings
from django.utils import timezone

from triage.celery import app
from triage.health import broker_client, record_beat
from triage.models import Collection, CollectionState
from triage.services import spool
from triage.services.discovery import forget_running
from triage.services.sightings import forget_old_sightings
from triage.services.triage import requeue, unfinished_work
from triage.tasks.collecting import RETRY

logger = logging.getLogger(__name__)

LOST_AFTER = timedelta(seconds=10)
"""With an empty queue: what the broker was told of so long ago is lost."""
LATE_AFTER = timedelta(minutes=15)
"""With a queue that is worked off: what waits longer is told again."""
LEFTOVER_SECONDS = 24 * 3600
RUNNING_KEPT = timedelta(days=90)


@app.task(name="triage.sweep", **RETRY)
def sweep() -> int:
    """Tells the broker again of work that nobody does. Returns how much there was."""
    _say_alive()
    waiting = queue_length()
    patience = LATE_AFTER if waiting else LOST_AFTER
    work = unfinished_work(told_before=timezone.now() - patience)
    if work.total:
        logger.info(
            "picking up again: %d to begin, %d to collect, %d to move on, %d to diagnose",
            len(work.begin), len(work.collect), len(work.advance), len(work.diagnose),
        )  # fmt: skip
        requeue(work)
    _remove_leftovers()
    return work.total


def _say_alive() -> None:
    try:
        record_beat()
    except redis.RedisError as error:
        logger.warning("sweep not recorded: %s", error)


def queue_length() -> int:
    """Messages that wait in the broker; 0 when it can't be asked."""
    try:
        with broker_client() as client:
            return int(client.llen(settings.CELERY_TASK_DEFAULT_QUEUE))
    except redis.RedisError:
        return 0


def _remove_leftovers() -> None:
    """What an upload that was cut off, or an import that failed half-way, left in the spool: it may hold secrets. And
    what was seen of pods long ago.
    """
    forget_old_sightings()
    forget_running(timezone.now() - RUNNING_KEPT)
    for path in spool.folder().iterdir():
        try:
            if time.time() - path.stat().st_mtime < LEFTOVER_SECONDS:
                continue
        except FileNotFoundError:
            continue
        wanted = Collection.objects.filter(ref=f"{spool.ROOT}:{path.name}").exclude(state=CollectionState.DONE)
        if not wanted.exists():
            path.unlink(missing_ok=True)
