"""Discovery: new attempts are found by the sources that can search, each by one worker at a time, and triaged."""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import msgspec
from django.db import InterfaceError, OperationalError
from django.utils import timezone

from connectors.base import (
    CollectionReport,
    CollectRequest,
    ConfigError,
    Connector,
    ConnectorError,
    FindProblem,
    FoundAttempt,
    Limits,
)
from engine import model as engine
from engine.diagnose import diagnose as run_engine
from engine.model import Outcome, Stream
from triage import logs
from triage.celery import app
from triage.configuration import ClusterConfig, SourceConfig
from triage.metrics import counters
from triage.models import RunningAttempt
from triage.services.attempts import AttemptRefused
from triage.services.bundles import ImportRefused, import_found
from triage.services.discovery import (
    SearchLease,
    end_search,
    handles,
    keep_cursor,
    lease_look,
    lease_search,
    record_found,
    record_look,
    record_running,
    renew_search,
    running_to_look_at,
)
from triage.services.recollecting import due_recollections, recollect
from triage.services.sources import FILES, configuration, find_source, registry
from triage.tasks.heartbeat import Heartbeat, LeaseLost
from triage.tasks.patience import Hangs, Watch, patiently, watched
from triage.tasks.periodic import Periodic
from triage.tasks.retries import RETRY
from triage.tasks.rules import ruleset

logger = logging.getLogger(__name__)

CURSOR_SECONDS = 2.0
"""How often the cursor of a search that tells much is kept. What is told again after a crash changes nothing."""
LIVE_LIMITS = Limits(streams=2000, bytes=1024**3, stream_bytes=64 * 1024**2, seconds=300.0)
"""Of a long log, beginning and end say whether there is progress."""
STALLED = (Outcome.HUNG.value, Outcome.DEGRADED.value)


@app.task(name="triage.discover", base=Periodic, **RETRY)
def discover() -> None:
    """Starts a search of every source that finds attempts, and what else is due."""
    found = configuration()
    for error in found.errors:
        logger.error("configuration: %s", error)
    keys = [FILES, *(source.key for cluster in found.clusters.values() for source in cluster.sources if source.finds)]
    for key in keys:
        _hint(discover_source, key)
    for attempt_id in due_recollections():
        recollect(attempt_id)
    for running_id in running_to_look_at():
        _hint(look_at_running, running_id)


def _hint(task: Any, argument: Any) -> None:
    """A message that may be lost: the next beat sends it again. It ends by the clock of another worker."""
    task.apply_async(args=[argument], expires=600)


@app.task(name="triage.discover_source", **RETRY)
def discover_source(key: str) -> None:
    """Searches one source, unless another worker is at it."""
    logs.about(source=key)
    lease = lease_search(key)
    if lease is None:
        return
    try:
        connector = registry().get(key)
        with Heartbeat(partial(renew_search, lease)) as heartbeat:
            search(key, connector, lease, heartbeat)
    except LeaseLost:
        logger.info("the search of %s was taken over", key)
    except ConfigError as error:
        _end(key, lease, found=0, error=str(error), answered=False)
    except (OperationalError, InterfaceError):
        raise
    except Exception as error:
        logger.exception("the search of %s failed", key)
        said = f"internal error, see the worker's log: {type(error).__name__}: {error}"
        _end(key, lease, found=0, error=said, answered=False)


def search(key: str, connector: Connector, lease: SearchLease, heartbeat: Heartbeat) -> None:
    """Everything new since the kept cursor. The cursor moves on only after what it covers is recorded.

    Raises LeaseLost.
    """
    error, count, answered, began = "", 0, True, timezone.now()
    cursor, kept_at = None, time.monotonic()
    try:
        for step in connector.find(lease.cursor):
            heartbeat.check()
            match step.found:
                case FoundAttempt() as found:
                    count += 1
                    error = _record(key, found, began) or error
                case FindProblem() as problem:
                    error = f"{problem.ref}: {problem.message}"
                    logger.warning("discover %s: %s", key, error)
            cursor = step.cursor
            if time.monotonic() - kept_at >= CURSOR_SECONDS:
                _keep(lease, cursor)
                kept_at = time.monotonic()
    except ConnectorError as failure:
        error, answered = str(failure), False
        logger.warning("discover %s: %s", key, error)
    if cursor is not None:
        _keep(lease, cursor)
    _end(key, lease, found=count, error=error, answered=answered)


def _end(key: str, lease: SearchLease, *, found: int, error: str, answered: bool) -> None:
    end_search(lease, found=found, error=error, answered=answered)
    place = counters.place_of(key)
    counters.SEARCHES.labels(*place, "failed" if error or not answered else "answered").inc()
    counters.FOUND.labels(*place).inc(found)


def _keep(lease: SearchLease, cursor: dict[str, Any]) -> None:
    if not keep_cursor(lease, cursor):
        raise LeaseLost


def _record(key: str, found: FoundAttempt, began: datetime) -> str:
    """Records what was found; returns why it could not be."""
    try:
        if key == FILES:
            import_found(found, FILES)
            return ""
        attempt = record_found(found, *find_source(key))
        if (
            attempt is not None and attempt.ended_at is not None and attempt.created_at >= began
        ):  # told for the first time
            lag = (attempt.created_at - attempt.ended_at).total_seconds()
            counters.DISCOVERY_LAG.labels(*counters.place_of(key)).observe(max(0.0, lag))
    except (AttemptRefused, ImportRefused) as refusal:
        logger.warning("discover %s: %s: %s", key, found.ref, refusal)
        return f"{found.ref}: {refusal}"
    return ""


# --- attempts that still run ------------------------------------------------------------------------------------------


@app.task(name="triage.look_at_running", **RETRY)
def look_at_running(running_id: int) -> None:
    """Looks at a running attempt: one that stopped making progress, or makes it again, is triaged while it runs."""
    row = RunningAttempt.objects.filter(pk=running_id).first()
    if row is None:
        return
    logs.about(source=row.connector)
    try:
        cluster, source = find_source(row.connector)
    except ConfigError:
        row.delete()
        return
    running = lease_look(running_id, cluster.live or 3600.0)
    if running is None or not cluster.live:
        return
    now = timezone.now() - timedelta(seconds=1)
    facts = _placed(msgspec.convert(running.facts, engine.Attempt), running, source)
    facts = msgspec.structs.replace(facts, ended_at=now.timestamp())
    try:
        outcome = patiently(
            lambda watch: _outcome_so_far(facts, running.ref, cluster, source, watch), 2 * LIVE_LIMITS.seconds
        )
    except Hangs as error:
        logger.warning("%s could not be looked at: %s", running, error)
        return
    if outcome != running.outcome and (outcome in STALLED or running.outcome in STALLED):
        reason = f"looks {outcome} while it runs" if outcome in STALLED else "makes progress again"
        logger.info("%s %s", running, reason)
        record_running(facts, running.ref, cluster, source, outcome, reason)
    record_look(running, outcome)


def _placed(facts: engine.Attempt, running: RunningAttempt, source: SourceConfig) -> engine.Attempt:
    """The facts with the nodes as they are now, where a source can tell."""
    try:
        ask = getattr(registry().get(source.key), "placed", None)
        return facts if ask is None else ask(facts, running.ref)
    except (ConnectorError, ConfigError) as error:
        logger.warning("where %s runs is not known: %s", running, error)
        return facts


def _outcome_so_far(facts: engine.Attempt, ref: str, cluster: ClusterConfig, finder: SourceConfig, watch: Watch) -> str:
    """What the engine says of the evidence so far, of which nothing is kept."""
    streams: list[Stream] = []
    reports: list[CollectionReport] = []
    running = msgspec.structs.replace(facts, ended_at=None)
    with ExitStack() as open_collections:
        for one, handle in handles(cluster, finder, ref):
            request = CollectRequest(attempt=running, ref=handle, limits=LIVE_LIMITS)
            watch.alive(f"while {one.key} was asked")
            try:
                collected = open_collections.enter_context(registry().get(one.key).collect(request))
                for stream in collected.streams():
                    watch.alive(f"while {one.key} was asked")
                    streams.append(watched(stream, watch))
                reports += collected.reports()
            except (ConnectorError, ConfigError, OSError) as error:
                reports.append(CollectionReport(source=one.name, status="error", note=str(error)))
        unique = list({stream.name: stream for stream in reversed(streams)}.values())
        missing = [report.for_engine() for report in reports if report.status not in ("ok", "empty")]
        return run_engine(facts, unique, ruleset(), collected=missing).outcome
