"""Waiting for the end of a triage, without holding a transaction."""

from __future__ import annotations

import time

from triage.models import Attempt, TriageState

MAX_SECONDS = 60.0


def wait_for_triage(attempt_id: int, seconds: float) -> bool:
    """Whether nothing is going on with the attempt's triage, after at most so many seconds."""
    deadline = time.monotonic() + max(0.0, min(seconds, MAX_SECONDS))
    pause = 0.05
    while True:
        state, asked = Attempt.objects.values_list("triage_state", "triage_requested_at").get(pk=attempt_id)
        if state in (TriageState.DONE, TriageState.FAILED):
            return True
        left = deadline - time.monotonic()
        if left <= 0 or (state == TriageState.PENDING and asked is None):
            return False
        time.sleep(min(pause, left))
        pause = min(pause * 1.5, 0.5)
