"""The attribution service's routes: codes, error bodies, runs in one file, split logs."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.api.conftest import work
from triage.compat import wsgi
from triage.models import Attempt, SubmittedLog
from triage.services import observations
from triage.services.tokens import create_token

pytestmark = pytest.mark.django_db
BASE = "/compat/nvrx"
FAULT = """\
2026-11-03 04:11:54,433 rank 3 iteration 1525 | loss 2.1
[rank3]: Traceback (most recent call last):
[rank3]:   File "/home/ada/train.py", line 12, in <module>
[rank3]:     main()
[rank3]: KeyError: 'input_ids'
"""


@pytest.fixture
def launcher(settings: Any, client: Client) -> Client:
    """A client in a network that is trusted: it sends no token, as the launchers do."""
    settings.FAULTLINE_NVRX_OPEN = True
    settings.FAULTLINE_NVRX_WAIT_SECONDS = 0
    return client


def submit(client: Client, path: Path | str, **body: Any) -> Any:
    return client.post(f"{BASE}/logs", {"log_path": str(path), **body}, content_type="application/json")


def fetch(client: Client, path: Path | str, **query: Any) -> Any:
    return client.get(f"{BASE}/logs", {"log_path": str(path), **query})


def settled(client: Client, path: Path, **query: Any) -> Any:
    """The result after the workers have done their part."""
    fetch(client, path, **query)
    for attempt in Attempt.objects.exclude(triage_requested_at=None):
        work(attempt.pk)
    return fetch(client, path, **query).json()


def test_a_log_is_submitted_diagnosed_and_answered(launcher: Client, root: Path) -> None:
    log = root / "slurm-48213.out"
    log.write_text(FAULT)
    submitted = submit(launcher, log, user="ada")
    assert submitted.status_code == 200
    assert submitted.json() == {
        "submitted": True, "normalized_path": str(log), "mode": "single", "logs_dir": None, "sched_restarts": 0,
        "files_analyzed": 0,
    }  # fmt: skip
    assert fetch(launcher, log, wait="false").json()["status"] == "pending"
    waiting = fetch(launcher, log).json()
    assert (waiting["status"], waiting["recommendation"]["action"]) == ("in_flight", "TIMEOUT")
    answer = settled(launcher, log)
    assert (answer["status"], answer["recommendation"]["action"]) == ("completed", "STOP")
    (item,) = answer["result"]["result"]
    assert item["primary_issues"] and "KeyError" in item["raw_text"]
    assert answer["result"]["module"] == "log_analyzer"
    attempt = Attempt.objects.get()
    assert (attempt.workload.workload_id, attempt.workload.scheduler, attempt.user) == ("48213", "slurm", "ada")
    assert attempt.diagnosis is not None and attempt.diagnosis.title in item["attribution_text"]


def test_a_log_that_grows_is_read_on(launcher: Client, root: Path) -> None:
    log = root / "slurm-48213.out"
    log.write_text("starting\n")
    submit(launcher, log)
    assert settled(launcher, log)["recommendation"]["action"] != "STOP"
    with log.open("a") as out:
        out.write(FAULT)
    assert settled(launcher, log)["recommendation"]["action"] == "STOP"
    log.write_text("a new file in its place\n")
    settled(launcher, log)
    attempt = Attempt.objects.get()
    kept = observations.folder() / str(attempt.pk) / "applog" / "slurm-48213.out"
    assert kept.read_text() == "a new file in its place\n"


def test_several_runs_in_one_file_are_attempts_of_their_own(launcher: Client, root: Path) -> None:
    log = root / "slurm-48213.out"
    mark = "[profiling.py:94]   - Cycle: {} Event: worker_start Node: gx-01 Rank: 0\n"
    oom = "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    log.write_text("launcher begins\n" + mark.format(0) + FAULT + mark.format(0) + mark.format(1) + oom)
    submit(launcher, log, job_id="48213")
    first, last = settled(launcher, log, wl_restart=0), settled(launcher, log)
    assert (first["wl_restart"], last["wl_restart"], last["wl_restart_count"]) == (0, 1, 2)
    assert "KeyError" in first["result"]["result"][0]["raw_text"]
    assert "memory" in last["result"]["result"][0]["raw_text"].lower()
    assert list(Attempt.objects.order_by("number").values_list("number", flat=True)) == [1, 2]
    beyond = fetch(launcher, log, wl_restart=2)
    assert (beyond.status_code, beyond.json()["error_code"]) == (400, "invalid_parameter")


def test_split_logs_are_found_by_their_folder(launcher: Client, root: Path) -> None:
    (root / "split").mkdir()
    for cycle, text in enumerate([FAULT, "still running\n"]):
        (root / "split" / f"train_48213_cycle{cycle}.log").write_text(text)
    (root / "split" / "train_999999_cycle7.log").write_text("of another job\n")
    log = root / "slurm-48213.out"
    log.write_text(f"<< START PATHS >>\nLOGS_DIR={root}/split\n<< START PATHS >>\n")
    submitted = submit(launcher, log, job_id="48213", analysis_intent="terminal").json()
    assert (submitted["mode"], submitted["sched_restarts"], submitted["files_analyzed"]) == ("splitlog", 2, 2)
    assert submitted["logs_dir"] == f"{root}/split"
    latest = settled(launcher, log)
    assert (latest["mode"], latest["log_file"]) == ("splitlog", f"{root}/split/train_48213_cycle1.log")
    first = settled(launcher, log, file="train_48213_cycle0.log")
    assert "KeyError" in first["result"]["result"][0]["raw_text"]
    by_cycle = [fetch(launcher, log, wl_restart=cycle).json()["log_file"] for cycle in (0, 1)]
    assert by_cycle == [f"{root}/split/train_48213_cycle{cycle}.log" for cycle in (0, 1)]
    assert fetch(launcher, log, wl_restart=5).json()["error_code"] == "invalid_parameter"
    assert fetch(launcher, log, file="none.log").json()["error_code"] == "not_found"


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("relative.log", 400, "invalid_path"),
        ("/etc/passwd", 403, "outside_root"),
        ("{root}/../outside.log", 403, "outside_root"),
        ("{root}/link", 403, "outside_root"),
        ("{root}/nowhere/a.log", 404, "not_found"),
        ("{root}", 400, "not_regular"),
        ("{root}/a\u0000b", 400, "invalid_path"),
        ("/" + "a" * 5000, 400, "invalid_path"),
    ],
)
def test_a_path_that_cant_be_is_refused_in_the_service_s_words(
    launcher: Client, root: Path, path: str, status: int, code: str
) -> None:
    (root / "link").symlink_to("/etc/passwd")
    answer = submit(launcher, path.replace("{root}", str(root)))
    assert (answer.status_code, answer.json()["error_code"]) == (status, code)
    assert set(answer.json()) == {"error_code", "message", "details"}
    assert not SubmittedLog.objects.exists()


def test_a_result_needs_a_log_that_was_submitted_and_isnt_empty(launcher: Client, root: Path) -> None:
    log = root / "a.log"
    assert submit(launcher, log).status_code == 200  # its folder is there: it may still be written
    assert fetch(launcher, log).json()["error_code"] == "not_found"
    log.touch()
    assert (fetch(launcher, log).status_code, fetch(launcher, log).json()["error_code"]) == (400, "empty_file")
    (root / "b.log").write_text("x\n")
    assert (fetch(launcher, root / "b.log").status_code, fetch(launcher, "").status_code) == (404, 422)


@pytest.mark.parametrize(
    "body",
    [{}, {"log_path": 3}, {"log_path": "/x", "analysis_intent": "later"}, {"log_path": "/x", "cycle_id": "1"}, []],
)
def test_a_wrong_body_is_unprocessable(launcher: Client, root: Path, body: Any) -> None:
    answer = launcher.post(f"{BASE}/logs", json.dumps(body), content_type="application/json")
    assert (answer.status_code, answer.json()["error_code"]) == (422, "422")


def test_there_is_a_limit_of_jobs(launcher: Client, root: Path, settings: Any) -> None:
    settings.FAULTLINE_NVRX_MAX_JOBS = 1
    assert submit(launcher, root / "a.log").status_code == 200
    refused = submit(launcher, root / "b.log")
    assert (refused.status_code, refused.json()["error_code"]) == (503, "job_limit_reached")
    assert submit(launcher, root / "a.log").status_code == 200


def test_what_goes_on_can_be_looked_at(launcher: Client, root: Path) -> None:
    log = root / "slurm-48213.out"
    log.write_text(FAULT)
    submit(launcher, log, user="ada", analysis_intent="terminal")
    assert launcher.get(f"{BASE}/inflight").json() == {"count": 1, "paths": [str(log)]}
    assert launcher.get(f"{BASE}/jobs").json()["48213"][0]["status"] == "in_flight"
    settled(launcher, log)
    assert launcher.get(f"{BASE}/stats").json()["files"] == {"tracked": 1, "analyzed": 1}
    assert launcher.get(f"{BASE}/print", {"log_path": str(log)}).content.decode() == FAULT
    assert launcher.get(f"{BASE}/healthz").json()["status"] == "ok"
    assert b"\n" in launcher.get(f"{BASE}/stats?pretty=true").content
    assert launcher.get(f"{BASE}/nonsense").json()["error_code"] == "404"


def test_without_a_root_no_log_can_be_named(launcher: Client, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("x\n")
    assert submit(launcher, tmp_path / "a.log").json()["error_code"] == "outside_root"
    assert launcher.get(f"{BASE}/healthz").json()["status"] == "degraded"


def test_elsewhere_a_token_is_needed(client: Client, root: Path, django_user_model: type[User]) -> None:
    ada = django_user_model.objects.create_user("ada")
    assert client.get(f"{BASE}/healthz").status_code == 200
    for route in ("logs", "stats", "jobs", "inflight", "print"):
        assert client.get(f"{BASE}/{route}").status_code == 401
    _, reader = create_token(ada, "x", ["read"])
    assert client.get(f"{BASE}/jobs", headers={"Authorization": f"Bearer {reader}"}).status_code == 403
    _, both = create_token(ada, "x", ["read", "ingest"])
    assert client.get(f"{BASE}/jobs", headers={"Authorization": f"Bearer {both}"}).status_code == 200


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/healthz", 200),
        ("/compat/nvrx/healthz", 200),
        ("/v2/healthz", 200),
        ("/v2/sessions/1", 401),
        ("/print", 422),
        ("/admin/", 404),
        ("/", 404),
    ],
)
def test_a_port_of_its_own_has_these_routes_at_its_root_and_no_others(settings: Any, path: str, status: int) -> None:
    settings.FAULTLINE_NVRX_OPEN = True
    seen: list[str] = []
    environ = {
        "REQUEST_METHOD": "GET", "PATH_INFO": path, "SERVER_NAME": "localhost", "SERVER_PORT": "80",
        "HTTP_HOST": "localhost", "wsgi.input": BytesIO(), "wsgi.url_scheme": "http", "QUERY_STRING": "",
    }  # fmt: skip
    wsgi.application(environ, lambda line, headers, *_: seen.append(line))
    assert [int(line.split()[0]) for line in seen] == [status]
