"""Working: a message says that there is something to do; what, and in which order, says the database (turns.py)."""

from __future__ import annotations

import logging
import time

from triage import logs
from triage.celery import app
from triage.services.queue import knock
from triage.services.triage import begin_triage
from triage.services.turns import Turn, follow_turn, take_turn
from triage.tasks.collecting import collect, collect_leased
from triage.tasks.diagnosing import diagnose, diagnose_leased
from triage.tasks.retries import RETRY
from triage.tracing import span

logger = logging.getLogger(__name__)
SLICE = 2.0
"""Seconds after which a worker that has more to do lets other tasks come in between."""


@app.task(name="triage.work", **RETRY)
def work() -> int:
    """Does what is next until nothing is due, or SLICE seconds are over. Returns how many turns that were."""
    until, done = time.monotonic() + SLICE, 0
    itself = {key: logs.current().get(key) for key in ("task", "task_id")}
    while True:
        logs.begin(**itself)  # whoever knocked asked for one of the attempts, and this may be another
        turn = take_turn()
        if turn is None:
            break
        done += do(turn)
        if time.monotonic() >= until:
            knock()
            break
    return done


def do(turn: Turn | None) -> int:
    """A turn and what comes after it for the same attempt. Raises only what says that the database is away."""
    if turn is None:
        return 0
    done, began = 0, time.monotonic()
    with span("triage.turn", attempt=turn.attempt_id):
        while turn is not None and turn.collection is not None:
            collect_leased(turn.collection)
            done += 1
            turn = follow_turn(turn.attempt_id)
        if turn is not None and turn.diagnosis is not None:
            diagnose_leased(turn.diagnosis)
            done += 1
            logger.info("brought to its end, %.3f s of this worker", time.monotonic() - began)
    return done


# --- messages of the versions before, which may still lie in the broker, or come from a web server not yet renewed ---

app.task(begin_triage, name="triage.triage_attempt", **RETRY)
app.task(collect, name="triage.collect", **RETRY)
app.task(diagnose, name="triage.diagnose", **RETRY)
