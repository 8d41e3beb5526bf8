"""A real Prometheus and a real VictoriaMetrics, each with the samples that a test gives it."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

PACKAGES = ("prometheus", "prometheus-alertmanager", "victoria-metrics")
READY_SECONDS = 20.0


class Given(NamedTuple):
    """One series: its labels with __name__, and its samples at times in epoch seconds."""

    labels: Mapping[str, str]
    times: Sequence[int]
    values: Sequence[float]


def why_not(program: str) -> str:
    """Why a server can't be started here; empty when it can."""
    return "" if shutil.which(program) else f"{program} is not installed: make peers installs {' '.join(PACKAGES)}"


class Server:
    """Started by `with`, killed at its end. `url` is where it listens."""

    program = ""

    def __init__(self, folder: Path, series: Iterable[Given], *more: str) -> None:
        self.folder, self._series, self._more = folder, list(series), more
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Server:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._before()
        log = (self.folder / "log").open("wb")
        self._process = subprocess.Popen(
            [self.program, *self._arguments(), *self._more], stdout=log, stderr=log, cwd=self.folder
        )
        log.close()
        try:
            self._wait()
            self._after()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _wait(self) -> None:
        until = time.monotonic() + READY_SECONDS
        while time.monotonic() < until:
            assert self._process is not None
            if self._process.poll() is not None:
                break
            with suppress(urllib.error.URLError, ConnectionError):
                if urllib.request.urlopen(f"{self.url}{self._ready}", timeout=2).status == 200:
                    return
            time.sleep(0.05)
        raise RuntimeError(f"{self.program} did not start:\n{(self.folder / 'log').read_text()[-2000:]}")

    _ready = "/"

    def _arguments(self) -> list[str]:
        raise NotImplementedError

    def _before(self) -> None:
        """Before it starts."""

    def _after(self) -> None:
        """Once it answers."""


class Prometheus(Server):
    """Its samples are put into its storage before it starts (promtool tsdb create-blocks-from openmetrics)."""

    program = "prometheus"
    _ready = "/-/ready"

    def _before(self) -> None:
        (self.folder / "prometheus.yml").write_text("scrape_configs: []\n")
        exposition = self.folder / "samples.om"
        by_name: dict[str, list[Given]] = {}
        for given in self._series:
            by_name.setdefault(given.labels["__name__"], []).append(given)
        with exposition.open("w") as out:
            for name, several in sorted(by_name.items()):
                out.write(f"# TYPE {name} unknown\n")
                for given in several:
                    inside = ",".join(f"{k}={json.dumps(v)}" for k, v in given.labels.items() if k != "__name__")
                    head = f"{name}{{{inside}}}"
                    out.writelines(
                        f"{head} {value!r} {at}\n" for at, value in zip(given.times, given.values, strict=True)
                    )
            out.write("# EOF\n")
        made = subprocess.run(
            ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(exposition), str(self.folder / "data")],
            capture_output=True,
            text=True,
        )
        exposition.unlink()
        if made.returncode:
            raise RuntimeError(f"promtool: {made.stderr[-2000:]}")

    def _arguments(self) -> list[str]:
        return [
            f"--config.file={self.folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={self.folder / 'data'}",
            "--storage.tsdb.retention.time=60d",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]


class VictoriaMetrics(Server):
    """Its samples are sent to /api/v1/import."""

    program = "victoria-metrics"
    _ready = "/health"

    def _arguments(self) -> list[str]:
        return [
            f"-storageDataPath={self.folder / 'data'}",
            f"-httpListenAddr=127.0.0.1:{self.port}",
            "-retentionPeriod=3",
            "-search.latencyOffset=0s",
            "-memory.allowedPercent=20",
        ]

    def _after(self) -> None:
        lines = [
            json.dumps({"metric": g.labels, "values": list(g.values), "timestamps": [at * 1000 for at in g.times]})
            for g in self._series
        ]
        request = urllib.request.Request(f"{self.url}/api/v1/import", data="\n".join(lines).encode(), method="POST")
        urllib.request.urlopen(request, timeout=60)
        urllib.request.urlopen(f"{self.url}/internal/force_flush", timeout=60)


SERVERS: dict[str, type[Server]] = {"prometheus": Prometheus, "victoria-metrics": VictoriaMetrics}
