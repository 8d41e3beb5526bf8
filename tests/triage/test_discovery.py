"""Attempts of a cluster appear by themselves, once each, collected by all of its sources."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from connectors.base import Limits
from connectors.kube.sightings import Sighting
from tests.connectors.kueue.cluster import NOW, admitted, condition, pod, workload
from tests.fakes.kubernetes import FakeKubernetes, Line
from tests.triage.conftest import Fleet, wait_until
from tests.triage.jobs import fail, write_log
from triage.models import (
    Attempt,
    Collection,
    Diagnosis,
    Discovery,
    Recollection,
    RunningAttempt,
    SightedObject,
)
from triage.services.discovery import end_search, keep_cursor, lease_search, renew_search
from triage.services.recollecting import better_reports, due_recollections, recollect
from triage.services.sightings import DatabaseSightings, forget_old_sightings
from triage.services.triage import begin_triage
from triage.tasks.collecting import collect
from triage.tasks.diagnosing import diagnose
from triage.tasks.discovery import discover_source, look_at_running


def work_off(attempt: Attempt | None = None) -> None:
    """What the workers would do."""
    for one in [attempt] if attempt else Attempt.objects.exclude(triage_state__in=["done", "failed"]):
        begin_triage(one.pk)
        for collection in Collection.objects.filter(attempt=one):
            collect(collection.pk)
        diagnose(one.pk)


# --- finding ----------------------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_an_attempt_is_collected_by_every_source_of_its_cluster(
    kubernetes: FakeKubernetes, configured: Callable[..., Path]
) -> None:
    fail(kubernetes)
    discover_source("k2/kueue")
    attempt = Attempt.objects.get()
    assert (attempt.cluster.name, attempt.cluster.time_zone, attempt.nodes) == ("k2", "UTC", ["gpu-a"])
    assert [c.connector for c in attempt.collections.order_by("pk")] == ["k2/kueue", "k2/pods"]
    work_off()
    attempt.refresh_from_db()
    assert (attempt.triage_state, attempt.domain) == ("done", "software")
    names = sorted(attempt.streams.values_list("name", flat=True))
    assert names == [
        "applog/t5-worker-0.pytorch.log", "scheduler/pods.json", "scheduler/workload.json",
    ]  # fmt: skip
    row = Discovery.objects.get(connector="k2/kueue")
    assert (row.cluster, row.lease, row.last_error, row.last_found) == ("k2", None, "", 1)


@pytest.mark.django_db(transaction=True)
def test_logs_in_folders_are_collected_for_what_another_source_found(
    kubernetes: FakeKubernetes, configured: Callable[..., Path], tmp_path: Path
) -> None:
    logs = tmp_path / "central" / "gpu-a"
    logs.mkdir(parents=True)
    end = float(int(time.time()) - 60)
    at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(end - 30))
    xid = f"{at}+00:00 gpu-a kernel: NVRM: Xid (PCI:0000:61:00): 79, GPU has fallen off the bus.\n"
    (logs / "kern.log").write_text(xid)
    configured(
        f'[clusters.k2.sources.central]\nkind = "files"\nroots = {{logs = "{tmp_path}/central"}}\n'
        'patterns = [{source = "syslog", path = "logs:{node}/kern.log*"}]\n'
    )
    fail(kubernetes, end=end)
    discover_source("k2/kueue")
    assert not Discovery.objects.filter(connector="k2/central").exists()
    work_off()
    attempt = Attempt.objects.get()
    assert (attempt.domain, attempt.blamed_nodes) == ("hardware", ["gpu-a"])
    assert attempt.streams.get(source="syslog").name == "syslog/gpu-a/kern.log"
    (report,) = Collection.objects.get(connector="k2/central").reports
    told = {key: report[key] for key in ("status", "streams", "lines", "bytes", "first_at", "last_at")}
    at = f"{at}.000000Z"
    assert told == {"status": "ok", "streams": 1, "lines": 1, "bytes": len(xid), "first_at": at, "last_at": at}
    assert report["duration_s"] > 0 and report["query"] == "logs:{node}/kern.log*"


@pytest.mark.django_db(transaction=True)
def test_what_is_known_is_not_triaged_again(kubernetes: FakeKubernetes, configured: Callable[..., Path]) -> None:
    fail(kubernetes)
    discover_source("k2/kueue")
    work_off()
    discover_source("k2/kueue")
    Discovery.objects.update(cursor={})  # even when all is told anew
    discover_source("k2/kueue")
    assert Attempt.objects.get().triage_run == 1


@pytest.mark.django_db(transaction=True)
def test_a_failing_source_is_a_report_and_the_others_still_give_an_answer(
    kubernetes: FakeKubernetes, configured: Callable[..., Path]
) -> None:
    loki = 'queries = [{source = "syslog", query = \'{node="{node}"}\'}]'
    configured(f'[clusters.k2.sources.loki]\nurl = "http://127.0.0.1:9"\n{loki}\n')
    fail(kubernetes)
    discover_source("k2/kueue")
    Collection.objects.filter(connector="k2/loki").update(tries=4)  # the last of its tries
    work_off()
    attempt = Attempt.objects.get()
    assert (attempt.triage_state, attempt.domain) == ("done", "software")
    (report,) = Collection.objects.get(connector="k2/loki").reports
    assert report["status"] == "error" and "refuses connections" in report["note"]
    assert attempt.diagnosis is not None
    assert ("loki", "error") in {(c["source"], c["status"]) for c in attempt.diagnosis.contract["coverage"]}


@pytest.mark.django_db(transaction=True)
def test_a_source_that_can_not_be_asked_is_told_of_and_tried_again(
    kubernetes: FakeKubernetes, configured: Callable[..., Path]
) -> None:
    fail(kubernetes)
    kubernetes.token = "another"
    discover_source("k2/kueue")
    row = Discovery.objects.get(connector="k2/kueue")
    assert "does not accept the login" in row.last_error and row.lease is None
    kubernetes.token = "sesame"
    discover_source("k2/kueue")
    row.refresh_from_db()
    assert row.last_error == "" and Attempt.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_later_look_does_not_forget_where_it_ran(kubernetes: FakeKubernetes, configured: Callable[..., Path]) -> None:
    fail(kubernetes)
    discover_source("k2/kueue")
    kubernetes.delete(pod("t5", 0))
    SightedObject.objects.all().delete()
    Discovery.objects.update(cursor={})
    discover_source("k2/kueue")
    attempt = Attempt.objects.get()
    assert (attempt.nodes, attempt.gpus_per_node) == (["gpu-a"], 8)


# --- one worker at a time ---------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_only_one_worker_searches_a_source(settings: Any) -> None:
    lease = lease_search("k2/kueue")
    assert lease is not None and lease.cursor == {}
    assert lease_search("k2/kueue") is None
    assert lease_search("c1/slurm") is not None
    assert keep_cursor(lease, {"at": 5}) and renew_search(lease)
    end_search(lease, found=3, error="", answered=True)
    again = lease_search("k2/kueue")
    assert again is not None and again.cursor == {"at": 5}


@pytest.mark.django_db(transaction=True)
def test_a_silent_worker_loses_its_search_and_can_not_move_the_cursor_any_more() -> None:
    lost = lease_search("k2/kueue")
    assert lost is not None
    Discovery.objects.update(heartbeat_at=timezone.now() - timedelta(hours=1))
    taken = lease_search("k2/kueue")
    assert taken is not None
    assert not keep_cursor(lost, {"at": 1}) and not renew_search(lost)
    end_search(lost, found=9, error="too late", answered=True)
    row = Discovery.objects.get()
    assert (row.lease, row.cursor, row.last_error) == (taken.token, {}, "")


@pytest.mark.django_db(transaction=True)
def test_a_lease_does_not_depend_on_a_workers_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lease_search("k2/kueue") is not None
    future = timezone.now() + timedelta(days=400)
    monkeypatch.setattr("django.utils.timezone.now", lambda: future)
    assert lease_search("k2/kueue") is None


# --- late sources -----------------------------------------------------------------------------------------------------


def make_due() -> list[int]:
    Recollection.objects.filter(due_at__isnull=False).update(due_at=timezone.now() - timedelta(seconds=1))
    return due_recollections()


@pytest.mark.django_db(transaction=True)
def test_a_log_that_arrives_late_leads_to_a_superseding_diagnosis(
    kubernetes: FakeKubernetes, configured: Callable[..., Path]
) -> None:
    end = float(int(time.time()) - 60)
    fail(kubernetes, end=end, log=False)
    discover_source("k2/kueue")
    work_off()
    first = Attempt.objects.get()
    assert first.domain != "software"
    plan = Recollection.objects.get()
    assert plan.due_at is not None and abs(plan.due_at.timestamp() - (end + 900)) < 2
    assert due_recollections() == []

    write_log(kubernetes, "t5", end)
    assert make_due() == [first.pk]
    assert recollect(first.pk) and not recollect(first.pk)
    work_off()
    second = Attempt.objects.get()
    assert second.domain == "software"
    assert second.diagnosis is not None and second.diagnosis.supersedes == first.diagnosis
    assert Recollection.objects.get().due_at is None


@pytest.mark.django_db(transaction=True)
def test_when_nothing_new_arrived_nothing_changes(kubernetes: FakeKubernetes, configured: Callable[..., Path]) -> None:
    fail(kubernetes, end=float(int(time.time()) - 60))
    discover_source("k2/kueue")
    work_off()
    before = Attempt.objects.get()
    kubernetes.delete(pod("t5", 0))  # its logs can't be read a second time
    make_due()
    recollect(before.pk)
    work_off()
    after = Attempt.objects.get()
    assert (after.triage_run, after.triage_state) == (2, "done")
    assert after.diagnosis == before.diagnosis and Diagnosis.objects.count() == 1
    reports = {c.connector: c.reports[0]["status"] for c in after.collections.all()}
    assert reports["k2/pods"] == "ok"
    assert after.streams.filter(source="applog").exists()


@pytest.mark.django_db(transaction=True)
def test_what_ended_long_ago_is_asked_for_once(kubernetes: FakeKubernetes, configured: Callable[..., Path]) -> None:
    fail(kubernetes, end=time.time() - 90_000)
    discover_source("k2/kueue")
    work_off()
    assert Recollection.objects.get().due_at is None


@pytest.mark.django_db(transaction=True)
def test_a_source_that_failed_is_asked_again_a_few_times_and_then_left(
    kubernetes: FakeKubernetes, configured: Callable[..., Path]
) -> None:
    kubernetes.denied = {("get", "pods/log")}
    fail(kubernetes, end=time.time() - 90_000)
    discover_source("k2/kueue")
    rounds = 0
    work_off()
    while make_due() and rounds < 10:
        rounds += 1
        recollect(Attempt.objects.get().pk)
        if rounds == 3:
            kubernetes.denied = set()
        work_off()
    assert rounds == 3
    assert Attempt.objects.get().domain == "software"

    kubernetes.denied = {("get", "pods/log")}
    fail(kubernetes, "other", end=time.time() - 90_000)
    discover_source("k2/kueue")
    work_off()
    rounds = 0
    while make_due() and rounds < 10:
        rounds += 1
        recollect(Attempt.objects.get(workload__name="other").pk)
        work_off()
    assert rounds == 4


def test_of_two_rounds_the_better_report_of_each_source_is_kept() -> None:
    ok = {"source": "applog", "status": "ok", "bytes": 10, "streams": 1, "note": ""}
    missing = {"source": "applog", "status": "missing", "bytes": 0, "streams": 0, "note": "pods are gone"}
    more = {**ok, "bytes": 20}
    error = {"source": "loki", "status": "error", "bytes": 0, "streams": 0, "note": "down"}
    assert better_reports([], [missing]) == [missing]
    assert better_reports([ok], [missing]) == [ok]
    assert better_reports([ok], [more]) == [more]
    assert better_reports([error], [ok]) == [ok]
    assert better_reports([ok], [error]) == [error, ok]
    part = {**ok, "status": "partial"}
    assert better_reports([{**part, "failed": True}], [part]) == [part]
    assert better_reports([part], [{**part, "failed": True}]) == [part]


# --- running attempts -------------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_a_running_attempt_that_makes_no_progress_is_diagnosed_while_it_runs(
    kubernetes: FakeKubernetes, configured: Callable[..., Path]
) -> None:
    now = time.time()
    started = now - 3 * 3600
    for name, last in (("stuck", now - 3600), ("well", now - 5)):
        kubernetes.put(workload(name, *admitted(started)))
        steps = [started + 60 + n * (last - started - 60) / 200 for n in range(201)]
        lines = [Line(int(at * 10**9), f"iteration {n} | loss 2.{n} | 12.1 s/it") for n, at in enumerate(steps)]
        kubernetes.write("research", f"{name}-worker-0", "pytorch", lines, ended=False)
    discover_source("k2/kueue")
    assert not Attempt.objects.exists()
    assert RunningAttempt.objects.count() == 2
    for name in ("stuck", "well"):  # placed after they were found
        kubernetes.put(pod(name, 0, f"gpu-{name}", created=started + 1))
    for row in RunningAttempt.objects.all():
        assert row.look_at <= timezone.now()
        look_at_running(row.pk)
        look_at_running(row.pk)  # it was looked at
    (attempt,) = Attempt.objects.all()
    assert attempt.workload.name == "stuck"
    work_off()
    attempt.refresh_from_db()
    assert (attempt.outcome, attempt.state, attempt.nodes) == ("hung", "Running", ["gpu-stuck"])
    look_again()
    attempt.refresh_from_db()
    assert attempt.triage_run == 1, "it looks as it did"

    end = condition("Finished", True, "Failed", time.time())
    kubernetes.put(workload("stuck", *admitted(started), end))
    discover_source("k2/kueue")
    attempt.refresh_from_db()
    assert (attempt.state, attempt.triage_run) == ("Failed", 2)
    assert [row.facts["workload"]["name"] for row in RunningAttempt.objects.all()] == ["well"]


def look_again() -> None:
    """The next look at each running attempt."""
    RunningAttempt.objects.update(look_at=timezone.now() - timedelta(seconds=1))
    for row in RunningAttempt.objects.all():
        look_at_running(row.pk)


@pytest.mark.django_db(transaction=True)
def test_a_running_attempt_that_makes_progress_again_is_no_longer_called_hung(
    kubernetes: FakeKubernetes, configured: Callable[..., Path]
) -> None:
    now = time.time()
    started = now - 3 * 3600
    kubernetes.put(workload("slow", *admitted(started)))
    kubernetes.put(pod("slow", 0, "gpu-a", created=started + 1))

    def steps(first: float, last: float, begin: int) -> list[Line]:
        at = [first + n * 12 for n in range(int((last - first) / 12))]
        return [Line(int(when * 10**9), f"iteration {begin + n} | loss 2.1 | 12.1 s/it") for n, when in enumerate(at)]

    before = steps(started + 60, now - 1500, 0)
    kubernetes.write("research", "slow-worker-0", "pytorch", before, ended=False)
    discover_source("k2/kueue")
    look_again()
    work_off()
    attempt = Attempt.objects.get()
    assert attempt.outcome == "hung"
    first = attempt.diagnosis
    kubernetes.write(
        "research", "slow-worker-0", "pytorch", [*before, *steps(now - 200, now, len(before))], ended=False
    )
    look_again()
    work_off()
    attempt.refresh_from_db()
    assert attempt.outcome != "hung" and attempt.diagnosis is not None and attempt.diagnosis.supersedes == first
    events = attempt.events.filter(kind="triage.requested").order_by("pk")
    assert [event.payload["reason"] for event in events] == ["looks hung while it runs", "makes progress again"]
    assert RunningAttempt.objects.get().outcome == attempt.outcome


@pytest.mark.django_db(transaction=True)
def test_a_running_attempt_that_became_slow_is_diagnosed_degraded(
    kubernetes: FakeKubernetes, configured: Callable[..., Path]
) -> None:
    now = time.time()
    started = now - 4 * 3600
    kubernetes.put(workload("slow", *admitted(started)))
    kubernetes.put(pod("slow", 0, "gpu-a", created=started + 1))
    at, lines = started + 60, []
    while at < now - 5:
        pace = 12.0 if at < now - 3600 else 40.0
        lines.append(Line(int(at * 10**9), f"iteration {len(lines)} | loss 2.1 | {pace} s/it"))
        at += pace
    kubernetes.write("research", "slow-worker-0", "pytorch", lines, ended=False)
    discover_source("k2/kueue")
    look_again()
    work_off()
    attempt = Attempt.objects.get()
    assert (attempt.outcome, attempt.state, attempt.blamed_nodes) == ("degraded", "Running", [])


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("silent", "timed"), [(0, False), (0, True), (3000, True)])
def test_of_a_running_attempts_long_log_beginning_and_end_say_whether_it_makes_progress(
    kubernetes: FakeKubernetes,
    configured: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    silent: float,
    timed: bool,
) -> None:
    monkeypatch.setattr("triage.tasks.discovery.LIVE_LIMITS", Limits(stream_bytes=2_000_000))
    configured(
        f'[clusters.k2.sources.shared]\nkind = "files"\nroots = {{logs = "{tmp_path}/shared"}}\n'
        'patterns = [{source = "applog", path = "logs:{name}.log"}]\n'
    )
    now = time.time()
    started = now - 3 * 3600
    kubernetes.put(workload("long", *admitted(started)))
    kubernetes.put(pod("long", 0, "gpu-a", created=started + 1))
    steps = int((now - silent - started - 60) / 12)
    (tmp_path / "shared").mkdir()
    with (tmp_path / "shared" / "long.log").open("w") as log:
        for number in range(steps + 1):
            at = time.strftime("%Y-%m-%dT%H:%M:%SZ ", time.gmtime(started + 60 + 12 * number)) if timed else ""
            log.write(f"{at}iteration {number} | loss 2.1 | 12.0 s/it\n" + f"{at}{'x' * 100}\n" * 40)
    assert (tmp_path / "shared" / "long.log").stat().st_size > 2_500_000
    discover_source("k2/kueue")
    look_again()
    assert RunningAttempt.objects.get().outcome == ("hung" if silent else "unknown")
    assert Attempt.objects.count() == bool(silent)
    if silent:
        work_off()
        attempt = Attempt.objects.get()
        assert attempt.outcome == "hung"
        assert attempt.streams.get(source="applog", name__contains="long").size > 2_500_000, "the triage has all of it"


@pytest.mark.django_db(transaction=True)
def test_running_attempts_can_be_left_alone(kubernetes: FakeKubernetes, configured: Callable[..., Path]) -> None:
    configured(cluster="live = 0")
    kubernetes.put(workload("t5", *admitted(time.time() - 9000)))
    discover_source("k2/kueue")
    assert not RunningAttempt.objects.exists() and not Attempt.objects.exists()


# --- sightings --------------------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_sightings_are_kept_by_cluster_and_forgotten_after_a_while() -> None:
    one, other = DatabaseSightings("k2"), DatabaseSightings("k3")
    seen = Sighting(kind="Pod", namespace="research", name="t5-0", uid="u1", node="gpu-a",
                    labels={"job-name": "t5", "x": "y"}, object={"a": "b\x00"}, seen_at=time.time())  # fmt: skip
    one.save([seen])
    one.save([Sighting(**{**{f: getattr(seen, f) for f in seen.__struct_fields__}, "node": "gpu-b", "deleted": True})])
    (found,) = one.by_labels("Pod", "research", {"job-name": "t5"})
    assert (found.node, found.deleted, found.object) == ("gpu-b", True, {"a": "b\ufffd"})
    assert one.by_uid("Pod", "u1") == found
    assert one.by_labels("Pod", "research", {"job-name": "t"}) == []
    assert other.by_uid("Pod", "u1") is None
    assert forget_old_sightings() == 0
    SightedObject.objects.update(seen_at=timezone.now() - timedelta(days=30))
    assert forget_old_sightings() == 1


# --- commands ---------------------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_backfill_finds_what_ended_since_a_time_and_can_be_run_again(
    kubernetes: FakeKubernetes, configured: Callable[..., Path]
) -> None:
    for number in range(5):
        fail(kubernetes, f"job-{number}", end=NOW + 700 + number * 86_400)
    since = "2026-11-08"  # NOW is 2026-11-06
    out = io.StringIO()
    call_command("backfill", "k2", "--since", since, stdout=out)
    assert "k2/kueue: 3 attempts since 2026-11-08 00:00 UTC" in out.getvalue()
    assert sorted(Attempt.objects.values_list("workload__name", flat=True)) == ["job-2", "job-3", "job-4"]
    call_command("backfill", "k2", "--since", since, stdout=out)
    assert Attempt.objects.count() == 3 and not Discovery.objects.exists()
    with pytest.raises(CommandError, match="no cluster is called 'k9'; configured are: k2"):
        call_command("backfill", "k9", "--since", "1d")
    with pytest.raises(CommandError, match="'yesterday' is no time"):
        call_command("backfill", "k2", "--since", "yesterday")


@pytest.mark.django_db(transaction=True)
def test_cluster_check_says_what_works_and_what_to_change(
    kubernetes: FakeKubernetes, configured: Callable[..., Path]
) -> None:
    fail(kubernetes)
    out, errors = io.StringIO(), io.StringIO()
    call_command("cluster", "check", "k2", stdout=out)
    assert "2 of 2 sources of k2 work" in out.getvalue()
    assert "kueue  works (" in out.getvalue()

    kubernetes.denied = {("list", "pods")}
    configured('[clusters.k2.sources.promql]\nurl = "http://127.0.0.1:9"\n[clusters.k2.sources.loki]\n')
    with pytest.raises(SystemExit):
        call_command("cluster", "check", "k2", stdout=out, stderr=errors)
    said = out.getvalue()
    assert 'cannot list resource "pods"' in said and "docs/connectors/kueue.md has the roles" in said
    assert "refuses connections: it is down, or url names a wrong port" in said
    assert "[clusters.k2.sources.loki]: queries: at least one is needed" in errors.getvalue()
    with pytest.raises(CommandError, match="no cluster is called 'k9'"):
        call_command("cluster", "check", "k9")


# --- real workers -----------------------------------------------------------------------------------------------------


def test_a_job_that_fails_now_is_diagnosed_soon(
    kubernetes: FakeKubernetes, configured: Callable[..., Path], fleet: Fleet
) -> None:
    kubernetes.put(workload("t5", *admitted(time.time() - 700)))
    kubernetes.put(pod("t5", 0, "gpu-a", created=time.time() - 690))
    fleet.worker()
    fleet.beat()
    wait_until(lambda: RunningAttempt.objects.exists(), say=fleet.logs)
    end = float(int(time.time()))
    write_log(kubernetes, "t5", end)
    kubernetes.put(pod("t5", 0, "gpu-a", exit_code=1, created=end - 690))
    kubernetes.put(workload("t5", *admitted(end - 700), condition("Finished", True, "Failed", end)))
    began = time.monotonic()
    wait_until(lambda: Attempt.objects.filter(triage_state="done", domain="software").exists(), say=fleet.logs)
    assert time.monotonic() - began < 60
    assert not threading.current_thread().daemon
