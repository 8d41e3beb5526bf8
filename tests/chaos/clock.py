"""The clock of one process, which can be stepped while it runs."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("clock.c")


class NoClock(Exception):
    """It can't be had on this machine; why."""


class Clock:
    """A file that says by how many seconds the time of day is off in processes that were started with `environment`."""

    def __init__(self, folder: Path, name: str) -> None:
        """Raises NoClock."""
        self._library = _built(folder)
        self._file = folder / f"clock-{name}"
        if not self._file.exists():
            self._file.write_bytes((0).to_bytes(8, "little"))

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self._library), "CHAOS_CLOCK": str(self._file)}

    def step(self, seconds: int) -> None:
        """From now on it is off by so much: written in one piece, seen at once."""
        handle = os.open(self._file, os.O_WRONLY)
        try:
            os.pwrite(handle, seconds.to_bytes(8, "little", signed=True), 0)
        finally:
            os.close(handle)


def _built(folder: Path) -> Path:
    library, compiler = folder / "clock.so", shutil.which("cc") or shutil.which("gcc")
    if library.exists():
        return library
    if os.uname().sysname != "Linux" or compiler is None:
        raise NoClock("needs Linux and a C compiler, for a library of thirty lines that steps a process's clock")
    built = subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"], capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if built.returncode:
        raise NoClock(f"the C compiler refuses tests/chaos/clock.c: {built.stderr.strip()[:200]}")
    return library
