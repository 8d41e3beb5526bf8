"""The demo from its start to its end. Read `Demo.run` first."""

from __future__ import annotations

import contextlib
import http.client
import json
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from triage.supervisor import guard, servers
from triage.supervisor.errors import DemoError
from triage.supervisor.folder import Folder
from triage.supervisor.ports import LOOPBACK, listen
from triage.supervisor.postgres import Postgres
from triage.supervisor.process import Child, stop_all
from triage.supervisor.valkey import Valkey

PROJECT = Path(__file__).resolve().parents[2]
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
WORKERS_GRACE = 4.0  # seconds; with the servers' it stays below the ten that a stop may take
SERVERS_GRACE = 3.0
START_TIMEOUT = 120.0
CRASHES_ALLOWED = 5
CRASH_WINDOW = 120.0
HEALTH_EVERY = 10.0
UNHEALTHY_FOR = 60.0
_WEB = ("--config", "python:triage.web_server")


class StopRequested(Exception):
    """A signal asked the supervisor to end."""


class Watched:
    """A child that must run, with the times of its crashes."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self.crashes: deque[float] = deque()
        self.start_at: float | None = None
        """When to start it again; None while it runs."""

    def crashed(self, now: float) -> float | None:
        """Note a crash. Seconds to wait before the next start, or None when it crashed too often."""
        self.crashes.append(now)
        while self.crashes[0] < now - CRASH_WINDOW:
            self.crashes.popleft()
        if len(self.crashes) > CRASHES_ALLOWED:
            return None
        wait: float = 0.5 * 2 ** (len(self.crashes) - 1)
        self.start_at = now + wait
        return wait


class Demo:
    """Faultline on one machine. `environ` is what the person's shell has set."""

    def __init__(self, folder: Folder, port: int, environ: dict[str, str]) -> None:
        self.folder = folder
        self.port = port
        self.env = {
            "FAULTLINE_CACHE": str(folder.root / "cache"),
            "PROMETHEUS_MULTIPROC_DIR": str(folder.root / "metrics"),
            **environ,
            "DJANGO_SETTINGS_MODULE": "triage.settings",
            "FAULTLINE_STATE_DIR": str(folder.root),
            "PYTHONUNBUFFERED": "1",
        }
        self.servers: list[Watched] = []
        self.workers: list[Watched] = []
        self.commands: list[Child] = []
        self.guard: subprocess.Popen[bytes] | None = None
        self.ready = False
        self.stop_signal: signal.Signals | None = None
        self.healthy_at = time.monotonic()
        self.checked_at = self.healthy_at

    def run(self) -> None:
        """Start everything, say that it is ready, keep it running until a signal comes. Raises DemoError."""
        began = time.monotonic()
        self.folder.create()
        shutil.rmtree(self.folder.root / "metrics", ignore_errors=True)  # figures of processes that are gone
        with self.folder.locked(), self._signals(), listen(self.port) as listener:
            try:
                self._start_guard()
                self._start_servers()
                self._manage("migrate", "migrating the database", "migrate", "--no-input", "--verbosity=1")
                self._start_workers(listener)
                self._manage(
                    "seed_demo", "importing the samples and waiting until they are triaged", "seed_demo", "--wait"
                )
                self._start_beat()
                self._wait_until_it_answers()
                self.ready = True
                say(f"started in {time.monotonic() - began:.1f} s; logs are in {self.folder.logs}; Ctrl-C ends it")
                address = f"http://{LOOPBACK}:{self.port}/"
                print(f"Faultline is ready: {address} (sign in as demo / demo)", flush=True)
                while True:
                    self._pause(1.0)
                    self._check_health()
            except StopRequested:
                say("stopping")
            finally:
                self._stop()

    # --- starting ----------------------------------------------------------------------------------------------------

    def _start_guard(self) -> None:
        """The process that ends all others if this one is killed."""
        with self.folder.log("guard").open("ab") as log:
            self.guard = subprocess.Popen(
                [sys.executable, "-I", guard.__file__],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd="/",
                env={},
                start_new_session=True,
            )

    def _start_servers(self) -> None:
        if not self.env.get("DATABASE_URL"):
            postgres = Postgres(self.folder)
            postgres.prepare()
            for note in postgres.notes:
                say(note)
            self._start_server(postgres)
            self.env["DATABASE_URL"] = postgres.url
        if not self.env.get("REDIS_URL"):
            valkey = Valkey(self.folder)
            valkey.prepare()
            self._start_server(valkey)
            self.env["REDIS_URL"] = valkey.url
        kept = ("DATABASE_URL", "REDIS_URL", "FAULTLINE_STATE_DIR", "DJANGO_SETTINGS_MODULE")
        lines = "".join(f"export {name}={shlex.quote(self.env[name])}\n" for name in kept)
        self.folder.write_private(self.folder.root / "env", lines)

    def _start_server(self, server: Postgres | Valkey) -> None:
        child = servers.start(server, run=self._start, pause=self._pause)
        self.servers.append(Watched(child))
        self.folder.keep_ports(**{child.name: server.port})
        say(f"{child.name} runs on port {server.port}")

    def _start_workers(self, listener: socket.socket) -> None:
        say("starting web server and worker")
        bind = ["--bind", f"fd://{listener.fileno()}", "--no-control-socket"]
        size = [*_WEB, "--preload", "--workers", "2", "--threads", "8", "--graceful-timeout", "3"]
        self._start_watched("web", "gunicorn", "triage.wsgi:application", *bind, *size, pass_fds=[listener.fileno()])
        if self.env.get("FAULTLINE_NVRX_BIND"):  # the routes of docs/compat.md at the root of a port of their own
            size = [
                *_WEB,
                "--preload",
                "--workers",
                "1",
                "--threads",
                "8",
                "--graceful-timeout",
                "3",
                "--no-control-socket",
            ]
            self._start_watched(
                "nvrx", "gunicorn", "triage.compat.wsgi:application", "--bind", self.env["FAULTLINE_NVRX_BIND"], *size
            )
        alone = ["--without-mingle", "--without-gossip"]  # it would only wait for other workers
        self._start_watched("worker", "celery", "-A", "triage.celery", "worker", "-c", "2", "-l", "INFO", *alone)

    def _start_beat(self) -> None:
        """Last, so that it doesn't take time from what people wait for."""
        schedule = str(self.folder.root / "celerybeat-schedule")
        words = ["-A", "triage.celery", "beat", "-l", "INFO", "--schedule", schedule, "--pidfile="]
        self._start_watched("beat", "celery", *words)

    def _start_watched(self, name: str, module: str, *words: str, pass_fds: Sequence[int] = ()) -> None:
        argv = [sys.executable, "-m", module, *words]
        child = Child(name, argv, log=self.folder.log(name), env=self.env, cwd=PROJECT, pass_fds=pass_fds)
        self._start(child)
        self.workers.append(Watched(child))

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while True:
            answer = self._ask("/readyz")
            if answer.get("status") == "ok":
                return
            if time.monotonic() > deadline:
                down = [name for name, state in answer.get("checks", {}).items() if state != "ok"] or ["web"]
                raise DemoError(
                    f"not ready after {START_TIMEOUT:.0f} s, no answer from: {', '.join(down)}; see {self.folder.logs}"
                )
            self._pause(0.2)

    def _manage(self, name: str, what: str, *words: str) -> None:
        """Run a management command to its end, while the others are watched. Raises DemoError when it fails."""
        say(what)
        child = Child(
            name,
            [sys.executable, PROJECT / "manage.py", *words],
            log=self.folder.log(name),
            env=self.env,
            cwd=PROJECT,
        )
        self.commands.append(child)
        self._start(child)
        while child.running():
            self._pause(0.1)
        self._forget(child)
        self.commands.remove(child)
        if not child.succeeded():
            raise DemoError(f"{what}: failed with {child.how_it_ended()}; see {child.log}", child.tail())

    def _start(self, child: Child) -> None:
        child.start()
        self._tell_guard(f"+ {child.pid} {int(child.stop_signal)}")

    def _forget(self, child: Child) -> None:
        child.kill_group()
        self._tell_guard(f"- {child.pid}")

    def _tell_guard(self, line: str) -> None:
        if self.guard and self.guard.stdin:
            with contextlib.suppress(BrokenPipeError):  # `_pause` finds out that it ended
                self.guard.stdin.write(f"{line}\n".encode())
                self.guard.stdin.flush()

    def _children(self) -> list[Child]:
        return [*self.commands, *(watched.child for watched in [*self.servers, *self.workers])]

    # --- watching ----------------------------------------------------------------------------------------------------

    def _pause(self, seconds: float) -> None:
        """Wait, less when a child ends. Raises StopRequested after a signal, DemoError when a child is beyond help."""
        if self.stop_signal is None:
            ready, _, _ = select.select([self.wakeup], [], [], seconds)
            if ready:
                self.wakeup.recv(4096)
        if self.stop_signal is not None:
            raise StopRequested
        if self.guard and self.guard.poll() is not None:
            raise DemoError("the guard process ended, and without it a crash could leave processes behind")
        now = time.monotonic()
        for watched in [*self.servers, *self.workers]:
            self._watch(watched, now)

    def _watch(self, watched: Watched, now: float) -> None:
        child = watched.child
        if watched.start_at is not None:
            if now >= watched.start_at:
                watched.start_at = None
                self._start(child)
                say(f"{child.name} runs again")
            return
        if child.running():
            return
        self._forget(child)  # whatever it left
        how = child.how_it_ended()
        wait = watched.crashed(now) if self.ready else None
        if wait is None:
            often = f" for the {len(watched.crashes)}th time in two minutes" if self.ready else ""
            raise DemoError(f"{child.name} ended ({how}){often}: see {child.log}", child.tail())
        say(f"{child.name} ended ({how}): starting it again in {wait:g} s; see {child.log}")

    def _check_health(self) -> None:
        """Restart what runs but has stopped to answer: a demo is never half dead without a word."""
        now = time.monotonic()
        if now - self.checked_at < HEALTH_EVERY:
            return
        self.checked_at = now
        answer = self._ask("/readyz")
        if answer.get("status") == "ok":
            self.healthy_at = now
        elif now - self.healthy_at > UNHEALTHY_FOR:
            self.healthy_at = now
            checks = answer.get("checks")
            for watched in [*self.servers, *self.workers]:
                part = {"postgres": "database", "valkey": "broker"}.get(watched.child.name, watched.child.name)
                down = part == "web" if checks is None else checks.get(part) == "down"
                if down and watched.child.running():
                    say(f"{watched.child.name} has not answered for {UNHEALTHY_FOR:.0f} s: ending it")
                    watched.child.kill_group()

    def _ask(self, path: str) -> dict[str, Any]:
        """A JSON page of our own web server; empty when there is no answer."""
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=2)
        try:
            connection.request("GET", path)
            answer = json.loads(connection.getresponse().read())
            return answer if isinstance(answer, dict) else {}
        except (OSError, http.client.HTTPException, ValueError):
            return {}
        finally:
            connection.close()

    # --- stopping ----------------------------------------------------------------------------------------------------

    def _stop(self) -> None:
        """End every child: workers first, so that they can still reach the servers."""
        self.ready = False
        stop_all([*self.commands, *(watched.child for watched in self.workers)], WORKERS_GRACE)
        stop_all((watched.child for watched in self.servers), SERVERS_GRACE)
        if self.guard and self.guard.stdin:
            for child in self._children():
                self._tell_guard(f"- {child.pid}")
            with contextlib.suppress(BrokenPipeError):
                self.guard.stdin.close()
            self.guard.wait(timeout=10)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Signals are noted by a handler and acted upon in `_pause`, also while it waits."""
        self.wakeup, other_end = socket.socketpair()
        other_end.setblocking(False)
        self.wakeup.setblocking(False)

        def note(number: int, _frame: object) -> None:
            self.stop_signal = signal.Signals(number)

        handlers: dict[signal.Signals, Callable[[int, object], None] | int] = dict.fromkeys(STOP_SIGNALS, note)
        handlers[signal.SIGCHLD] = lambda number, frame: None  # only wakes us up
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        previous_fd = signal.set_wakeup_fd(other_end.fileno())
        try:
            yield
        finally:
            signal.set_wakeup_fd(previous_fd)
            for number, handler in before.items():
                signal.signal(number, handler)
            self.wakeup.close()
            other_end.close()


def say(text: str) -> None:
    """A short line of progress for the person at the terminal; standard output is for the line that says ready."""
    with contextlib.suppress(OSError):  # the terminal may be gone
        print(f"  {text}", file=sys.stderr, flush=True)
