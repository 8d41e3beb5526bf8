"""How many attempts a second go the whole way: ``python -m tests.bench.throughput [--scale 0.1] [--json FILE]``.

API or a watched folder -> Celery -> engine -> Postgres -> page, with web server, worker, beat, Postgres and Valkey as
processes of their own. For each size of attempt, each way in, and one and two processes of the worker: attempts a
second from the first call to the last diagnosis, what each kind of process took of a processor for one attempt beside
what it takes when nothing comes, what is stored of it, and how long pages took meanwhile. Clients run on the same
machine; their share is told too.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import cycle
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any

import psutil

from tests.bench.attempts import KINDS, SIZES, Size, Template
from tests.bench.engine import machine
from tests.bench.watching import watching
from tests.chaos.installation import Installation, wait_for
from triage.client import PART, Client
from triage.supervisor.ports import LOOPBACK

CLIENTS = 8
COUNTS = {"small": 300, "typical": 200, "large": 6}
WAYS = ("parts", "bundle", "folder")
WORKERS = (1, 2)
PATIENCE = 1800.0
IDLE = 12.0
PAGES = ("/", "/attempts/{attempt}/")


class Site(Installation):
    """An installation with the settings of production, and one worker of so many processes."""

    settings = MappingProxyType({
        "FAULTLINE_LEASE_SECONDS": "45", "FAULTLINE_SWEEP_SECONDS": "15", "FAULTLINE_DISCOVER_SECONDS": "2",
    })  # fmt: skip
    processes = 1

    @property
    def url(self) -> str:
        """The web server itself: the proxies of `make chaos` would be measured too."""
        return f"http://{LOOPBACK}:{self.port}"

    def _through_proxy(self, name: str) -> str:
        return self.servers[name].url

    def run(self, name: str) -> None:
        if name != "worker-2":
            super().run(name)

    def _words(self, name: str) -> list[str]:
        words = super()._words(name)
        if name == "web":
            words[words.index("--workers") + 1] = "2"  # as in the Dockerfile
        elif name == "worker-1":
            words[words.index("-c") + 1] = str(self.processes)
        return words

    def use(self, processes: int) -> None:
        """Has the worker run with so many processes."""
        self.processes = processes
        self.children["worker-1"].ask_to_stop()
        wait_for(lambda: not self.children["worker-1"].running(), 60, self.tails)
        self.run("worker-1")
        self.wait_until_ready()
        time.sleep(3)  # rules are loaded with the first attempt; the start of the processes is not measured

    def cpu(self) -> dict[str, float]:
        """CPU seconds so far of each kind of process, of those that ended too."""
        spent: Counter[str] = Counter()
        for name, child in self.children.items():
            kind = name.partition("-")[0]
            with suppress(psutil.Error):
                main = psutil.Process(child.pid)
                for process in (main, *main.children(recursive=True)):
                    with suppress(psutil.Error):
                        used = process.cpu_times()
                        spent[kind] += used.user + used.system
                        if process.pid == main.pid:
                            spent[kind] += used.children_user + used.children_system
        own = psutil.Process().cpu_times()
        return {**spent, "clients": own.user + own.system}

    def stored(self) -> dict[str, int]:
        """Bytes on the disk and in the database."""
        from django.db import connection

        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_database_size(current_database())")
            database = int(cursor.fetchone()[0])
        folders = {name: self.data / name for name in ("blobs", "observed", "spool")}
        return {**{name: _bytes(folder) for name, folder in folders.items()}, "database": database}


@contextmanager
def running(site: Site) -> Iterator[Site]:
    """A site that is started, and stopped at the end; what goes wrong meanwhile shows the ends of its logs."""
    try:
        site.start()
        yield site
    except BaseException:
        print(site.tails(40), file=sys.stderr)
        raise
    finally:
        site.stop()


def keep(place: Path | None, figures: dict[str, Any]) -> None:
    """Writes figures with the machine that they are of, if somebody wants them."""
    from triage.tasks.rules import ruleset

    if place is not None:
        place.write_text(json.dumps({"machine": machine(ruleset()), **figures}, indent=1) + "\n")


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


class Bench:
    """What is sent to a site, and what became of it."""

    def __init__(self, site: Site) -> None:
        self.site = site
        os.environ.update(site.environment)
        import django

        django.setup()
        from django.conf import settings
        from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
        from django.contrib.auth.models import User
        from django.contrib.sessions.backends.db import SessionStore

        from triage.services.tokens import create_token

        user = User.objects.create_superuser("bench")
        self.token = create_token(user, "bench", ["ingest", "read"])[1]
        session = SessionStore()
        session[SESSION_KEY] = str(user.pk)
        session[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[-1]
        session[HASH_SESSION_KEY] = user.get_session_auth_hash()
        session.create()
        self.cookie = f"{settings.SESSION_COOKIE_NAME}={session.session_key}"
        self.runs = 0

    def measure(self, name: str, size: Size, way: str, processes: int, count: int) -> dict[str, Any]:
        """One row of the figures."""
        self.runs += 1
        templates = [Template(size, kind) for kind in KINDS]
        self._send(templates, way, f"warm-{self.runs}", len(templates))
        self._wait(f"warm-{self.runs}", len(templates))
        idle = self._idle()
        before, stored, began = self.site.cpu(), self.site.stored(), time.monotonic()
        with self._pages() as pages:
            self._send(templates, way, f"run-{self.runs}", count)
            taken = time.monotonic() - began
            self._wait(f"run-{self.runs}", count)
        took, after = time.monotonic() - began, self.site.cpu()
        self._check(f"run-{self.runs}", templates, count)
        held = self.site.stored()
        cpu = {
            kind: round(max(after[kind] - before[kind] - idle[kind] * took, 0) * 1000 / count, 1)
            for kind in sorted(after)
        }
        total = sum(spent for kind, spent in cpu.items() if kind != "clients")
        return {
            "size": name, "way": way, "workers": processes, "attempts": count, "seconds": round(took, 1),
            "taken_after": round(taken, 1), "per_second": round(count / took, 2), "cpu_ms": cpu,
            "cpu_ms_in_all": round(total, 1), "idle_ms": {kind: round(idle[kind] * 1000, 1) for kind in sorted(idle)},
            "stored_bytes": {what: (held[what] - stored[what]) // count for what in held},
            "sent_bytes": sum(map(len, templates[0].logs.values())),
            "pages_ms": _spread(pages), "load": round(os.getloadavg()[0], 1),
        }  # fmt: skip

    def _idle(self) -> dict[str, float]:
        """CPU seconds of each second in which nothing but pages are asked for: what is not the attempts'."""
        time.sleep(1)
        before, began = self.site.cpu(), time.monotonic()
        with self._pages():
            time.sleep(IDLE)
        after, took = self.site.cpu(), time.monotonic() - began
        return {kind: (after[kind] - before[kind]) / took for kind in after}

    # --- sending ----------------------------------------------------------------------------------------------------

    def _send(self, templates: list[Template], way: str, cluster: str, count: int) -> None:
        send = {"parts": self._in_parts, "bundle": self._as_bundle, "folder": self._by_folder}[way]
        with ThreadPoolExecutor(CLIENTS) as pool:
            for _ in pool.map(lambda n: send(templates[n % len(templates)], cluster, f"{cluster}-{n}"), range(count)):
                pass

    def _in_parts(self, template: Template, cluster: str, workload: str) -> None:
        client = Client(self.site.url, self.token, tries=9)
        attempt = client.attempt(workload, cluster=cluster, scheduler="slurm", **template.facts())
        for name, (first, rest) in template.sent(workload).items():
            if len(template.logs[name]) > PART:  # never with these sizes: one part a stream
                raise ValueError(f"{name} is larger than a part")
            client.call(
                "PUT", f"attempts/{attempt}/observations/{name}", first + rest, query={"offset": 0},
                headers={"Content-Encoding": "gzip"},
            )  # fmt: skip
        client.call("POST", f"attempts/{attempt}/diagnosis")

    def _as_bundle(self, template: Template, cluster: str, workload: str) -> None:
        client = Client(self.site.url, self.token, tries=9)
        client.call("POST", "bundles", template.bundle(workload, cluster), query={"name": f"{workload}.tar.zst"})

    def _by_folder(self, template: Template, cluster: str, workload: str) -> None:
        draft = self.site.root / f".{workload}.tar.zst"
        draft.write_bytes(template.bundle(workload, cluster))
        os.replace(draft, self.site.watched / f"{workload}.tar.zst")

    # --- what became of it ------------------------------------------------------------------------------------------

    def _wait(self, cluster: str, count: int) -> None:
        from triage.models import Attempt, TriageState

        done = Attempt.objects.filter(cluster__name=cluster, triage_state=TriageState.DONE)
        wait_for(lambda: done.count() >= count, PATIENCE, lambda: f"{done.count()} of {count}\n{self.site.tails()}")

    def _check(self, cluster: str, templates: list[Template], count: int) -> None:
        from triage.models import Attempt

        found = Counter(Attempt.objects.filter(cluster__name=cluster).values_list("domain", flat=True))
        wanted = Counter(KINDS[templates[n % len(templates)].kind] for n in range(count))
        if found != wanted:
            raise AssertionError(f"wrong diagnoses: {found}, not {wanted}")

    @contextmanager
    def _pages(self) -> Iterator[list[float]]:
        """Seconds that pages took, one every two seconds until the block ends."""
        from triage.models import Attempt

        attempt = Attempt.objects.latest("pk").pk
        seconds: list[float] = []
        pages = cycle(PAGES)

        def look() -> None:
            began = time.monotonic()
            address = self.site.url + next(pages).format(attempt=attempt)
            request = urllib.request.Request(address, headers={"Cookie": self.cookie})
            with urllib.request.urlopen(request, timeout=120) as answer:
                answer.read()
            seconds.append(time.monotonic() - began)

        with watching(look, 2.0):
            yield seconds


def _spread(seconds: list[float]) -> dict[str, int]:
    """Milliseconds."""
    if not seconds:
        return {}
    ordered = sorted(seconds)
    return {
        "half": round(median(ordered) * 1000),
        "95%": round(ordered[int(len(ordered) * 0.95)] * 1000),
        "longest": round(ordered[-1] * 1000),
    }


def line(row: dict[str, Any]) -> str:
    """For people who watch."""
    cpu = ", ".join(f"{kind} {spent}" for kind, spent in row["cpu_ms"].items())
    return (
        f"{row['size']:8} {row['way']:7} {row['workers']} processes: {row['per_second']:6.2f} a second "
        f"({row['attempts']} in {row['seconds']} s); CPU ms each: {row['cpu_ms_in_all']} ({cpu}); "
        f"stored {row['stored_bytes']}; pages {row['pages_ms']} ms; load {row['load']}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.throughput", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of attempts")
    parser.add_argument("--size", choices=SIZES, action="append")
    parser.add_argument("--way", choices=WAYS, action="append")
    parser.add_argument("--workers", type=int, action="append", help="processes of the worker")
    parser.add_argument("--json", type=Path, help="where the figures go")
    options = parser.parse_args()
    rows = []
    with running(Site(small_disk=False)) as site:
        bench = Bench(site)
        for processes in options.workers or WORKERS:
            site.use(processes)
            for name in options.size or SIZES:
                for way in options.way or WAYS:
                    count = max(3, round(COUNTS[name] * options.scale))
                    rows.append(bench.measure(name, SIZES[name], way, processes, count))
                    print(line(rows[-1]), flush=True)
        keep(options.json, {"clients": CLIENTS, "runs": rows})


if __name__ == "__main__":
    main()
