"""A data folder of its own for each test; real workers, beats and brokers as processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as project
from django.db import connection

from tests.fakes.kubernetes import FakeKubernetes
from tests.triage import cast
from triage.models import Attempt
from triage.services.attempts import record_attempt
from triage.services.diagnoses import record_diagnosis
from triage.services.sources import forget_configuration, registry
from triage.services.triage import begin_triage, lease_diagnosis, request_triage
from triage.supervisor.folder import Folder
from triage.supervisor.servers import start
from triage.supervisor.valkey import Valkey

MakeAttempt = Callable[..., Attempt]
Policy = Callable[[str], Path]


@pytest.fixture(autouse=True)
def data_dir(settings: Any, tmp_path: Path) -> Iterator[Path]:
    """The blob store and the spool of one test."""
    settings.FAULTLINE_DATA_DIR = tmp_path / "data"
    registry.cache_clear()
    yield settings.FAULTLINE_DATA_DIR
    registry.cache_clear()


@pytest.fixture
def diagnosed(db: None) -> MakeAttempt:
    """Makes an attempt with a diagnosis, through the services: `diagnosed("48213", domain="network", ...)`."""

    def make(workload: str = "48213", *, facts: dict[str, Any] | None = None, **diagnosis: Any) -> Attempt:
        attempt, _ = record_attempt(cast.facts(workload, **(facts or {})))
        request_triage(attempt.pk)
        begin_triage(attempt.pk)
        lease = lease_diagnosis(attempt.pk)
        assert lease is not None
        assert record_diagnosis(lease, cast.contract(**diagnosis), evidence=f"evidence of {workload}") is not None
        return Attempt.objects.get(pk=attempt.pk)

    return make


class Process:
    """A part of Faultline in its own process group."""

    def __init__(self, arguments: list[str], environment: dict[str, str], log: Path) -> None:
        self._log = log.open("ab")
        self.log = log
        quiet = ["--quiet"] if environment.get("FAULTLINE_LOG_FORMAT") == "json" else []  # no banner among the objects
        self._process = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "triage.celery", *quiet, *arguments],
            cwd=project.BASE_DIR,
            env=environment,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def kill(self) -> None:
        """SIGKILL to the worker and its children at once."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM, and SIGKILL when that doesn't do."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=10)
        self.kill()
        self._log.close()

    def _end(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)
        self._process.wait()


class Fleet:
    """Starts workers and beats against the test's database, and ends them."""

    def __init__(self, data_dir: Path, tmp_path: Path, **environment: str) -> None:
        self._tmp_path = tmp_path
        self._started: list[Process] = []
        facts = connection.settings_dict
        url = f"postgresql://{facts['USER']}:{facts['PASSWORD']}@{facts['HOST']}:{facts['PORT']}/{facts['NAME']}"
        if str(facts["HOST"]).startswith("/"):
            url = f"postgresql://{facts['USER']}:{facts['PASSWORD']}@/{facts['NAME']}?host={facts['HOST']}"
        self.environment = {
            **os.environ,
            "DATABASE_URL": url,
            "FAULTLINE_DATA_DIR": str(data_dir),
            "FAULTLINE_LEASE_SECONDS": "3",
            "FAULTLINE_SWEEP_SECONDS": "1",
            "FAULTLINE_DISCOVER_SECONDS": "1",
            "C_FORCE_ROOT": "1",
            **environment,
        }

    def worker(self) -> Process:
        return self._start("worker", "--concurrency", "2", "--loglevel", "INFO", "--without-mingle", "--without-gossip")

    def beat(self) -> Process:
        schedule = str(self._tmp_path / "beat-schedule")
        return self._start("beat", "--loglevel", "INFO", "--schedule", schedule, "--pidfile=")

    def stop(self) -> None:
        for process in reversed(self._started):
            process.stop()

    def logs(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-6000:] for path in sorted(self._tmp_path.glob("*.log")))

    def _start(self, kind: str, *arguments: str) -> Process:
        log = self._tmp_path / f"{kind}-{len(self._started)}.log"
        process = Process([kind, *arguments], self.environment, log)
        self._started.append(process)
        return process


@pytest.fixture
def fleet(transactional_db: None, broker: None, settings: Any, data_dir: Path, tmp_path: Path) -> Iterator[Fleet]:
    """Real Celery processes, whose silence is noticed after three seconds."""
    settings.FAULTLINE_LEASE_SECONDS = 3
    fleet = Fleet(data_dir, tmp_path)
    yield fleet
    fleet.stop()


def wait_until(
    what: Callable[[], Any], *, seconds: float = 60, every: float = 0.05, say: Callable[[], str] = str
) -> Any:
    """Waits for something to be true and returns it; fails with `say()` when it doesn't come."""
    deadline = time.monotonic() + seconds
    while True:
        found = what()
        if found:
            return found
        if time.monotonic() > deadline:
            pytest.fail(f"not within {seconds:.0f} s: {say()}")
        time.sleep(every)


@pytest.fixture
def kubernetes() -> Iterator[FakeKubernetes]:
    with FakeKubernetes() as cluster:
        yield cluster


@pytest.fixture
def configured(
    kubernetes: FakeKubernetes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data_dir: Path
) -> Iterator[Callable[..., Path]]:
    """`configured(extra)`: a faultline.toml with cluster k2, its Kueue and its pods."""
    file, kubeconfig = tmp_path / "faultline.toml", kubernetes.kubeconfig(tmp_path / "kubeconfig")
    monkeypatch.setattr("connectors.kueue.discovery.IDLE_SECONDS", 0.3)

    def write(extra: str = "", cluster: str = "", kueue: str = "since_hours = 100000\n") -> Path:
        file.write_text(
            f'[clusters.k2]\ntime_zone = "UTC"\n{cluster}\n'
            f'[clusters.k2.sources.kueue]\nkubeconfig = "{kubeconfig}"\nwatch_seconds = 1\n{kueue}\n'
            f'[clusters.k2.sources.pods]\nkubeconfig = "{kubeconfig}"\nfollow_seconds = 0\n{extra}'
        )
        return file

    monkeypatch.setenv("FAULTLINE_CONFIG", str(write()))
    yield write
    forget_configuration()


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Policy:
    """`policy(text)`: a faultline.toml that says so."""
    file = tmp_path / "faultline.toml"
    monkeypatch.setenv("FAULTLINE_CONFIG", str(file))

    def write(text: str) -> Path:
        file.write_text(text)
        forget_configuration()
        return file

    write("")
    return write


class Broker:
    """A broker of one test's own, that forgets everything when it dies."""

    def __init__(self, folder: Path) -> None:
        files = Folder(folder)
        files.create()
        self._server = Valkey(files, throwaway=True)
        self._server.prepare()
        self._children = [start(self._server)]

    @property
    def url(self) -> str:
        return self._server.url

    def kill(self) -> None:
        self._children[-1].kill_group()

    def start(self) -> None:
        self._children.append(start(self._server))


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path / "broker")
    yield broker
    broker.kill()
