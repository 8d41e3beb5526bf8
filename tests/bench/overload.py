"""A night when the fabric fails: ``python -m tests.bench.overload [--attempts 5000] [--seconds 60] [--json FILE]``.

So many small attempts are sent within so many seconds, nearly all of one cluster. What is told: how many were taken at
once and how many were told to come back, how long those of the quiet clusters waited for their diagnosis beside those
of the noisy one, how long pages took, how much memory processes held, and whether all were diagnosed in the end.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from tests.bench.attempts import KINDS, SIZES, Template
from tests.bench.throughput import Bench, Site, _spread, keep, running
from tests.bench.watching import watching
from triage.client import ApiError, Client

CLIENTS = 32
QUIET = 50
"""One attempt of so many is of a quiet cluster."""
PATIENCE = 7200.0


class Burst(Bench):
    """What is sent at once, and what became of it."""

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self.told: Counter[str] = Counter()
        self._lock = threading.Lock()

    def run(self, attempts: int, seconds: float) -> dict[str, Any]:
        templates = [Template(SIZES["small"], kind) for kind in KINDS]
        self._send(templates, "bundle", "warm", 3)
        self._wait("warm", 3)
        began = time.monotonic()
        with self._pages() as pages, self._memory() as most, ThreadPoolExecutor(CLIENTS) as pool:

            def send(number: int) -> None:
                time.sleep(max(0.0, began + seconds * number / attempts - time.monotonic()))
                cluster = f"quiet-{number // QUIET % 2}" if number % QUIET == QUIET - 1 else "noisy"
                self._until_taken(templates[number % len(templates)], cluster, f"{cluster}-{number}")

            for _ in pool.map(send, range(attempts)):
                pass
            taken = time.monotonic() - began
            waiting = attempts - self._done()
            while self._done() < attempts:
                if time.monotonic() - began > PATIENCE:
                    raise TimeoutError(f"{self._done()} of {attempts} are diagnosed\n{self.site.tails()}")
                time.sleep(1)
        return {
            "attempts": attempts, "within_seconds": seconds, "taken_after": round(taken, 1),
            "told_to_come_back": self.told["come back"], "cut": self.told["cut"],
            "waiting_when_all_were_taken": waiting,
            "diagnosed_after": round(time.monotonic() - began, 1), "wrong": self._wrong(templates, attempts),
            "waited_s": {name: self._waits(name) for name in ("noisy", "quiet-0", "quiet-1")},
            "pages_ms": _spread(pages), "most_memory_mb": {kind: size >> 20 for kind, size in sorted(most.items())},
            "load": round(os.getloadavg()[0], 1),
        }  # fmt: skip

    def _until_taken(self, template: Template, cluster: str, workload: str) -> None:
        client, body = Client(self.site.url, self.token, tries=1, patience=0), template.bundle(workload, cluster)
        while True:
            try:
                client.call("POST", "bundles", body, query={"name": f"{workload}.tar.zst"})
                return
            except ApiError as error:
                if error.status not in (0, 429, 503):
                    raise
                with self._lock:
                    self.told["come back" if error.status else "cut"] += 1
            time.sleep(random.uniform(1, 4))

    def _done(self) -> int:
        from triage.models import Attempt, TriageState

        return Attempt.objects.filter(triage_state=TriageState.DONE).exclude(cluster__name="warm").count()

    def _wrong(self, templates: list[Template], attempts: int) -> int:
        """Attempts that are not there once, diagnosed once, with the right domain."""
        from triage.models import Attempt

        rows = Attempt.objects.exclude(cluster__name="warm").values_list("workload__workload_id", "domain")
        wanted = {number: KINDS[templates[number % len(templates)].kind] for number in range(attempts)}
        found = [(int(name.rpartition("-")[2]), domain) for name, domain in rows]
        return sum(wanted.pop(number, None) != domain for number, domain in found) + len(wanted)

    def _waits(self, cluster: str) -> dict[str, float]:
        """Seconds from being asked for to being diagnosed."""
        from triage.models import Attempt

        rows = Attempt.objects.filter(cluster__name=cluster).values_list("triage_requested_at", "triage_finished_at")
        took = sorted((ended - asked).total_seconds() for asked, ended in rows)
        if not took:
            return {}
        return {"half": round(took[len(took) // 2], 1), "longest": round(took[-1], 1)}

    @contextmanager
    def _memory(self) -> Iterator[dict[str, int]]:
        """The most that one process of each kind held, in bytes."""
        most: dict[str, int] = {}

        def look() -> None:
            for name, child in self.site.children.items():
                with suppress(psutil.Error):
                    main = psutil.Process(child.pid)
                    for process in (main, *main.children(recursive=True)):
                        with suppress(psutil.Error):
                            held = process.memory_info()
                            most[name] = max(most.get(name, 0), held.rss - held.shared)

        with watching(look, 1.0):
            yield most


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.overload", description=__doc__)
    parser.add_argument("--attempts", type=int, default=5000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--workers", type=int, default=2, help="processes of the worker")
    parser.add_argument("--json", type=Path, help="where the figures go")
    options = parser.parse_args()
    site = Site(small_disk=False)
    site.processes = options.workers
    with running(site):
        found = Burst(site).run(options.attempts, options.seconds)
        print(json.dumps(found, indent=1), flush=True)
        keep(options.json, {"workers": options.workers, "burst": found})
    if found["wrong"]:
        sys.exit(f"{found['wrong']} attempts are lost, doubled or wrong")


if __name__ == "__main__":
    main()
