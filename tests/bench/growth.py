"""How cost grows with the attempts in the database: `python -m tests.bench.growth --json docs/growth.json`.

Starts servers of its own, fills them with a made-up fleet up to each size (`manage.py seed_fleet`, the same days and
nodes, so that everything gets denser), and measures at each: every page of `tests.bench.pages`, and making an attempt
known and recording its diagnosis through the services. What counts is the processor's time of this process and its
database session (which gets no help of parallel workers: theirs would not be seen), and the ratio of the last size to
the first. A denser fleet has more to show, such as a full list where a user had ten failures: the kilobytes tell, and
what remains is the database's part. `--write` writes docs/growth.md from what was kept.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from triage.supervisor.folder import Folder
from triage.supervisor.postgres import Postgres
from triage.supervisor.process import stop_all
from triage.supervisor.servers import start
from triage.supervisor.valkey import Valkey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SIZES = (10_000, 100_000, 1_000_000)
AT_MOST = 1.3
"""What the last size may cost against the first."""
SMALL_MS = 30.0
"""A page that costs less than this at the last size holds, whatever it cost at the first."""
DOCS = Path(__file__).parents[2] / "docs"
KEPT = DOCS / "growth.json"
NOTES = Path(__file__).with_name("growth_notes.md")
"""What the plans say, in words, which docs/growth.md ends with."""
PARTS = {"database_ms": "of it database", "p95_ms": "95th percentile", "kilobytes": "kB of the page"}
Figures = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--sizes", type=sizes_of, default=SIZES, help="attempts, rising, comma between; default 10^4..6"
    )
    parser.add_argument("--runs", type=int, default=40, help="requests a page; default 40")
    parser.add_argument("--only", action="append", metavar="PAGE", help="measure this page alone; repeatable")
    parser.add_argument("--folder", type=Path, help="keep the database here, and go on from it; default a new one")
    parser.add_argument("--after", type=Path, metavar="FILE", help="put before them the kept figures of smaller sizes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the figures here")
    parser.add_argument("--write", action="store_true", help="only write docs/growth.md from the kept figures")
    options = parser.parse_args()
    if options.write:
        (DOCS / "growth.md").write_text(markdown(json.loads(KEPT.read_text())))
        return 0
    smaller = json.loads(options.after.read_text())["sizes"] if options.after else []
    if options.json:
        try:
            options.json.touch()  # what can't be written is told before the hours of measuring
        except OSError as error:
            parser.error(f"--json {options.json}: {error.strerror}")
    with tempfile.TemporaryDirectory(prefix="faultline-growth-") as new, servers(options.folder or Path(new)):
        figures = measure(options.sizes, options.runs, options.only)
    figures["sizes"] = smaller + figures["sizes"]
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    print(markdown(figures))
    return 0


def sizes_of(text: str) -> list[int]:
    """Raises ArgumentTypeError."""
    parts = text.split(",")
    sizes = [int(part) for part in parts if part.isdecimal()]
    if len(sizes) < len(parts) or sizes != sorted(sizes) or sizes[0] < 1:
        raise argparse.ArgumentTypeError(f"{text!r} are no rising numbers of attempts such as 10000,100000")
    return sizes


@contextmanager
def servers(root: Path) -> Iterator[None]:
    """PostgreSQL and Valkey of this run, as the settings' servers."""
    folder = Folder(root)
    folder.create()
    database, broker = Postgres(folder, throwaway=True), Valkey(folder, throwaway=True)
    running = []
    try:
        for server in (database, broker):
            server.prepare()
            running.append(start(server))
        os.environ |= {"DATABASE_URL": database.url, "REDIS_URL": broker.url, "FAULTLINE_DATA_DIR": str(root / "data")}
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "triage.settings")
        yield
    finally:
        stop_all(running, grace=30.0)


def measure(sizes: Sequence[int], runs: int, only: list[str] | None = None) -> Figures:
    import django

    django.setup()
    from django.conf import settings
    from django.core.management import call_command

    from tests.bench import pages
    from triage.models import Attempt

    settings.ALLOWED_HOSTS = ["*"]
    call_command("migrate", verbosity=0)
    measured = []
    for size in sizes:
        missing = size - Attempt.objects.count()
        began = time.monotonic()
        if missing > 0:
            call_command("seed_fleet", attempts=missing, verbosity=0)
        seeded = time.monotonic() - began
        report = pages.measure(runs, Random(1), only=only)
        shown = report["pages"].items()
        costs = {name: page["processor_median_ms"] for name, page in shown}
        if not only:
            costs |= recording(runs * 3)
        measured.append({
            "attempts": Attempt.objects.count(), "database_mb": database_size(), "seeded_s": round(seeded),
            "load": report["load_average"], "costs_ms": costs,
            "p95_ms": {name: page["processor_p95_ms"] for name, page in shown},
            "database_ms": {name: page["session_median_ms"] for name, page in shown},
            "kilobytes": {name: page["kilobytes"] for name, page in shown},
            "queries": {name: page["queries"] for name, page in shown},
        })  # fmt: skip
        print(f"{size:,} attempts measured", file=sys.stderr, flush=True)
    return {"at": datetime.now(UTC).isoformat(timespec="seconds"), "cpus": os.cpu_count(), "sizes": measured}


def recording(runs: int) -> dict[str, float]:
    """Median cost of making an attempt known and of recording its diagnosis, by the services that do it."""
    from tests.bench.pages import processor_time
    from tests.triage import cast
    from triage.services.attempts import record_attempt
    from triage.services.diagnoses import record_diagnosis
    from triage.services.triage import begin_triage, lease_diagnosis, request_triage

    contract = cast.contract(nodes={"node-001": "cause"})
    known, recorded = [], []

    def timed(costs: list[float], work: Callable[[], Any]) -> Any:
        began = processor_time()
        done = work()
        costs.append((processor_time() - began) * 1000)
        return done

    for number in itertools.islice(itertools.count(time.time_ns()), runs):
        workload = f"growth-{number}"
        attempt, _ = timed(known, lambda workload=workload: record_attempt(cast.facts(workload)))
        request_triage(attempt.pk)
        begin_triage(attempt.pk)
        lease = lease_diagnosis(attempt.pk)
        assert lease is not None
        timed(recorded, lambda lease=lease, number=number: record_diagnosis(lease, contract, evidence=f"of {number}"))
    return {
        "making an attempt known": round(statistics.median(known), 1),
        "recording a diagnosis": round(statistics.median(recorded), 1),
    }


def database_size() -> int:
    """Megabytes of the whole database."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_database_size(current_database()) / 1000000")
        return int(cursor.fetchone()[0])


def holds(first: float, last: float) -> bool:
    return last <= max(SMALL_MS, first * AT_MOST)


def markdown(figures: Figures) -> str:
    sizes = figures["sizes"]
    first, last = sizes[0], sizes[-1]
    heads = [f"{size['attempts']:,}" for size in sizes]
    rows = [
        "# How cost grows with the attempts in the database",
        "",
        "Written by `python -m tests.bench.growth --write` from `docs/growth.json`, which it measures without that.",
        "",
        __doc__.split("\n\n", 1)[1].split(" `--write`")[0].strip(),
        "",
        f"{figures['at']}, {figures['cpus']} cores, load {', '.join(str(size['load']) for size in sizes)}; "
        f"the database had {', '.join(str(size['database_mb']) for size in sizes)} MB. A page holds when it costs at "
        f"the last size at most {AT_MOST} times what it costs at the first, or less than {SMALL_MS:.0f} ms.",
        "",
        f"| median cost, CPU ms | {' | '.join(heads)} | ratio | holds | {' | '.join(PARTS.values())} |",
        f"|---|{'---|' * (len(heads) + 2 + len(PARTS))}",
    ]
    for name, cost in last["costs_ms"].items():
        costs = [size["costs_ms"][name] for size in sizes]
        ratio = cost / first["costs_ms"][name]
        said = "yes" if holds(first["costs_ms"][name], cost) else "**no**"
        parts = [f"{first[what][name]} to {last[what][name]}" if name in first[what] else "" for what in PARTS]
        rows.append(f"| {name} | {' | '.join(map(str, costs))} | {ratio:.2f} | {said} | {' | '.join(parts)} |")
    if NOTES.exists():
        rows += ["", NOTES.read_text().rstrip()]
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    sys.exit(main())
