"""Child processes: each in a session of its own, with its output in a log file, and none outliving the supervisor."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from triage.supervisor.errors import DemoError

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def _die_with_parent(stop_signal: int) -> Callable[[], None] | None:
    """What a child does before it runs its program, so that the kernel ends it if the supervisor is killed (Linux)."""
    libc, parent = _libc, os.getpid()
    if libc is None:
        return None

    def ask_kernel() -> None:
        libc.prctl(PR_SET_PDEATHSIG, stop_signal, 0, 0, 0)
        if os.getppid() != parent:  # the parent died before the kernel was asked
            os._exit(1)

    return ask_kernel


class Child:
    """One program under the supervisor."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str | Path],
        *,
        log: Path,
        env: Mapping[str, str],
        cwd: Path,
        uid: int | None = None,
        stop_signal: signal.Signals = signal.SIGTERM,
        pass_fds: Iterable[int] = (),
    ) -> None:
        self.name = name
        self.argv = [str(word) for word in argv]
        self.log = log
        self.env = dict(env)
        self.cwd = cwd
        self.uid = uid
        self.stop_signal = stop_signal
        self.pass_fds = tuple(pass_fds)
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Process id, which is the id of its session and group too; 0 when it was never started."""
        return self.process.pid if self.process else 0

    def start(self) -> None:
        """Start the program. Raises DemoError when it can't be run at all."""
        as_other: dict[str, object] = {}
        if self.uid is not None:
            as_other = {"user": self.uid, "group": self.uid, "extra_groups": []}
        with self.log.open("ab") as output:
            try:
                self.process = subprocess.Popen(  # type: ignore[call-overload]
                    self.argv,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=self.cwd,
                    env=self.env,
                    start_new_session=True,
                    pass_fds=self.pass_fds,
                    preexec_fn=_die_with_parent(self.stop_signal),
                    **as_other,
                )
            except (OSError, subprocess.SubprocessError) as error:
                who = f" as uid {self.uid}" if self.uid is not None else ""
                raise DemoError(f"cannot run {self.name}{who} ({self.argv[0]}): {error}") from None

    def running(self) -> bool:
        """Whether the program still runs."""
        return self.process is not None and self.process.poll() is None

    def how_it_ended(self) -> str:
        """For people: `exit code 1` or `SIGKILL`."""
        code = self.process.returncode if self.process else None
        if code is None:
            return "not ended"
        if code >= 0:
            return f"exit code {code}"
        try:
            return signal.Signals(-code).name
        except ValueError:
            return f"signal {-code}"

    def succeeded(self) -> bool:
        """Whether it ended with exit code 0."""
        return self.process is not None and self.process.poll() == 0

    def ask_to_stop(self, sig: signal.Signals | None = None) -> None:
        """Send its own stop signal (or `sig`) to the program, which tells its own children."""
        if self.running():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, sig or self.stop_signal)

    def kill_group(self) -> None:
        """End whatever is left of the program and its children at once."""
        if self.pid:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            if self.process:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(timeout=2)

    def tail(self, lines: int = 15) -> str:
        """The end of its log."""
        return tail(self.log, lines)


def tail(path: Path, lines: int = 15) -> str:
    """The last lines of a file; empty when there is none."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 16_384))
            return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])
    except OSError:
        return ""


def stop_all(children: Iterable[Child], grace: float) -> None:
    """Ask all of them to stop, wait up to `grace` seconds for the slowest, then kill what is left."""
    children = [child for child in children if child.process]
    for child in children:
        child.ask_to_stop()
    deadline = time.monotonic() + grace
    while time.monotonic() < deadline and any(child.running() for child in children):
        time.sleep(0.02)
    for child in children:
        child.kill_group()
