"""Asking the sources of a cluster once, for the page that shows what works."""

from __future__ import annotations

from triage.celery import app
from triage.services.checking import run_check
from triage.tasks.retries import RETRY


@app.task(name="triage.check_source", **RETRY)
def check_source(source_check_id: int) -> None:
    """One source of one check."""
    run_check(source_check_id)
