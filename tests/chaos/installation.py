"""An installation in a temporary folder, of which any process can be killed and started again."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from urllib.parse import urlsplit

from tests.chaos.clock import Clock
from tests.chaos.proxy import Proxy
from triage.supervisor import servers
from triage.supervisor.folder import Folder
from triage.supervisor.ports import LOOPBACK, free_port
from triage.supervisor.postgres import Postgres
from triage.supervisor.process import Child, stop_all
from triage.supervisor.valkey import Valkey

PROJECT = Path(__file__).resolve().parents[2]
ROOM = "1g"
"""Of the file system that the data folder lies on, where it can be a small one of its own."""
WORKERS = ("worker-1", "worker-2")


class CannotBeDone(Exception):
    """Not on this machine; why."""


class Installation:
    """`environment` holds what its processes are told: they, and the clients, reach every server through a proxy.
    `direct` holds what the ledger needs, which asks the servers themselves.
    """

    settings: Mapping[str, str] = MappingProxyType({})
    """Of its processes, beside what all installations have."""

    def __init__(self, *, small_disk: bool, code: Path = PROJECT) -> None:
        """`code`: the folder of the version of Faultline that is run at first."""
        self.root = Path(tempfile.mkdtemp(prefix="faultline-chaos-", dir="/var/tmp"))
        self.folder = Folder(self.root)
        self.folder.create()
        self.data, self.watched = self.root / "data", self.root / "incoming"
        for place in (self.data, self.watched, self.root / "metrics"):
            place.mkdir()
        self.mounted = small_disk and _mount(self.data)
        for name in ("blobs", "spool", "observed"):
            (self.data / name).mkdir(mode=0o700, exist_ok=True)
        self.servers: dict[str, Postgres | Valkey] = {"postgres": Postgres(self.folder), "valkey": Valkey(self.folder)}
        self.port = free_port()
        self.children: dict[str, Child] = {}
        self.killed: set[str] = set()
        """Of the processes, those that were killed on purpose since they were started."""
        chance = random.Random(self.port)
        self.network = {
            "postgres": Proxy(lambda: self.servers["postgres"].port, chance),
            "valkey": Proxy(lambda: self.servers["valkey"].port, chance),
            "web": Proxy(lambda: self.port, chance),
        }
        self.code: dict[str, Path] = {}
        """Of the processes, those that run from another folder than the first one did."""
        self.first_code = code
        self.clocks: dict[str, Clock] = {}
        """Of the processes, those whose clock can be stepped."""
        self.environment: dict[str, str] = {}
        self.direct: dict[str, str] = {}

    @property
    def url(self) -> str:
        """Where clients find the web server."""
        return f"http://{LOOPBACK}:{self.network['web'].port}"

    def _through_proxy(self, name: str) -> str:
        found = urlsplit(self.servers[name].url)
        user = f"{found.username or ''}:{found.password}"
        return found._replace(netloc=f"{user}@{LOOPBACK}:{self.network[name].port}").geturl()

    def start(self) -> None:
        """Raises DemoError when it doesn't come up."""
        for name, server in self.servers.items():
            server.prepare()
            self.children[name] = servers.start(server)
        self.environment = {
            **os.environ,
            "DATABASE_URL": self._through_proxy("postgres"),
            "REDIS_URL": self._through_proxy("valkey"),
            "DJANGO_SETTINGS_MODULE": "triage.settings",
            "FAULTLINE_STATE_DIR": str(self.root),
            "FAULTLINE_DATA_DIR": str(self.data),
            "FAULTLINE_WATCH": str(self.watched),
            "FAULTLINE_CONFIG": str(self.root / "faultline.toml"),
            "FAULTLINE_LEASE_SECONDS": "4",
            "FAULTLINE_SWEEP_SECONDS": "2",
            "FAULTLINE_DISCOVER_SECONDS": "3",
            "FAULTLINE_API_RATE": "0",
            "SECRET_KEY": "only-for-an-installation-that-lives-for-minutes-in-a-temporary-folder",
            "C_FORCE_ROOT": "1",
            "PYTHONUNBUFFERED": "1",
            **self.settings,
        }
        self.direct = {
            **self.environment,
            "DATABASE_URL": self.servers["postgres"].url,
            "REDIS_URL": self.servers["valkey"].url,
        }
        (self.root / "faultline.toml").touch()
        self.manage("migrate", "--no-input")
        for name in ("web", *WORKERS, "beat"):
            self.run(name)
        self.wait_until_ready()

    def manage(self, *words: str) -> str:
        """A management command; its output. Raises RuntimeError when it fails."""
        done = subprocess.run(
            [sys.executable, "manage.py", *words], cwd=self.first_code, env=self.environment, capture_output=True,
            text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"manage.py {' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    def run(self, name: str) -> None:
        """Starts a process that doesn't run; a server is waited for."""
        child = self.children.get(name)
        if child is not None and child.running():
            return
        self.killed.discard(name)
        if name in self.servers:
            self.children[name] = servers.start(self.servers[name])
            return
        argv = [sys.executable, "-m", *self._words(name)]
        clock = self.clocks.get(name)
        environment = {**self.environment, **(clock.environment if clock else {})}
        code = self.code.get(name, self.first_code)
        child = Child(name, argv, log=self.folder.log(name), env=environment, cwd=code)
        child.start()
        self.children[name] = child

    def _words(self, name: str) -> list[str]:
        if name == "web":
            size = ["--config", "python:triage.web_server", "--workers", "1", "--threads", "8", "--no-control-socket"]
            return ["gunicorn", "triage.wsgi:application", "--bind", f"{LOOPBACK}:{self.port}", *size]
        if name == "beat":
            schedule = str(self.root / "celerybeat-schedule")
            return ["celery", "-A", "triage.celery", "beat", "--schedule", schedule, "--pidfile="]
        alone = ["--without-mingle", "--without-gossip", "-n", f"{name}@chaos"]
        return ["celery", "-A", "triage.celery", "worker", "-c", "2", "-l", "INFO", *alone]

    def kill(self, name: str) -> None:
        """SIGKILL to the process and everything that it started."""
        self.killed.add(name)
        self.children[name].kill_group()

    def replace(self, name: str, code: Path) -> None:
        """Ends a process as a deployment does, and starts it from another folder."""
        self.killed.add(name)
        stop_all([self.children[name]], 8)
        self.code[name] = code
        self.run(name)

    def ended(self) -> list[str]:
        """Processes that ended though nobody killed them; each is told once."""
        found = [name for name, child in self.children.items() if name not in self.killed and not child.running()]
        self.killed.update(found)
        return [f"{name} ended by itself: {self.children[name].how_it_ended()}" for name in found]

    def pids(self, name: str) -> list[int]:
        """Of the process and everything that it started."""
        parents = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        found = [self.children[name].pid]
        for pid in found:
            found += [child for child, parent in parents.items() if parent == pid]
        return found

    def freeze(self, name: str, seconds: float) -> None:
        """It runs, and does not answer: as with a machine that swaps, or a network that is cut."""
        group = self.children[name].pid
        os.killpg(group, signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGCONT)

    def mend(self) -> None:
        """Whatever doesn't run is started."""
        for name in (*self.servers, "web", *WORKERS, "beat"):
            self.run(name)
        self.wait_until_ready()

    def wait_until_ready(self, seconds: float = 300) -> None:
        wait_for(self._ready, seconds, lambda: f"not ready: {self.tails()}")

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def tails(self, lines: int = 12) -> str:
        """The ends of all logs, for people."""
        return "\n".join(f"--- {name}\n{child.tail(lines)}" for name, child in self.children.items())

    def stop(self, *, keep: bool = False) -> None:
        """Ends every process; the folder goes, unless somebody wants to look into it."""
        stop_all([child for name, child in self.children.items() if name not in self.servers], 8)
        stop_all([self.children[name] for name in self.servers if name in self.children], 8)
        for proxy in self.network.values():
            proxy.stop()
        if keep:
            print(f"kept for a look: {self.root}", file=sys.stderr)
            return
        if self.mounted:
            subprocess.run(["umount", "--recursive", "--lazy", str(self.data)], check=False)
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.rmtree(self.folder.outside, ignore_errors=True)


def _mount(place: Path) -> bool:
    """A small file system of its own; False where we may not."""
    if os.geteuid() != 0:
        return False
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={ROOM},mode=700", "faultline-chaos", str(place)], capture_output=True,
        check=False,
    )  # fmt: skip
    return made.returncode == 0


def wait_for(what: Callable[[], object], seconds: float, say: Callable[[], str]) -> None:
    """Raises TimeoutError with `say()` when it doesn't come true."""
    deadline = time.monotonic() + seconds
    while not what():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:.0f} s: {say()}")
        time.sleep(0.2)
