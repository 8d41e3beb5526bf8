"""A demo as a process of its own, watched from outside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import psutil

ROOT = Path(__file__).resolve().parents[2]
START_LIMIT = 150  # seconds; a machine that runs other tests beside this is slow


class Run:
    """A demo as its own process, with what it has said."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        self.said: list[str] = []
        self.printed: list[str] = []
        env = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "REDIS_URL")}
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "triage.supervisor", "demo", "--folder", str(folder)],
            cwd=ROOT,
            env={**env, "PORT": str(port)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.readers = [
            threading.Thread(target=self._read, args=pair, daemon=True)
            for pair in ((self.process.stdout, self.printed), (self.process.stderr, self.said))
        ]
        for reader in self.readers:
            reader.start()

    @staticmethod
    def _read(pipe: IO[str], lines: list[str]) -> None:
        with pipe:
            lines.extend(pipe)

    def wait_until(self, what: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not what():
            assert self.process.poll() is None, "".join(self.said)
            assert time.monotonic() < deadline, "".join(self.said)
            time.sleep(0.1)

    def wait_ready(self) -> float:
        """Seconds from its start until it said that it is ready."""
        self.wait_until(lambda: bool(self.printed), START_LIMIT)
        return time.monotonic() - self.began

    def get(self, path: str) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
                return dict(json.load(answer))
        except urllib.error.HTTPError as error:
            return dict(json.load(error))

    def child(self, *words: str) -> psutil.Process:
        """The direct child whose command line has all of these words."""
        for child in psutil.Process(self.process.pid).children():
            if all(word in " ".join(child.cmdline()) for word in words):
                return child
        raise AssertionError(f"no child {words}")

    def end(self) -> None:
        """Whatever happened, it doesn't outlive the test."""
        self.process.terminate()
        self.process.wait(timeout=15)
        for reader in self.readers:
            reader.join()

    def everything(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)
