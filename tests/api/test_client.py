"""The client of one file and the commands, against the running server with a real worker."""

from __future__ import annotations

import io
import json
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as project
from django.contrib.auth.models import User

from tests.triage import cast
from tests.triage.conftest import Fleet
from triage import client as module
from triage.client import ApiError, Client, main
from triage.models import Attempt, Observation
from triage.services.tokens import create_token
from triage.supervisor.cli import main as faultline

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def server(live_server: Any, transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> str:
    """Its address; the environment has it and a token."""
    _, secret = create_token(User.objects.create_user("ada"), "client", ["ingest", "read"])
    monkeypatch.setenv("FAULTLINE_SERVER", live_server.url)
    monkeypatch.setenv("FAULTLINE_TOKEN", secret)
    return str(live_server.url)


@pytest.fixture
def client(server: str, monkeypatch: pytest.MonkeyPatch) -> Client:
    import os

    return Client(server, os.environ["FAULTLINE_TOKEN"], tries=2)


def test_it_needs_nothing_but_the_standard_library() -> None:
    source = Path(project.BASE_DIR) / "triage" / "client.py"
    done = subprocess.run([sys.executable, "-I", "-S", source, "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_logs_are_sent_and_the_diagnosis_printed_with_its_domain_as_exit_code(
    server: str, fleet: Fleet, tmp_path: Path, capsys: Any
) -> None:
    fleet.worker()
    (tmp_path / "syslog").mkdir()
    (tmp_path / "syslog" / "gx-02.log").write_text(cast.SYSLOG)
    (tmp_path / "train.log").write_text(cast.APPLOG)
    facts = ["--job", "48213", "--cluster", "c1", "--scheduler", "slurm", "--state", "FAILED", "--nodes", "gx-01,gx-02"]
    facts += ["--started-at", "2026-11-03T02:00:00Z", "--ended-at", "2026-11-03T04:22:31Z"]
    words = [
        "diagnose",
        str(tmp_path / "syslog" / "gx-02.log"),
        str(tmp_path / "train.log"),
        *facts,
        "--server",
        server,
    ]
    assert faultline(words) == 10, fleet.logs()
    told = capsys.readouterr().out
    assert "Xid 79" in told and "restart_excluding (gx-02)" in told
    assert faultline(["watch", str(Attempt.objects.get().pk), "--format", "json"]) == 10
    assert json.loads(capsys.readouterr().out)["root_cause"]["nodes"] == ["gx-02"]


def test_nodes_may_be_given_as_slurm_lists_them(server: str, tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(cast.APPLOG)
    facts = ["--job", "48213", "--cluster", "c1", "--scheduler", "slurm", "--nodes", "gx-[01-03,07], login1"]
    assert faultline(["submit", str(tmp_path / "train.log"), *facts]) == 0
    assert Attempt.objects.get().nodes == ["gx-01", "gx-02", "gx-03", "gx-07", "login1"]


def test_a_list_of_nodes_that_can_not_be_read_is_refused(server: str, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "train.log").write_text(cast.APPLOG)
    facts = ["--job", "48213", "--cluster", "c1", "--scheduler", "slurm", "--nodes"]
    for written, why in (("gx-[01-", "a bracket that nothing closes"), ("gx-[1-99999999]", "more than")):
        assert faultline(["submit", str(tmp_path / "train.log"), *facts, written]) != 0
        said = capsys.readouterr().err
        assert "nodes" in said and why in said
    assert not Attempt.objects.exists()


def test_a_bundle_is_submitted(server: str, tmp_path: Path, capsys: Any) -> None:
    bundle = cast.archive(tmp_path / "a.tar.zst", cast.members())
    assert main(["submit", str(bundle)]) == 0
    assert capsys.readouterr().out.strip() == str(Attempt.objects.get().pk)


def test_a_log_can_be_piped_in(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(cast.APPLOG.encode())))
    assert main(["submit", "-", "--job", "7"]) == 0
    assert Observation.objects.get().name == "applog/stdin.log"


def test_sending_goes_on_where_an_earlier_run_stopped(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PART", 100)
    attempt = client.attempt("1")
    content = b"line\n" * 90
    client.send(attempt, "applog/a.log", content[:250])
    assert client.send(attempt, "applog/a.log", content) == 450
    row = Observation.objects.get()
    assert (row.size, row.parts) == (450, 5)
    assert client.send(attempt, "applog/a.log", content) == 450
    assert Observation.objects.get().parts == 5


def test_what_is_wrong_is_said_in_one_line(client: Client, server: str, tmp_path: Path, capsys: Any) -> None:
    with pytest.raises(ApiError, match="There is no attempt 99") as caught:
        client.diagnose(99)
    assert caught.value.status == 404
    (tmp_path / "a.log").write_text("x\n")
    assert main(["submit", str(tmp_path / "a.log")]) == 1
    assert "log files need --job" in capsys.readouterr().err
    assert main(["watch", "1", "--token", "flt_wrong"]) == 1
    assert "token is not valid" in capsys.readouterr().err


def test_an_answer_that_ends_half_way_is_told_like_one_that_does_not_come() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            one, _ = listening.accept()
            with one:
                one.recv(1 << 16)
                one.sendall(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 121\r\n\r\n{")

        server = threading.Thread(target=answer)
        server.start()
        with pytest.raises(ApiError, match="503 Service Unavailable") as caught:
            Client(f"http://127.0.0.1:{listening.getsockname()[1]}", "token", tries=1).call("GET", "attempts")
        server.join()
    assert caught.value.status == 503
