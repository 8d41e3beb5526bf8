"""The demo's folder (`.faultline`): its lock, its secrets, its logs, and where Postgres may keep its data."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import pwd
import secrets
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from triage.supervisor.errors import DemoError

LOG_LIMIT = 5_000_000  # bytes, after which the log of an earlier run is put aside


class Folder:
    """Everything that a demo keeps lies here, except where another user than root couldn't reach it (`outside`)."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.logs = self.root / "log"

    def create(self) -> None:
        """Make the folder. Raises DemoError when it can't be written."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            if os.geteuid() == 0:
                self.root.chmod(0o711)  # Postgres, under another uid, passes through
            self.logs.mkdir(exist_ok=True)
            with tempfile.TemporaryFile(dir=self.root):
                pass
        except FileExistsError as error:
            raise DemoError(f"{error.filename} is a file where a folder is needed: move it away") from None
        except OSError as error:
            raise DemoError(
                f"cannot write to {self.root} ({error.strerror}): "
                "make it writable for you (chown, chmod), or choose another folder with `faultline demo --folder DIR`"
            ) from None

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Held while a demo runs. Raises DemoError when another one has it."""
        with (self.root / "lock").open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                pid = file.read().strip() or "unknown"
                raise DemoError(
                    f"another demo (process {pid}) already runs on {self.root}: "
                    f"use that one, end it with `kill {pid}`, or choose another folder with "
                    "`faultline demo --folder DIR`"
                ) from None
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
            yield
            file.truncate(0)

    def log(self, name: str) -> Path:
        """The log file of a child."""
        path = self.logs / f"{name}.log"
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_size > LOG_LIMIT:
                path.replace(path.with_suffix(".log.1"))
        return path

    def secret(self, name: str) -> str:
        """A random secret that is made once and kept."""
        path = self.root / f"{name}.secret"
        if not path.exists():
            self.write_private(path, secrets.token_hex(24))
        return path.read_text().strip()

    def write_private(self, path: Path, text: str) -> None:
        """Write a file that only its owner can read."""
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)

    def ports(self) -> dict[str, int]:
        """The ports of the last run, by server."""
        try:
            return dict(json.loads((self.root / "ports.json").read_text()))
        except (OSError, ValueError, TypeError):
            return {}

    def keep_ports(self, **ports: int) -> None:
        """Record ports for people and for the next run."""
        (self.root / "ports.json").write_text(json.dumps(self.ports() | ports, sort_keys=True) + "\n")

    @property
    def outside(self) -> Path:
        """Where things go that another uid must reach when the folder lies under a closed one, such as /root."""
        return Path("/var/tmp") / f"faultline-{hashlib.sha256(os.fsencode(self.root)).hexdigest()[:12]}"  # nosec B108

    def make_outside(self) -> Path:
        """Make that place. Raises DemoError when somebody else has put something there."""
        with contextlib.suppress(FileExistsError):
            self.outside.mkdir(mode=0o711)
        found = self.outside.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise DemoError(f"{self.outside} belongs to somebody else: remove it")
        self.outside.chmod(0o711)
        return self.outside

    def remove(self) -> None:
        """Delete all that a demo has kept. Raises DemoError while one runs."""
        if self.root.exists():
            with self.locked():
                shutil.rmtree(self.root)
        if self.outside.exists():
            shutil.rmtree(self.outside)


def server_uid() -> int | None:
    """The uid that Postgres runs under: None for our own, another one when we are root, which Postgres refuses."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("nobody").pw_uid
    except KeyError:
        return 65534


def reachable(path: Path, uid: int | None) -> bool:
    """Whether that user can pass through every folder up to this one."""
    return uid is None or succeeds_as(uid, "/bin/sh", "-c", 'cd -- "$1"', "sh", path)


def succeeds_as(uid: int | None, *words: str | Path) -> bool:
    """Whether a program runs to a good end under that uid; True without trying when it is our own."""
    if uid is None:
        return True
    try:
        done = subprocess.run(
            [str(word) for word in words],
            user=uid,
            group=uid,
            extra_groups=[],
            cwd="/",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
    except PermissionError:
        return False
    return done.returncode == 0
