"""On a real Slurm of four nodes, with real workers and beat: what ends appears by itself in Failures, diagnosed."""

from __future__ import annotations

import html
import re
import tempfile
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from tests.connectors.slurm.test_real_cluster import ENDS
from tests.peers import leave_out
from tests.peers.slurm.cluster import Cluster, why_not
from tests.peers.slurm.jobs import run_jobs
from tests.triage.conftest import Fleet, wait_until
from triage.models import Attempt, Discovery, RunningAttempt
from triage.services.sources import forget_configuration
from triage.services.triage import begin_triage
from triage.tasks.collecting import collect
from triage.tasks.diagnosing import diagnose
from triage.tasks.discovery import discover_source, look_at_running

FIVE = ("python", "memory", "limit", "cancelled", "node")
"""The ends that everybody who runs a cluster knows; `completed` is no failure."""
WITHIN = timedelta(seconds=60)
NODES = {
    "python": {"n3": "affected"},  # where rank 2 ran
    "memory": {"n2": "affected"},
    "limit": {"n1": "affected"},
    "cancelled": {"n1": "affected"},
    "node": {"n4": "cause", "n3": "affected"},
}


@pytest.fixture
def cluster(transactional_db: None) -> Iterator[Cluster]:
    """Skipped where no cluster can be started; in CI that is an error."""
    leave_out(why_not())
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder, Cluster(Path(folder), zone="Asia/Tokyo") as cluster:
        yield cluster


@pytest.fixture
def watched(cluster: Cluster, fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    """The workers know the cluster as alpine, and search as often as they do unless they are told otherwise."""
    file, logs = tmp_path / "faultline.toml", cluster.folder / "log"
    file.write_text(
        f'[clusters.alpine]\ntime_zone = "{cluster.zone}"\nlive = 60\n[clusters.alpine.sources.slurm]\n'
        f'environment = {{SLURM_CONF = "{cluster.conf}"}}\nroots = ["{cluster.work}"]\n'
        f'slurmctld_log = "{logs}/slurmctld.log"\nslurmd_log = "{logs}/slurmd-{{node}}.log"\n'
    )
    monkeypatch.setenv("FAULTLINE_CONFIG", str(file))
    fleet.environment |= {"FAULTLINE_CONFIG": str(file), "PATH": cluster.environment["PATH"]}
    for name in ("FAULTLINE_DISCOVER_SECONDS", "FAULTLINE_SWEEP_SECONDS", "FAULTLINE_LEASE_SECONDS"):
        del fleet.environment[name]
    yield fleet
    forget_configuration()


def attempt_of(job: str) -> Attempt:
    return Attempt.objects.get(workload__workload_id=job, number=1)


def row_of(page: str, attempt: Attempt) -> str:
    """The words of an attempt's row on the page of failures."""
    found = re.search(rf'<tr id="a-{attempt.pk}".*?</tr>', page, re.DOTALL)
    assert found, f"{attempt} is not on the page"
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", found[0])).split())


def test_each_end_appears_by_itself_within_a_minute_with_the_right_answer(
    cluster: Cluster, watched: Fleet, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    watched.worker()
    watched.beat()
    wait_until(lambda: Discovery.objects.filter(last_run_at__isnull=False).exists(), say=watched.logs)
    jobs = run_jobs(cluster)
    names = [*FIVE, "completed"]
    wait_until(
        lambda: all(
            Attempt.objects.filter(workload__workload_id=jobs.ids[name], triage_state="done").exists() for name in names
        ),
        seconds=90,
        every=0.5,
        say=watched.logs,
    )
    client.force_login(User.objects.create_user("ada"))
    page = client.get("/", {"columns": ["outcome", "nodes"]}).content.decode()
    waits = {}
    for name in FIVE:
        attempt = attempt_of(jobs.ids[name])
        state, _, nodes, *answer = ENDS[name]
        assert (attempt.state, tuple(attempt.nodes)) == (state, nodes), name
        assert [attempt.outcome, attempt.domain, attempt.sub_domain] == answer, (name, attempt.title)
        assert attempt.diagnosis is not None
        assert {one["node"]: one["role"] for one in attempt.diagnosis.contract["affected_nodes"]} == NODES[name], name
        assert attempt.title in row_of(page, attempt), name
        first = attempt.events.get(kind="diagnosis.recorded")
        waits[name] = first.happened_at - attempt.ended_at
        assert waits[name] < WITHIN, (name, waits)
        assert Attempt.objects.filter(workload=attempt.workload).count() == 1
    assert f'id="a-{attempt_of(jobs.ids["completed"]).pk}"' not in page
    with capsys.disabled():
        print("\nreal Slurm, seconds from end to answer:", {k: round(v.total_seconds(), 1) for k, v in waits.items()})


SILENT = """#!/bin/bash
for i in $(seq 200); do
    echo "$(date -u -d "3 hours ago + $((i * 30)) seconds" +%Y-%m-%dT%H:%M:%SZ) iteration $i/1000 | loss 2.$i"
done
sleep 3000
"""
"""Wrote for an hour and forty minutes of three hours, as its lines say."""


def test_a_running_job_that_fell_silent_is_diagnosed_while_it_runs(cluster: Cluster, watched: Fleet) -> None:
    """As if it had begun three hours ago: Slurm says that it runs, and its own log that it makes no progress."""
    job = cluster.submit(SILENT, "-N2", "-J", "stuck")
    log = cluster.work / f"slurm-{job}.out"
    cluster.wait_for(lambda: cluster.state(job) == "RUNNING", "running job")
    cluster.wait_for(lambda: log.exists() and "iteration 200/" in log.read_text(), "end of its log")

    def found() -> bool:
        discover_source("alpine/slurm")
        return RunningAttempt.objects.filter(workload_id=job).exists()

    wait_until(found, every=1)
    assert not Attempt.objects.exists(), "what runs is no failure"
    row = RunningAttempt.objects.get()
    row.facts["started_at"] -= 3 * 3600 + 60
    row.look_at = timezone.now()
    row.save()
    look_at_running(row.pk)
    attempt = attempt_of(job)
    begin_triage(attempt.pk)
    for collection in attempt.collections.all():
        collect(collection.pk)
    diagnose(attempt.pk)
    attempt.refresh_from_db()
    assert (attempt.outcome, attempt.state, attempt.blamed_nodes) == ("hung", "RUNNING", [])
    assert cluster.state(job) == "RUNNING"
    reports = {report["source"]: report for report in attempt.collections.get().reports}
    assert reports["applog"]["status"] == "ok" and reports["applog"]["lines"] == 200
    assert reports["applog"]["first_at"] < reports["applog"]["last_at"]


HANGS = """#!/bin/bash
for i in $(seq 60); do echo "$(date -u +%Y-%m-%dT%H:%M:%SZ) iteration $i/1000 | loss 2.$i"; sleep 1; done
sleep 3000
"""


@pytest.mark.bench
def test_a_job_that_hangs_is_diagnosed_while_it_runs(cluster: Cluster, watched: Fleet) -> None:
    """Takes eleven minutes: nothing is called hung that was silent for less than eight."""
    watched.worker()
    watched.beat()
    job = cluster.submit(HANGS, "-N2", "-J", "stuck")
    began = time.monotonic()
    wait_until(
        lambda: Attempt.objects.filter(workload__workload_id=job, triage_state="done").exists(),
        seconds=900, every=2, say=watched.logs,
    )  # fmt: skip
    attempt = attempt_of(job)
    print(f"\nreal Slurm: a job that hung after 60 s was diagnosed {time.monotonic() - began:.0f} s after its start")
    assert (attempt.outcome, attempt.state, attempt.blamed_nodes) == ("hung", "RUNNING", [])
    assert cluster.state(job) == "RUNNING"
    cluster.run("scancel", job)
    wait_until(
        lambda: Attempt.objects.filter(pk=attempt.pk, state__startswith="CANCELLED", triage_state="done").exists(),
        seconds=90, every=1, say=watched.logs,
    )  # fmt: skip
    attempt.refresh_from_db()
    assert attempt.outcome == "hung" and not RunningAttempt.objects.exists()
