"""The real clients of the NVIDIA resiliency extension against the running server with a real worker."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.conf import settings as project
from django.contrib.auth.models import User

from engine.bundle import open_bundle
from tests.compat.test_nvrx_routes import FAULT
from tests.triage.conftest import Fleet, wait_until
from triage.compat.answers import action_of
from triage.models import Attempt, TriageState
from triage.selectors.attempts import get_attempt
from triage.selectors.recommendations import advise
from triage.services.bundles import import_bundle
from triage.services.tokens import create_token
from triage.supervisor.ports import free_port

SAMPLES = sorted((Path(project.BASE_DIR) / "samples").glob("*.tar.zst"))
QUICK: dict[str, Any] = {"max_attempts": 2, "retry_delay": 0.1, "request_throttle": 0.0}


@pytest.fixture
def address(live_server: Any, transactional_db: None, root: Path) -> str:
    """Of the service, with a token as the password: the clients know no other way to show one."""
    _, secret = create_token(User.objects.create_user("launcher"), "launcher", ["ingest", "read"])
    return live_server.url.replace("http://", f"http://token:{secret}@") + "/compat/nvrx"


def jobs_with_logs(root: Path) -> dict[int, tuple[str, Path]]:
    """The samples as attempts that Faultline knows, and their job's output as a file: attempt -> job id, path."""
    found: dict[int, tuple[str, Path]] = {}
    for sample in SAMPLES:
        attempt = import_bundle(sample).attempt
        job = attempt.workload.workload_id
        path = root / f"{re.sub('[^a-z0-9]', '-', job)}.out"
        with open_bundle(sample) as bundle, path.open("wb") as out:
            for stream in bundle.streams:
                if stream.source == "applog":
                    with stream.open() as content:
                        out.write(content.read())
        found[attempt.pk] = (job, path)
    return found


def test_its_client_submits_ten_logs_and_gets_what_the_diagnoses_say(
    nvrx: Any, address: str, root: Path, fleet: Fleet
) -> None:
    fleet.worker()
    jobs = jobs_with_logs(root)
    assert len(jobs) == 10
    states = Attempt.objects.filter(triage_state=TriageState.DONE)
    wait_until(lambda: states.count() == 10, seconds=180, every=0.5, say=fleet.logs)
    errors: list[str] = []
    actions: dict[int, str] = {}
    with nvrx.client.AttrsvcClient(address, **QUICK) as client:
        assert client.check_health_cached()
        for attempt_id, (job, path) in jobs.items():
            if not path.stat().st_size:
                path.write_text("no output\n")

            def kept(response: Any, attempt_id: int = attempt_id, path: Path = path) -> None:
                parsed = nvrx.answers.parse_attrsvc_response(response.json(), log_path=str(path))
                assert parsed.status == "completed"
                assert parsed.module == "log_analyzer"
                actions[attempt_id] = parsed.recommendation.action
                attempt = get_attempt(attempt_id)
                assert attempt.diagnosis is not None
                assert attempt.diagnosis.title in parsed.format_summary(preview_chars=2000)
                assert attempt.diagnosis.contract["recommendation"]["text"] in parsed.recommendation_reason
                assert parsed.should_stop == (action_of(advise(attempt), attempt.outcome) == "STOP")

            common = {"job_id": job, "log_path": str(path), "on_client_error": errors.append}
            client.request_with_retry(
                method="POST", on_success=lambda _: None, user="ada", analysis_intent="terminal", **common
            )
            client.request_with_retry(method="GET", on_success=kept, **common)
    assert errors == []
    assert set(actions) == set(jobs), fleet.logs()
    assert Attempt.objects.count() == 10  # the logs met the attempts that were known
    assert {"STOP", "RESTART"} <= set(actions.values()) <= {"STOP", "RESTART", "UNKNOWN"}


@pytest.fixture
def own_port(root: Path, fleet: Fleet, tmp_path: Path) -> Iterator[str]:
    """The service at the root of a port of its own, as FAULTLINE_NVRX_BIND has it, where no token is asked for."""
    port = free_port()
    with (tmp_path / "own-port.out").open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "gunicorn", "triage.compat.wsgi:application", "--bind", f"127.0.0.1:{port}",
             "--threads", "4", "--no-control-socket"],
            cwd=project.BASE_DIR,
            env={**fleet.environment, "FAULTLINE_NVRX_ROOT": str(root), "FAULTLINE_NVRX_OPEN": "1"},
            stdout=out, stderr=out,
        )  # fmt: skip
        try:
            wait_until(lambda: _answers(f"http://127.0.0.1:{port}/healthz"), seconds=90, every=0.3)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(timeout=20)


def _answers(address: str) -> bool:
    try:
        return httpx.get(address, timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def test_its_client_reads_each_run_of_a_file_and_of_split_logs_at_the_root_of_an_own_port(
    nvrx: Any, own_port: str, root: Path, fleet: Fleet
) -> None:
    fleet.worker()
    mark = "[profiling.py:94]   - Cycle: {} Event: worker_start Node: gx-01 Rank: 0\n"
    fine = "2026-11-03 05:11:54,433 rank 3 iteration 1600 | loss 2.0\n"
    one = root / "several-runs.log"
    one.write_text(mark.format(0) + FAULT + mark.format(1) + fine)
    (root / "split").mkdir()
    for cycle, text in enumerate([FAULT, fine]):
        (root / "split" / f"48300_date_26-11-03_time_04-0{cycle}-00_cycle{cycle}.log").write_text(text)
    split = root / "slurm-48300.out"
    split.write_text(f"<< START PATHS >>\nLOGS_DIR={root}/split\n<< START PATHS >>\n")
    found: dict[tuple[str, int | None], dict[str, Any]] = {}
    errors: list[str] = []
    with nvrx.client.AttrsvcClient(own_port, **QUICK) as client:
        assert client.check_health_cached()
        for job, path in (("48299", one), ("48300", split)):
            common = {"job_id": job, "log_path": str(path), "on_client_error": errors.append}
            client.request_with_retry("POST", on_success=lambda _: None, analysis_intent="terminal", **common)
            for cycle in (None, 0) if path == split else (None,):

                def kept(response: Any, key: tuple[str, int | None] = (job, cycle)) -> None:
                    found[key] = response.json()

                client.request_with_retry("GET", on_success=kept, cycle=cycle, **common)
    assert errors == []
    assert (found["48299", None]["mode"], found["48299", None]["wl_restart"]) == ("single", 1), "its last run"
    assert found["48299", None]["wl_restart_count"] == 2
    assert (found["48300", None]["mode"], found["48300", None]["sched_restarts"]) == ("splitlog", 2)
    assert found["48300", None]["log_file"].endswith("_cycle1.log")
    assert found["48300", 0]["log_file"].endswith("_cycle0.log")
    faults = [row.number for row in Attempt.objects.filter(domain="software").order_by("number")]
    assert faults == [1, 1], "the first run of each job failed, and only that"


def test_its_client_reads_the_error_bodies(nvrx: Any, address: str, root: Path) -> None:
    errors: list[str] = []
    (root / "empty.log").touch()
    with nvrx.client.AttrsvcClient(address, **QUICK) as client:
        client.request_with_retry("POST", "1", "/etc/passwd", lambda _: None, errors.append)
        client.request_with_retry("POST", "1", str(root / "empty.log"), lambda _: None, errors.append)
        client.request_with_retry("GET", "1", str(root / "empty.log"), lambda _: None, errors.append)
    assert [re.search("outside_root|empty_file", error)[0] for error in errors] == ["outside_root", "empty_file"]  # type: ignore[index]


def test_its_slurm_monitor_follows_a_job_to_its_result(
    nvrx: Any, address: str, root: Path, fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    fleet.worker()
    log = root / "slurm-48213.out"
    log.write_text(FAULT)
    queue = tmp_path / "queue"
    queue.write_text("48213|llama|ada|batch|RUNNING\n")
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, script in {
        "squeue": f'[ "$1" = --version ] && echo slurm 24.11 || cat {queue}',
        "sinfo": "echo batch*",
        "scontrol": f'echo "JobId=48213 JobName=llama"; echo "   StdOut={log}"; echo "   StdErr={log}"',
        "sacct": "exit 1",
    }.items():
        (commands / name).write_text(f"#!/bin/sh\n{script}\n")
        (commands / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
    with nvrx.monitor.SlurmJobMonitor(address, partitions=["batch"]) as monitor:
        monitor._attrsvc_client._request_throttle = 0.0
        monitor._poll_and_process()
        assert monitor.state.post_success == 1
        queue.write_text("")
        monitor._poll_and_process()
        assert monitor.state.results_fetched == 1
    told = capsys.readouterr().out
    assert "Recommendation: STOP" in told and "KeyError" in told
