"""How much memory a worker takes to collect a stream of 2 GB: from the source through masking into the blob store."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from django.conf import settings as project

from engine.model import Attempt as Facts
from engine.model import Workload
from tests.fakes.loki import Entry, FakeLoki
from tests.triage.conftest import Fleet
from triage.services.attempts import record_attempt
from triage.services.collecting import add_collection
from triage.services.triage import begin_triage, request_triage

MOST = 200 * 1024**2
SIZE = 2 * 1024**3
LINES = SIZE // 1000
RUN = """
import json, sys, time
import django
django.setup()
from triage.models import Collection
from triage.tasks.collecting import collect
def most():  # ru_maxrss counts the program that started this one as well
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
began, before = time.time(), most()
collect(int(sys.argv[1]))
peak = most()
row = Collection.objects.get(pk=sys.argv[1])
print(json.dumps([before, peak, row.reports, row.bytes_done, time.process_time(), time.time() - began]))
"""


def write_log(path: Path) -> None:
    """Lines that differ, with times, as a trainer writes them."""
    block = "".join(
        f"2026-11-03 02:{n // 60 % 60:02d}:{n % 60:02d},{n % 1000:03d} rank {n % 512} iteration {n} | "
        f"lm loss 2.{n % 9973:04d} | grad norm 0.{n % 7919:04d} | tokens/s {100_000 + n % 6101}\n"
        for n in range(40_000)
    ).encode()
    with path.open("wb") as out:
        while out.tell() < SIZE:
            out.write(block)


class Lines(Sequence[Entry]):
    """Lines of Loki that are made when they are asked for."""

    def __init__(self, start: float) -> None:
        self._start = int(start) * 10**9

    def __len__(self) -> int:
        return LINES

    def __getitem__(self, index: int) -> Entry:  # type: ignore[override]
        return Entry(self._start + index * 1_000_000, f"iteration {index} {'x' * 1000}")


@pytest.mark.bench
@pytest.mark.parametrize("kind", ["files", "loki"])
def test_a_worker_collects_2_gb_in_200_mb(fleet: Fleet, tmp_path: Path, kind: str) -> None:
    now = time.time()
    (tmp_path / "logs").mkdir()
    with FakeLoki() as loki:
        if kind == "files":
            write_log(tmp_path / "logs" / "train.log")
            keys = 'patterns = [{source = "applog", path = "logs:train.log"}]'
        else:
            loki.hold({"job": "x", "node": "gx-01"}, Lines(now - 3600))
            keys = f'url = "{loki.url}"\nqueries = [{{source = "applog", query = \'{{job="x"}}\'}}]\ntime_limit = 1800'
        (tmp_path / "faultline.toml").write_text(
            f'[clusters.c1.sources.drop]\nkind = "files"\nroots = {{logs = "{tmp_path}/logs"}}\nwatch = ["logs"]\n'
            f'[clusters.c1.sources.asked]\nkind = "{kind}"\n{keys}\n'
            + (f'roots = {{logs = "{tmp_path}/logs"}}\n' if kind == "files" else "")
        )
        facts = Facts(workload=Workload(id="1", cluster="c1"), started_at=now - 3600, ended_at=now, nodes=("gx-01",))
        attempt, _ = record_attempt(facts)
        collection, _ = add_collection(attempt, "c1/asked", "")
        request_triage(attempt.pk)
        begin_triage(attempt.pk)
        environment = {
            **fleet.environment,
            "DJANGO_SETTINGS_MODULE": "triage.settings",
            "FAULTLINE_CONFIG": str(tmp_path / "faultline.toml"),
        }
        command = [sys.executable, "-c", RUN, str(collection.pk)]
        done = subprocess.run(command, cwd=project.BASE_DIR, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    before, peak, reports, size, cpu, seconds = json.loads(done.stdout.splitlines()[-1])
    print(
        f"\n{kind}, whole worker: {size / 2**30:.2f} GiB: {peak / 2**20:.0f} MB, {before / 2**20:.0f} MB of them "
        f"before it began; {cpu:.0f} s CPU, {seconds:.0f} s"
    )
    assert [(report["source"], report["status"]) for report in reports] == [("applog", "ok")]
    assert size >= SIZE and reports[0]["bytes"] == size
    assert peak < MOST
