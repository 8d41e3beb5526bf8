"""Discovery: new attempts are found by the connectors that can search, and triaged."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection
from django.utils import timezone

from connectors.base import Connector, ConnectorError, FindProblem, FoundAttempt
from triage.celery import app
from triage.models import Discovery
from triage.services.bundles import ImportRefused, import_found
from triage.services.facts import short
from triage.services.sources import registry
from triage.tasks.collecting import RETRY

logger = logging.getLogger(__name__)


@app.task(name="triage.discover", **RETRY)
def discover() -> None:
    """Searches every connector once; one search of a connector at a time, whoever asks."""
    for name, connector in registry():
        with _alone(f"discover:{name}") as mine:
            if mine:
                search(name, connector)


def search(name: str, connector: Connector) -> None:
    """Everything new since the kept cursor. The cursor moves on only after what it covers is recorded."""
    state, _ = Discovery.objects.get_or_create(connector=name, cluster="")
    error = ""
    try:
        for step in connector.find(state.cursor):
            match step.found:
                case FoundAttempt() as found:
                    try:
                        import_found(found, name)
                    except ImportRefused as refusal:
                        error = f"{found.ref}: {refusal}"
                case FindProblem() as problem:
                    error = f"{problem.ref}: {problem.message}"
            if error:
                logger.warning("discover %s: %s", name, error)
            state.cursor = step.cursor
            state.save(update_fields=["cursor"])
    except ConnectorError as failure:
        error = str(failure)
        logger.warning("discover %s: %s", name, error)
    state.last_run_at, state.last_error = timezone.now(), short(error, 1000)
    state.save(update_fields=["last_run_at", "last_error"])


@contextmanager
def _alone(what: str) -> Iterator[bool]:
    """Whether no other process is at it; held for the block, given back by the database when the process dies."""
    key = zlib.crc32(what.encode())
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [key])
        mine = bool(cursor.fetchone()[0])
    try:
        yield mine
    finally:
        if mine:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_unlock(%s)", [key])
