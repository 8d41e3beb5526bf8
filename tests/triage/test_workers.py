"""Real workers, a real broker, a real database: everything ends as it should, whatever is killed on the way."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import redis
from django.conf import settings as project
from django.contrib.auth.models import User

from tests.triage import cast
from tests.triage.conftest import Broker, Fleet, Process, wait_until
from triage.celery import app
from triage.health import broker_client
from triage.models import Attempt, Collection, CollectionState, Diagnosis, TimelineEvent, TriageState
from triage.services.attempts import record_attempt
from triage.services.bundles import import_bundle
from triage.services.checking import start_check
from triage.services.collecting import add_collection
from triage.services.sources import blob_store
from triage.services.triage import request_triage
from triage.tasks.sweeping import sweep

pytestmark = pytest.mark.django_db(transaction=True)


def state(attempt: Attempt) -> str:
    return str(Attempt.objects.values_list("triage_state", flat=True).get(pk=attempt.pk))


def ended(attempt: Attempt, fleet: Fleet, *, seconds: float = 60) -> Attempt:
    wait_until(lambda: state(attempt) in ("done", "failed"), seconds=seconds, say=fleet.logs)
    attempt.refresh_from_db()
    return attempt


def large_log(megabytes: int) -> bytes:
    line = b"2026-11-03 03:%02d:%02d,123 rank %d iteration %d | lm loss 2.345 | grad norm 0.123 | tokens/s 123456\n"
    block = b"".join(line % (n // 60 % 60, n % 60, n % 16, n) for n in range(10_000))
    return block * (megabytes * 1_000_000 // len(block)) + cast.APPLOG.encode()


def test_a_bundle_is_collected_diagnosed_and_kept(fleet: Fleet, tmp_path: Path, data_dir: Path) -> None:
    fleet.worker()
    attempt = ended(import_bundle(cast.archive(tmp_path / "a.tar.zst", cast.members())).attempt, fleet)
    assert (attempt.triage_state, attempt.triage_reason) == (TriageState.DONE, "")
    assert attempt.diagnosis is not None
    assert attempt.diagnosis.contract["schema"] == "faultline.diagnosis/1"
    assert attempt.diagnosis.contract["attempt"]["workload"]["id"] == "48213"

    streams = {stream.name: stream for stream in attempt.streams.all()}
    assert set(streams) == {"applog/train.log", "syslog/gx-02.log"}
    log = streams["applog/train.log"]
    assert (log.size, log.lines, log.masked) == (len(cast.APPLOG), cast.APPLOG.count("\n"), 1)
    assert log.first_at is not None and log.first_at.isoformat() == "2026-11-03T04:11:54.433000+00:00"
    assert (streams["syslog/gx-02.log"].node, streams["syslog/gx-02.log"].source) == ("gx-02", "syslog")
    with blob_store().open(log.blob) as kept:
        content = kept.read()
    assert b"hf_" not in content and b"KeyError: 'input_ids'" in content
    assert list((data_dir / "spool").iterdir()) == []  # it held the secret
    kinds = list(attempt.events.values_list("kind", flat=True))
    assert kinds == [
        "attempt.recorded", "evidence.received", "triage.requested", "triage.started", "source.collected",
        "diagnosis.recorded", "incident.opened",
    ]  # fmt: skip


def test_triage_again_changes_nothing_when_nothing_changed(fleet: Fleet, tmp_path: Path) -> None:
    fleet.worker()
    attempt = ended(import_bundle(cast.archive(tmp_path / "a.tar.zst", cast.members())).attempt, fleet)
    before = attempt.diagnosis
    assert request_triage(attempt.pk)
    assert ended(attempt, fleet).diagnosis == before
    again = import_bundle(
        cast.archive(tmp_path / "b.tar.zst", cast.members(syslog__gx_01="Nov  3 04:00:00 gx-01 kernel: x\n"))
    )
    assert ended(again.attempt, fleet).diagnosis != before  # there is more evidence now
    assert Diagnosis.objects.count() == 2


def test_a_damaged_member_is_read_up_to_the_damage_and_reported(fleet: Fleet, tmp_path: Path) -> None:
    import gzip

    packed = gzip.compress(os.urandom(2_000_000) + cast.APPLOG.encode())
    bundle = cast.archive(tmp_path / "a.tar.zst", cast.members(**{"applog/rank-1.log.gz": packed[: len(packed) // 2]}))
    fleet.worker()
    attempt = ended(import_bundle(bundle).attempt, fleet)
    assert attempt.triage_state == TriageState.DONE
    (report,) = [r for r in attempt.collections.get().reports if r["status"] != "ok"]
    assert report["status"] == "partial"
    assert "applog/rank-1.log.gz is damaged" in report["note"]
    assert attempt.streams.get(name="applog/rank-1.log.gz").size > 500_000


def test_a_bundle_that_vanished_is_a_report_and_still_an_answer(fleet: Fleet, tmp_path: Path, data_dir: Path) -> None:
    attempt = import_bundle(cast.archive(tmp_path / "a.tar.zst", cast.members())).attempt
    shutil.rmtree(data_dir / "spool")
    fleet.worker()
    attempt = ended(attempt, fleet)
    assert attempt.triage_state == TriageState.DONE
    assert attempt.diagnosis is not None and attempt.domain == "unattributed"
    coverage = {(item["source"], item["status"]) for item in attempt.diagnosis.contract["coverage"]}
    assert ("files", "error") in coverage


def test_watched_folders_are_searched_and_each_bundle_is_one_attempt(
    fleet: Fleet, tmp_path: Path, data_dir: Path
) -> None:
    watched = tmp_path / "incoming"
    cast.folder(watched / "one", cast.members("1"))
    watched.joinpath("broken.tar").write_bytes(b"no tar")
    cast.archive(watched / "two.tar.zst", cast.members("2"))
    for path in [*watched.rglob("*"), watched]:
        os.utime(path, (time.time() - 60, time.time() - 60))
    fleet.environment["FAULTLINE_WATCH"] = str(watched)
    fleet.worker()
    fleet.beat()
    wait_until(lambda: Attempt.objects.filter(triage_state="done").count() == 2, say=fleet.logs)
    time.sleep(2.5)  # two more searches
    assert sorted(Attempt.objects.values_list("workload__workload_id", flat=True)) == ["1", "2"]
    assert Diagnosis.objects.count() == 2


# --- what gets killed -------------------------------------------------------------------------------------------------


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A bundle that takes seconds to read."""
    return cast.folder(tmp_path / "large", cast.members(**{"applog/large.log": large_log(150)}))


@pytest.mark.parametrize("moment", ["collecting", "diagnosing"])
def test_a_worker_killed_in_the_middle_loses_nothing(fleet: Fleet, large: Path, moment: str) -> None:
    worker = fleet.worker()
    attempt = import_bundle(large).attempt
    if moment == "collecting":
        busy = Collection.objects.filter(attempt=attempt, state=CollectionState.RUNNING, lease__isnull=False)
    else:
        busy = Attempt.objects.filter(pk=attempt.pk, triage_state="diagnosing", triage_lease__isnull=False)
    wait_until(busy.exists, every=0.01, say=fleet.logs)
    worker.kill()
    assert busy.exists(), "it was killed too late for this test to mean anything"

    fleet.worker()
    deadline = time.monotonic() + 90
    while state(attempt) not in ("done", "failed") and time.monotonic() < deadline:
        sweep()
        time.sleep(0.3)
    attempt.refresh_from_db()
    assert attempt.triage_state == TriageState.DONE, attempt.triage_reason + fleet.logs()
    assert Diagnosis.objects.filter(attempt=attempt).count() == 1
    assert attempt.streams.get(name="applog/large.log").size == len(large_log(150))
    assert TimelineEvent.objects.filter(attempt=attempt, kind="diagnosis.recorded").count() == 1


def test_a_broker_that_dies_and_forgets_everything_loses_nothing(
    transactional_db: None, own_broker: Broker, data_dir: Path, tmp_path: Path
) -> None:
    fleet = Fleet(data_dir, tmp_path, REDIS_URL=own_broker.url)
    try:
        fleet.worker()
        fleet.beat()
        paths = [cast.archive(tmp_path / f"{n}.tar.zst", cast.members(str(n))) for n in range(30)]
        run_import(fleet, paths[:15])
        own_broker.kill()
        run_import(fleet, paths[15:])  # with no broker at all
        assert Attempt.objects.count() == 30
        own_broker.start()
        wait_until(
            lambda: Attempt.objects.filter(triage_state="done").count() == 30, seconds=90, every=0.3, say=fleet.logs
        )
        assert Diagnosis.objects.count() == 30
        assert TimelineEvent.objects.filter(kind="diagnosis.recorded").count() == 30
    finally:
        fleet.stop()


def run_import(fleet: Fleet, paths: list[Path]) -> None:
    command = [sys.executable, "manage.py", "import_bundle", *map(str, paths)]
    subprocess.run(command, cwd=project.BASE_DIR, env=fleet.environment, check=True, capture_output=True, timeout=120)


def test_a_check_does_not_stand_behind_what_waits(
    transactional_db: None, own_broker: Broker, data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "faultline.toml").write_text('[clusters.c1.sources.promql]\nurl = "http://127.0.0.1:9"\n')
    monkeypatch.setenv("FAULTLINE_CONFIG", str(tmp_path / "faultline.toml"))
    fleet = Fleet(data_dir, tmp_path, REDIS_URL=own_broker.url)
    try:
        with app.connection_for_write(own_broker.url) as connection, redis.Redis.from_url(own_broker.url) as broker:
            for _ in range(4000):
                app.send_task("triage.triage_attempt", args=[0], connection=connection)
            check = start_check("c1", User.objects.create_user("ada"))
            app.send_task("triage.check_source", args=[check.sources.get().pk], connection=connection)
            fleet.worker()
            wait_until(lambda: check.sources.filter(state="done").exists(), every=0.01, say=fleet.logs)
            assert broker.llen(project.CELERY_TASK_DEFAULT_QUEUE) > 1000
        assert "refuses connections" in check.sources.get().report["note"]
    finally:
        fleet.stop()


def test_a_worker_says_that_it_lives_and_readiness_follows(fleet: Fleet, client: object) -> None:
    with broker_client() as broker:
        broker.delete(*(broker.keys("faultline:worker:*") or ["none"]))
    assert client.get("/readyz").json()["checks"] == {"database": "ok", "broker": "ok", "worker": "down"}  # type: ignore[attr-defined]
    worker: Process = fleet.worker()
    wait_until(lambda: client.get("/readyz").status_code == 200, say=fleet.logs)  # type: ignore[attr-defined]
    worker.kill()
    wait_until(lambda: client.get("/readyz").status_code == 503, seconds=25)  # type: ignore[attr-defined]


def test_a_cluster_with_hundreds_that_wait_does_not_keep_another_waiting(fleet: Fleet, tmp_path: Path) -> None:
    noisy = Attempt.objects.filter(cluster__name="noisy")
    for number in range(200):
        attempt, _ = record_attempt(cast.facts(f"noisy-{number}", cluster="noisy"))
        add_collection(attempt, "files", f"spool:{number:064x}.tar")  # gone, which is a report and an answer
        assert request_triage(attempt.pk)
    fleet.worker()
    wait_until(noisy.filter(triage_state="done").exists, say=fleet.logs)
    quiet = import_bundle(cast.archive(tmp_path / "a.tar.zst", cast.members())).attempt
    before = noisy.filter(triage_state="done").count()
    assert ended(quiet, fleet).rule == "xid.79"
    meanwhile = noisy.filter(triage_state="done").count() - before
    assert before < 150, "it was asked for too late for this test to mean anything"
    assert meanwhile < 20
