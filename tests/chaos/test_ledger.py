"""The ledger of `make chaos` sees what it is there to see: a suite that can't find a loss proves nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.chaos.ledger import at_work, counted
from tests.chaos.load import KINDS, Sent, send_by_file
from tests.chaos.report import page
from tests.triage.conftest import data_dir
from triage.models import Attempt, TimelineEvent
from triage.services.bundles import import_bundle
from triage.services.sources import blob_store
from triage.services.triage import begin_triage
from triage.tasks.collecting import collect
from triage.tasks.diagnosing import diagnose

__all__ = ["data_dir"]
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def sent(tmp_path: Path) -> Sent:
    """Three attempts that were taken, each of its kind, and brought to their end."""
    told, watched = Sent(), tmp_path / "incoming"
    watched.mkdir()
    for kind in KINDS:
        send_by_file(watched, told, kind.replace(" ", "-"), kind, 3000)
    for path in sorted(watched.iterdir()):
        attempt = import_bundle(path).attempt
        begin_triage(attempt.pk)
        for collection in attempt.collections.all():
            collect(collection.pk)
        diagnose(attempt.pk)
    return told


WANTED = {
    "gpu": ("hardware", "xid.79"),
    "code": ("software", "python.code-error"),
    "out of memory": ("software", "cuda.oom"),
}


def wrong(sent: Sent, data: Path) -> str:
    return "\n".join(counted(sent, WANTED, data)[1])


def test_nothing_is_wrong_with_what_went_well(sent: Sent, data_dir: Path) -> None:
    figures, complaints = counted(sent, WANTED, data_dir)
    assert (complaints, at_work(sent)) == ([], 0)
    assert (figures["attempts"], figures["diagnoses"], figures["drafts left"]) == (3, 3, 0)
    assert figures["streams verified"] == 4 and figures["lines of evidence verified"] >= 3


def test_what_is_lost_refused_unfinished_or_otherwise_answered_is_named(sent: Sent, data_dir: Path) -> None:
    sent.taken["never-arrived"] = "gpu"
    sent.gave_up.append("0001-002: refused with 400")
    Attempt.objects.filter(workload__workload_id="code").update(triage_state="collecting")
    Attempt.objects.filter(workload__workload_id="gpu").update(domain="unattributed")
    words = wrong(sent, data_dir)
    assert at_work(sent) == 2
    assert "never-arrived was taken and is lost" in words and "0001-002: refused with 400" in words
    assert "code is collecting" in words and "gpu is unattributed, xid.79, not ('hardware', 'xid.79')" in words


def test_what_was_done_twice_or_is_damaged_is_named(sent: Sent, data_dir: Path) -> None:
    attempt = Attempt.objects.get(workload__workload_id="gpu")
    first = attempt.diagnosis
    assert first is not None
    first.pk, first.evidence_hash = None, "another"
    first.save()
    TimelineEvent.objects.create(kind="diagnosis.recorded", attempt=attempt)
    log = Attempt.objects.get(workload__workload_id="code").streams.get()
    blob_store().remove(log.blob)
    words = wrong(sent, data_dir)
    assert f"attempt {attempt.pk} was diagnosed 2 times" in words
    assert f"attempt {attempt.pk} has 2 times diagnosis.recorded" in words
    assert f"attempt {log.attempt_id}: applog/train.log: blob" in words
    assert "evidence of applog/train.log can't be read" in words


def test_the_page_counts_rounds_by_fault_and_names_what_was_wrong() -> None:
    def done(number: int, fault: str, seconds: float, *wrong: str) -> dict[str, Any]:
        counts = {"attempts": 10, "diagnoses": 10, "calls sent again": 3, "streams verified": 14}
        return {"round": number, "fault": fault, "counted": counts, "seconds": seconds, "wrong": list(wrong)}

    machine = {"at": "2026-11-03T04:00:00+00:00", "cores": 2, "load": [1.0], "system": "Linux", "python": "3.12"}
    run = {
        "machine": machine, "options": {"seed": 7}, "seconds": 120, "skipped": {"full disk": "needs root"},
        "rounds": [
            done(1, "web killed", 3), done(2, "web killed", 9), done(3, "beat killed", 1, "x was taken and is lost"),
        ],
    }  # fmt: skip
    text = page(run)
    assert "3 rounds in 2 minutes: 30 attempts taken" in text
    assert "| web killed | 2 | 20 | 20 | 6 | 9 s | 0 |" in text and "| full disk | skipped: needs root |" in text
    assert "- round 3: x was taken and is lost" in text and "**1 was lost" in text
    run["rounds"].pop()
    assert "**Nothing was lost" in page(run)
