"""Server time of the pages with many attempts: `python -m tests.bench.pages --runs 40 > pages.json`.

Measures the database that the settings name, as it is; `manage.py seed_fleet --attempts 100000` fills one. It adds one
attempt with a log of 1 GB (`--log`), for permalinks deep in it. Prints JSON: for each page the requests, the median and
the 95th percentile in milliseconds, the same of the processor's time (of this process and, where it is on this machine,
its database session: that is what remains of a figure on a machine with other work), the queries and the bytes. With
`--check`, it ends with 1 when a page is slower than it should be.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

LIMITS = {"poll": 30.0, "poll, nothing new": 30.0, "evidence, deep": 300.0, "log, deep": 300.0}
"""Milliseconds at the 95th percentile; other pages have LIMIT."""
LIMIT = 150.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=40, help="requests a page; default 40")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log", type=int, default=10**9, metavar="BYTES", help="size of the long log; 0: none")
    parser.add_argument("--only", action="append", metavar="PAGE", help="measure this page alone; repeatable")
    parser.add_argument("--check", action="store_true", help="fail when a page is too slow")
    options = parser.parse_args()

    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "triage.settings")
    django.setup()
    from django.conf import settings

    settings.ALLOWED_HOSTS = ["*"]
    report = measure(options.runs, Random(options.seed), log=options.log, only=options.only)
    json.dump(report, sys.stdout, indent=1)
    print()
    slow = [name for name, page in report["pages"].items() if page["p95_ms"] > page["limit_ms"]]
    if options.check and slow:
        print(f"slower than they should be: {', '.join(slow)}", file=sys.stderr)
        return 1
    return 0


def measure(runs: int, random: Random, *, log: int = 0, only: list[str] | None = None) -> dict[str, Any]:
    """Every page `runs` times, each time for another value where it takes one."""
    from django.contrib.auth.models import User
    from django.db import connection
    from django.test import Client
    from django.test.utils import CaptureQueriesContext

    from triage.models import Attempt

    with connection.cursor() as cursor:
        cursor.execute("SET max_parallel_workers_per_gather = 0")
    user, _ = User.objects.get_or_create(username="bench", defaults={"is_active": True})
    client = Client()
    client.force_login(user)
    pages = {}
    for name, addresses in pages_of(random, log).items():
        if only and name not in only:
            continue
        headers = {"HX-Request": "true"} if name.startswith(("poll", "suggestions")) else {}
        first = client.get(next(addresses), headers=headers)  # templates and plans are loaded
        if name == "poll, nothing new":
            headers["If-None-Match"] = first["ETag"]
        times, worked, session, sizes, queries = [], [], [], [], 0
        for number in range(runs):
            address = next(addresses)
            if number == 0:
                with CaptureQueriesContext(connection) as seen:
                    client.get(address, headers=headers)
                queries = len(seen)
            began, busy, busy_session = time.perf_counter(), time.process_time(), session_time()
            answer = client.get(address, headers=headers)
            times.append((time.perf_counter() - began) * 1000)
            own, session_s = time.process_time() - busy, session_time() - busy_session
            worked.append((own + session_s) * 1000)
            session.append(session_s * 1000)
            sizes.append(len(answer.content))
            assert answer.status_code in (200, 304), (address, answer.status_code)
        pages[name] = {
            "runs": runs,
            "median_ms": round(statistics.median(times), 1),
            "p95_ms": round(percentile(times, 0.95), 1),
            "max_ms": round(max(times), 1),
            "limit_ms": LIMITS.get(name, LIMIT),
            "processor_median_ms": round(statistics.median(worked), 1),
            "processor_p95_ms": round(percentile(worked, 0.95), 1),
            "session_median_ms": round(statistics.median(session), 1),
            "queries": queries,
            "kilobytes": round(statistics.mean(sizes) / 1000, 1),
        }
    return {
        "attempts": Attempt.objects.count(),
        "python": platform.python_version(),
        "processors": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 1),
        "pages": pages,
    }


def processor_time() -> float:
    """Seconds that this process and its database session have worked."""
    return time.process_time() + session_time()


def session_time() -> float:
    """Seconds that the database session of this process has worked; 0 where it is elsewhere or the kernel doesn't tell.
    Workers that help it don't count, so `measure` does without them.
    """
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (pid,) = cursor.fetchone()
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def percentile(values: list[float], share: float) -> float:
    """The smallest value that at least `share` of them don't exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1))]


def pages_of(random: Random, log: int = 0) -> dict[str, Iterator[str]]:
    """Endless addresses of each kind of page, with values that exist."""
    from django.urls import reverse

    from tests.bench.deep_log import deep_log
    from triage.models import Attempt, Cluster, Incident
    from triage.templatetags.fleet import node_url

    newest = Attempt.objects.exclude(outcome="succeeded").order_by("-sort_at")[:5000]
    rows = list(newest.values("pk", "domain", "outcome", "user", "queue", "rule", "blamed_nodes", "cluster__name"))
    assert rows, "no attempts: run `manage.py seed_fleet --attempts 100000` first"
    values = {
        "domain": sorted({row["domain"] for row in rows if row["domain"]}),
        "outcome": sorted({row["outcome"] for row in rows if row["outcome"]}),
        "user": sorted({row["user"] for row in rows}),
        "queue": sorted({row["queue"] for row in rows if row["queue"]}),
        "rule": sorted({row["rule"] for row in rows if row["rule"]}),
        "node": [*sorted({row["blamed_nodes"][0] for row in rows if row["blamed_nodes"]}), "none"],
        "cluster": list(Cluster.objects.exclude(name="").values_list("name", flat=True)),
        "is": ["unconfirmed", "confirmed", "corrected"],
        "ended": ["24h", "7d", "30d", "12w"],
    }
    nodes = sorted({(row["blamed_nodes"][0], row["cluster__name"]) for row in rows if row["blamed_nodes"]})
    incidents = list(Incident.objects.filter(attempts_count__gt=0).values_list("pk", flat=True))

    def one(name: str) -> str:
        return f"{name}:{random.choice(values[name])}"

    def inbox(*names: str) -> Iterator[str]:
        while True:
            yield f"{reverse('failures')}?q={'+'.join(one(name) for name in names)}"

    def two() -> Iterator[str]:
        while True:
            first, second = random.sample(sorted(values), 2)
            yield f"{reverse('failures')}?q={one(first)}+{one(second)}"

    def words() -> Iterator[str]:
        while True:
            yield f"{reverse('failures')}?q={random.choice(['memory', 'xid', 'timeout', 'link', 'llama', 'node-0'])}"

    def endless(make: Any) -> Iterator[str]:
        while True:
            yield make()

    unmoved = f"{reverse('failures-news')}?q={one('domain')}&top={rows[0]['pk']}"
    deep = deep_log(log) if log else None
    logs = {}
    if deep is not None:
        evidence, stream = reverse("evidence", args=[deep.attempt, deep.ref]), (deep.attempt, deep.stream)
        logs = {
            "evidence, deep": endless(lambda: evidence),
            "log, deep": endless(lambda: f"{reverse('stream', args=stream)}?line={random.randint(1, deep.lines)}"),
        }
    return {
        "inbox": inbox(),
        **{f"inbox, {name}": inbox(name) for name in values},
        "inbox, two filters": two(),
        "inbox, words": words(),
        "inbox, by GPU-hours": endless(lambda: f"{reverse('failures')}?q={one('ended')}&sort=lost"),
        "poll": endless(lambda: f"{reverse('failures-news')}?q={one('domain')}&top={random.choice(rows)['pk']}"),
        "poll, nothing new": endless(lambda: unmoved),
        "suggestions": endless(lambda: f"{reverse('failures-suggest')}?q={one('domain')}+node:"),
        "attempt": endless(lambda: reverse("attempt", args=[random.choice(rows)["pk"]])),
        "incident": endless(lambda: reverse("incident", args=[random.choice(incidents)])),
        "incidents": endless(lambda: reverse("incidents")),
        "node": endless(lambda: node_url(*random.choice(nodes))),
        "nodes": endless(lambda: reverse("nodes")),
        "insights": endless(lambda: f"{reverse('insights')}?cluster={random.choice(['', *values['cluster']])}"),
        "rules": endless(lambda: reverse("rules")),
        "rule": endless(lambda: reverse("rule", args=[random.choice(values["rule"])])),
        **logs,
    }


if __name__ == "__main__":
    sys.exit(main())
