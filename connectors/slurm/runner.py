"""Runs one command with a time limit, a size limit and no shell; says in words why it failed."""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import shlex
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import PurePosixPath
from typing import IO

import msgspec

from connectors.base import ConnectorError
from connectors.http import Deadline

MAX_BYTES = 64 * 1024**2
_STDERR_BYTES = 16 * 1024
_PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "SSH_AUTH_SOCK", "KRB5CCNAME", "SLURM_CONF", "SLURM_JWT")
_CLIENTS = {"sacct", "scontrol", "squeue"}
_REMOTE_SHELLS = {"ssh", "autossh", "rsh"}


class Trouble(StrEnum):
    """Why a command gave nothing."""

    DOWN = "down"
    SLOW = "slow"
    OVER = "over"
    """The time limit of the whole collection is reached, or it was stopped."""
    TOO_LARGE = "too_large"
    DENIED = "denied"
    SETUP = "setup"
    UNKNOWN_JOB = "unknown_job"
    OTHER = "other"


class CommandError(ConnectorError):
    """A command failed; the message says what to change."""

    def __init__(self, trouble: Trouble, message: str) -> None:
        super().__init__(message, temporary=trouble in (Trouble.DOWN, Trouble.SLOW))
        self.trouble = trouble


class Runner(msgspec.Struct, frozen=True, kw_only=True):
    """How commands are run: here, or behind a prefix such as ssh."""

    prefix: tuple[str, ...] = ()
    """Goes before each command, e.g. ``("ssh", "-o", "BatchMode=yes", "login1")``."""
    bin_dir: str = ""
    """Where Slurm's clients are, when not on PATH."""
    environment: dict[str, str] = {}
    seconds: float = 60.0
    """For each command."""

    def run(
        self,
        command: Sequence[str],
        deadline: Deadline,
        *,
        environment: Mapping[str, str] | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> bytes:
        """What the command printed. Raises CommandError."""
        program = command[0]
        path = f"{self.bin_dir}/{program}" if self.bin_dir and program in _CLIENTS else program
        settings = {**self.environment, **(environment or {})}
        argv = [path, *command[1:]]
        env = {"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", **{k: os.environ[k] for k in _PASSED_ON if k in os.environ}}
        if self.prefix:
            argv = ["env", *(f"{key}={value}" for key, value in settings.items()), *argv]
            if PurePosixPath(self.prefix[0]).name in _REMOTE_SHELLS:
                argv = [shlex.quote(word) for word in argv]  # a shell on the other side takes them apart
            argv = [*self.prefix, *argv]
        else:
            env.update(settings)
        allowed = min(self.seconds, deadline.left())
        if allowed <= 0:
            raise _over(program, deadline)
        try:
            process = subprocess.Popen(
                argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            what = self.prefix[0] if self.prefix else path
            hint = "install Slurm's clients here, or set bin_dir or command_prefix" if not self.prefix else "see PATH"
            raise CommandError(Trouble.SETUP, f"{what} can not be run ({error.strerror}): {hint}") from None
        try:
            output, errors = _read(process, program, allowed, deadline, max_bytes)
        except BaseException:
            _end(process)
            raise
        _close(process)
        if process.returncode:
            raise explained(program, process.returncode, errors or output, bool(self.prefix))
        return output

    def shown(self, command: Sequence[str]) -> str:
        """The command for people."""
        return shlex.join(word.replace("\x1f", "|") for word in command)


def _read(
    process: subprocess.Popen[bytes], program: str, allowed: float, deadline: Deadline, max_bytes: int
) -> tuple[bytes, bytes]:
    output, errors, end = bytearray(), bytearray(), time.monotonic() + allowed
    with selectors.DefaultSelector() as ready:
        for stream, kept in ((process.stdout, output), (process.stderr, errors)):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
            ready.register(stream, selectors.EVENT_READ, kept)
        while ready.get_map():
            left = end - time.monotonic()
            if left <= 0 or deadline.stopped():
                raise _late(program, allowed, deadline, bytes(errors))
            for key, _ in ready.select(min(left, 0.5)):
                stream_, kept_ = _as_stream(key)
                block = os.read(stream_.fileno(), 1 << 16)
                if not block:
                    ready.unregister(stream_)
                elif kept_ is output or len(kept_) < _STDERR_BYTES:
                    kept_ += block
            if len(output) > max_bytes:
                raise CommandError(Trouble.TOO_LARGE, f"{program} printed more than {max_bytes} bytes")
    try:
        process.wait(max(end - time.monotonic(), 0.1))
    except subprocess.TimeoutExpired:
        raise _late(program, allowed, deadline, bytes(errors)) from None
    return bytes(output), bytes(errors)


def _as_stream(key: selectors.SelectorKey) -> tuple[IO[bytes], bytearray]:
    return key.fileobj, key.data  # type: ignore[return-value]


def _end(process: subprocess.Popen[bytes]) -> None:
    """Nothing of the command goes on: its whole group is ended, also what it has left behind."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    _close(process)


def _close(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def _late(program: str, allowed: float, deadline: Deadline, errors: bytes) -> CommandError:
    if deadline.stopped():
        return _over(program, deadline)
    said = explained(program, 1, errors, prefixed=False)
    if said.trouble is not Trouble.OTHER:
        return CommandError(said.trouble, f"{said}; it was ended after {allowed:.0f} s")
    if deadline.left() < 0.05:
        return _over(program, deadline)
    who = "slurmdbd" if program == "sacct" else "slurmctld"
    return CommandError(
        Trouble.SLOW, f"{program} gave no answer within {allowed:.0f} s and was ended: {who} is down, overloaded or "
        "cut off by a firewall",
    )  # fmt: skip


def _over(program: str, deadline: Deadline) -> CommandError:
    if deadline.stopped():
        return CommandError(Trouble.OVER, "stopped before it was finished")
    return CommandError(Trouble.OVER, f"{program} was not finished within the time limit ({deadline.seconds:.0f} s)")


_REFUSED = r"Connection refused|Connection timed out|Zero Bytes"
_CONTROLLER = rf"[Uu]nable to contact slurm controller|[Ss]lurmctld|{_REFUSED}"
_ACCOUNTING_DOWN = (
    "slurmdbd can not be reached: see that it runs (systemctl status slurmdbd) and that its port (6819) is open"
)
_CAUSES: tuple[tuple[str, Trouble, str], ...] = (
    (r"Invalid job id", Trouble.UNKNOWN_JOB, "slurmctld has forgotten the job (MinJobAge has passed)"),
    (r"accounting storage is disabled", Trouble.SETUP,
     "this cluster keeps no accounting: set AccountingStorageType=accounting_storage/slurmdbd, or use rest"),
    (r"resolve_ctls_from_dns_srv|configuration source|slurm\.conf",
     Trouble.SETUP, "it finds no slurm.conf: set environment.SLURM_CONF, or command_prefix to a host of the cluster"),
    (r"[Mm]unge|authentication|Unable to authenticate|Protocol authentication", Trouble.SETUP,
     "munge refuses: see that munged runs on that host, with the cluster's key and the right time"),
    (r"Access/permission denied|not permitted|privilege", Trouble.DENIED,
     "this user may not see it: give the user AdminLevel=Operator, or leave jobs out of PrivateData"),
    (r"Invalid user id: *(\S+)", Trouble.SETUP, "users names somebody whom that host does not know"),
    (r"persistent connection|slurmdbd|[Dd]atabase|DBD", Trouble.DOWN, _ACCOUNTING_DOWN),
    (_CONTROLLER,
     Trouble.DOWN,
     "slurmctld can not be reached: see that it runs (scontrol ping) and that its port (6817) is open"),
)  # fmt: skip
_SSH = (
    (
        r"Permission denied",
        Trouble.DENIED,
        "the key is not accepted there: see ssh -v as the user that Faultline runs as",
    ),
    (r"Host key verification failed", Trouble.SETUP, "the host's key is unknown or has changed: add it to known_hosts"),
    (r"Could not resolve", Trouble.DOWN, "the host's name can not be resolved"),
    (r"refused|timed out|unreachable|closed", Trouble.DOWN, "the host can not be reached"),
)


def explained(program: str, code: int, errors: bytes, prefixed: bool) -> CommandError:
    """Why a command ended with `code`, by what it printed."""
    said = " ".join(errors.decode("utf-8", "replace").split())
    words = "".join(letter if letter.isprintable() else "?" for letter in said)[:300] or "without a word"
    if prefixed and code == 255:
        for pattern, trouble, meaning in _SSH:
            if re.search(pattern, said):
                return CommandError(trouble, f"command_prefix: {meaning} ({words})")
    if code in (126, 127):
        return CommandError(Trouble.SETUP, f"{program} is not found there: set bin_dir ({words})")
    for pattern, trouble, meaning in _CAUSES:
        if program == "sacct" and pattern == _CONTROLLER:
            pattern, trouble, meaning = _REFUSED, Trouble.DOWN, _ACCOUNTING_DOWN
        if re.search(pattern, said):
            return CommandError(trouble, f"{program}: {meaning} ({words})")
    return CommandError(Trouble.OTHER, f"{program} ended with {code}: {words}")
