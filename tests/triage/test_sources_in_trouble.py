"""A source that is down, slow, locked, empty or garbage: the others still give the answer, the coverage says which one
and why, nothing waits longer than its limit, and it is fetched again later. For every connector.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from connectors import access
from tests.connectors.slurm.standin import Accounting
from tests.fakes.kubernetes import FakeKubernetes
from tests.fakes.loki import FakeLoki
from tests.fakes.loki import Fault as LokiFault
from tests.fakes.scripted import Say, ScriptedServer
from tests.triage.jobs import TRACE, fail
from triage.models import Attempt, Collection, Recollection
from triage.services.recollecting import due_recollections, recollect
from triage.services.sources import forget_configuration
from triage.services.triage import begin_triage
from triage.tasks.collecting import TEMPORARY_TRIES, collect
from triage.tasks.diagnosing import diagnose
from triage.tasks.discovery import discover_source

TROUBLES = ("down", "slow", "locked", "empty", "garbage")
SECRET = "correct-horse"
LOGIN = "<!DOCTYPE html><html><head><title>Sign in</title></head></html>"
LONGEST = 15.0
"""Seconds; every limit is one, some sources are asked in several parts, and what is slow takes twenty."""
SAYS = {
    ("loki", "down"): ("error", "refuses connections: it is down, or url names a wrong port"),
    ("loki", "slow"): ("error", "time limit (1 s)"),
    ("loki", "locked"): ("error", "check username and password (env:SICK_PASSWORD)"),
    ("loki", "empty"): ("empty", "it has no lines at all of that time; check tenant and retention"),
    ("loki", "garbage"): ("error", 'a web page, "Sign in" instead of JSON'),
    ("promql", "down"): ("error", "refuses connections: it is down, or url names a wrong port"),
    ("promql", "slow"): ("error", "time limit (1 s)"),
    ("promql", "locked"): ("error", "check username and password (env:SICK_PASSWORD)"),
    ("promql", "empty"): ("empty", "check matchers (how exporters name a node), selector, and how long metrics"),
    ("promql", "garbage"): ("error", 'a web page, "Sign in" instead of JSON'),
    ("pods", "down"): ("error", "refuses connections"),
    ("pods", "slow"): ("error", "not finished within the time limit (1 s)"),
    ("pods", "locked"): ("error", "does not accept the login"),
    ("pods", "empty"): ("missing", "their logs can only come from a log store such as Loki"),
    ("pods", "garbage"): ("error", "does not answer like the Kubernetes API: check server in"),
    ("kueue", "down"): ("partial", "refuses connections"),
    ("kueue", "slow"): ("partial", "not finished within the time limit (1 s)"),
    ("kueue", "locked"): ("partial", "does not accept the login"),
    ("kueue", "empty"): ("partial", "1 of 1 pods are gone (t5-worker-0): as they were last seen"),
    ("kueue", "garbage"): ("partial", "does not answer like the Kubernetes API: check server in"),
    ("files", "down"): ("missing", "does not exist here: create it, mount its file system, or correct roots"),
    ("files", "slow"): ("error", "its file system, or what it is mounted from, hangs"),
    ("files", "locked"): ("missing", "is a link that leads out of the allowed folders and was not followed"),
    ("files", "empty"): ("missing", "does not exist here: it was removed, never written"),
    ("files", "garbage"): ("partial", "kern.log.gz is damaged, not read: Error -3 while decompressing data"),
    ("slurm", "down"): ("error", "slurmdbd can not be reached"),
    ("slurm", "slow"): ("error", "gave no answer within 1 s"),
    ("slurm", "locked"): ("error", "munge refuses: see that munged runs on that host"),
    ("slurm", "empty"): ("missing", "accounting has no record of job 7"),
    ("slurm", "garbage"): ("error", "sacct printed no table: <html>Sign in</html>"),
}


@pytest.fixture
def sick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sick]:
    monkeypatch.setenv("SICK_PASSWORD", SECRET)
    with ExitStack() as closing:
        yield Sick(tmp_path, monkeypatch, closing)


class Sick:
    """Sources in trouble, as keys of a configuration; and well ones."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, closing: ExitStack) -> None:
        self._folder, self._monkeypatch, self._closing = folder, monkeypatch, closing
        self.free = threading.Event()
        """Ends the hanging of a file system."""
        closing.callback(self.free.set)

    def url(self, answer: Callable[[str, dict[str, str]], Say]) -> str:
        return self._closing.enter_context(ScriptedServer(answer)).url

    def port_of_nobody(self) -> str:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            return f"http://127.0.0.1:{taken.getsockname()[1]}"

    def loki(self, trouble: str, at: float) -> str:
        loki = FakeLoki(basic=("faultline", "another" if trouble == "locked" else SECRET))
        self._closing.enter_context(loki)
        if trouble != "empty":
            loki.push({"node": "gpu-a"}, [(int((at - 10) * 10**9), "gpu-a kernel: all is well")])
        if trouble in ("slow", "garbage"):
            loki.always = LokiFault(0, seconds=20) if trouble == "slow" else LokiFault(200, LOGIN)
        url = self.port_of_nobody() if trouble == "down" else loki.url
        login = 'username = "faultline"\npassword = "env:SICK_PASSWORD"'
        return f'url = "{url}"\n{login}\nqueries = [{{source = "syslog", query = \'{{node="{{node}}"}}\'}}]'

    def promql(self, trouble: str, at: float) -> str:
        def answer(path: str, params: dict[str, str]) -> Say:
            kind = "matrix" if path.endswith("range") else "vector"
            sample = {"values": [[at - 15, "1"]]} if kind == "matrix" else {"value": [at, "1"]}
            found = [] if trouble == "empty" else [{"metric": {"instance": "gpu-a:9100"}, **sample}]
            body = {"status": "success", "data": {"resultType": kind, "result": found}}
            said = {"slow": Say("late", after=20), "locked": Say("no", 401), "garbage": Say(LOGIN)}
            return said.get(trouble, Say(body))

        url = self.port_of_nobody() if trouble == "down" else self.url(answer)
        login = 'username = "faultline"\npassword = "env:SICK_PASSWORD"'
        return f'url = "{url}"\n{login}\nqueries = ["up"]\nresolution = 60'

    def kubeconfig(self, trouble: str, well: FakeKubernetes) -> str:
        api = self._closing.enter_context(FakeKubernetes())
        path, token = self._folder / f"{trouble}.kubeconfig", "stale" if trouble == "locked" else None
        said = {"slow": Say("late", after=20), "garbage": Say(LOGIN)}
        urls = {"down": self.port_of_nobody, "locked": lambda: well.url, "empty": lambda: api.url}
        url = urls.get(trouble, lambda: self.url(lambda path, params: said[trouble]))()
        api.kubeconfig(path, token=token)
        path.write_text(path.read_text().replace(api.url, url))
        return f'kubeconfig = "{path}"\n'

    def files(self, trouble: str, at: float) -> str:
        root = self._folder / "nodes" / trouble
        log, name = root / "gpu-a" / "kern.log", "kern.log"
        if trouble != "down":
            log.parent.mkdir(parents=True, exist_ok=True)
        if trouble in ("well", "slow"):
            log.write_text("gpu-a kernel: all is well\n")
        if trouble == "locked":
            (self._folder / "secret").write_text("not yours\n")
            log.unlink(missing_ok=True)
            log.symlink_to(self._folder / "secret")
        if trouble == "garbage":
            name = "kern.log.gz"
            (log.parent / name).write_bytes(b"\x1f\x8b\x08\x00" + bytes(range(256)) * 20)
        if trouble == "slow":
            self._hang(log)
        pattern = f'{{source = "syslog", path = "nodes:{{node}}/{name}", cut = false}}'
        return f'roots = {{nodes = "{root}"}}\npatterns = [{pattern}]'

    def _hang(self, log: Path) -> None:
        """Opening the file does not come back, as when its server is away."""
        opened = os.open

        def hanging(path: Any, *more: Any, **options: Any) -> int:
            if str(path) == str(log):
                self.free.wait(60)
            return opened(path, *more, **options)

        self._monkeypatch.setattr(access.os, "open", hanging)


def work_off(attempt: Attempt, sick: str) -> float:
    """What the workers do, up to the last try of each source; how long the sick one took."""
    begin_triage(attempt.pk)
    took = 0.0
    for row in Collection.objects.filter(attempt=attempt):
        Collection.objects.filter(pk=row.pk).update(tries=TEMPORARY_TRIES)
        began = time.monotonic()
        collect(row.pk)
        if row.connector == sick:
            took = time.monotonic() - began
    diagnose(attempt.pk)
    return took


def holds(attempt: Attempt, key: str, kind: str, trouble: str, took: float) -> None:
    """What is asked of every one of them."""
    attempt.refresh_from_db()
    assert (attempt.triage_state, attempt.domain) == ("done", "software"), "the others give the answer"
    assert took < LONGEST
    status, words = SAYS[kind, trouble]
    given = Collection.objects.get(attempt=attempt, connector=key).reports
    reports = [report for report in given if report["status"] == status]
    assert reports, given
    assert any(words in report["note"] for report in reports), reports
    assert all("\n" not in report["note"] and SECRET not in repr(report) for report in reports)
    assert attempt.diagnosis is not None
    coverage = attempt.diagnosis.contract["coverage"]
    if status != "empty":
        assert any(one["status"] == status and words in one["note"] for one in coverage), coverage
    plan = Recollection.objects.get(attempt=attempt)
    assert plan.due_at is not None and plan.due_at < timezone.now() + timedelta(hours=1)


def again(attempt: Attempt) -> None:
    Recollection.objects.update(due_at=timezone.now() - timedelta(seconds=1))
    assert due_recollections() == [attempt.pk]
    assert recollect(attempt.pk)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("kind", ["loki", "promql", "pods", "kueue", "files"])
def test_the_others_answer_and_it_is_told_of_and_fetched_again(
    kubernetes: FakeKubernetes, configured: Callable[..., Path], tmp_path: Path, sick: Sick, kind: str, trouble: str
) -> None:
    end = float(int(time.time()) - 60)
    (tmp_path / "shared").mkdir()
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(end - 5))
    (tmp_path / "shared" / "t5.log").write_text("".join(f"{stamp} {line}\n" for line in TRACE))
    shared = (
        f'[clusters.k2.sources.shared]\nkind = "files"\nroots = {{logs = "{tmp_path}/shared"}}\n'
        'patterns = [{source = "applog", path = "logs:{name}.log"}]\n'
    )

    def configure(trouble: str) -> None:
        if kind in ("pods", "kueue"):
            file = configured(shared)
            if trouble != "well":
                head, table, rest = file.read_text().partition(f"[clusters.k2.sources.{kind}]\n")
                keys = rest.split("\n", 1)[1]
                file.write_text(f"{head}{table}{sick.kubeconfig(trouble, kubernetes)}time_limit = 1\n{keys}")
        else:
            keys = getattr(sick, kind)(trouble, end)
            configured(f'{shared}[clusters.k2.sources.sick]\nkind = "{kind}"\ntime_limit = 1\n{keys}\n')
        forget_configuration()

    key = f"k2/{kind}" if kind in ("pods", "kueue") else "k2/sick"
    fail(kubernetes, end=end)
    configure("well" if kind in ("pods", "kueue") else trouble)
    discover_source("k2/kueue")
    attempt = Attempt.objects.get()
    configure(trouble)
    holds(attempt, key, kind, trouble, work_off(attempt, key))

    sick.free.set()
    configure("well")
    again(attempt)
    work_off(attempt, key)
    reports = Collection.objects.get(attempt=attempt, connector=key).reports
    assert not any(report["failed"] for report in reports), reports
    if kind != "kueue":  # whose events are gone for good
        assert [report["status"] for report in reports] == ["ok"], reports


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("trouble", TROUBLES)
def test_of_slurm_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data_dir: Path, sick: Sick, trouble: str
) -> None:
    end = float(int(time.time()) - 60)
    (tmp_path / "shared").mkdir()
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(end - 5))
    (tmp_path / "shared" / "7.log").write_text("".join(f"{stamp} {line}\n" for line in TRACE))
    accounting = Accounting(tmp_path / "bin")
    accounting.add("7", end)
    accounting.write()
    well = (tmp_path / "bin" / "sacct").read_text()

    def programs(trouble: str) -> None:
        scripts = {
            "down": "echo 'sacct: error: slurm_persist_conn_open: Connection refused' >&2; exit 1",
            "slow": "sleep 20",
            "locked": "echo 'error: Munge encode failed: Failed to access munge.socket' >&2; exit 1",
            "empty": "exit 0",
            "garbage": "echo '<html>Sign in</html>'",
        }
        for name in ("sacct", "scontrol", "squeue"):
            script = f"#!/bin/sh\n{scripts.get(trouble, 'exit 0')}\n"
            if name == "sacct" and trouble in ("empty", "garbage"):
                script = f'#!/bin/sh\n[ "$1" = --helpformat ] && exec cat {tmp_path}/bin/columns\n{script}'
                accounting.rows.clear()
                accounting.write()
            if name == "sacct" and trouble in ("well", "empty"):
                script = well
            (tmp_path / "bin" / name).write_text(script)
            (tmp_path / "bin" / name).chmod(0o755)

    programs("well")
    (tmp_path / "faultline.toml").write_text(
        f'[clusters.c1.sources.slurm]\nbin_dir = "{tmp_path}/bin"\ncall_seconds = 1\n'
        f'[clusters.c1.sources.shared]\nkind = "files"\nroots = {{logs = "{tmp_path}/shared"}}\n'
        'patterns = [{source = "applog", path = "logs:{job_id}.log"}]\n'
    )
    monkeypatch.setenv("FAULTLINE_CONFIG", str(tmp_path / "faultline.toml"))
    forget_configuration()
    discover_source("c1/slurm")
    attempt = Attempt.objects.get()
    programs(trouble)
    holds(attempt, "c1/slurm", "slurm", trouble, work_off(attempt, "c1/slurm"))

    accounting.rows.clear()
    accounting.add("7", end)
    accounting.write()
    programs("well")
    again(attempt)
    work_off(attempt, "c1/slurm")
    reports = Collection.objects.get(attempt=attempt, connector="c1/slurm").reports
    assert next(r for r in reports if r["source"] == "scheduler")["status"] == "ok", reports
    forget_configuration()
