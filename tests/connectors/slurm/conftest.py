"""One real cluster for the whole session, with jobs that ended in every way; and recordings for tests without root."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from connectors.base import CollectionReport, CollectRequest, Found, FoundAttempt
from connectors.slurm.connector import SlurmConnector
from engine.diagnose import diagnose
from engine.model import Diagnosis, Stream
from engine.ruleset import Ruleset, load_ruleset
from tests.peers import leave_out
from tests.peers.slurm.cluster import Cluster, why_not
from tests.peers.slurm.jobs import Jobs, run_jobs

RECORDED = Path(__file__).parent / "recorded"


class Slurm(msgspec.Struct):
    """The running cluster, and what became of its jobs."""

    cluster: Cluster
    jobs: Jobs

    def connector(self, **config: Any) -> SlurmConnector:
        """One that may read everything."""
        logs = self.cluster.folder / "log"
        settings = {
            "name": "alpine",
            "cluster": "alpine-prod",
            "environment": {"SLURM_CONF": str(self.cluster.conf)},
            "roots": [str(self.cluster.work)],
            "timezone": self.cluster.zone,
            "slurmctld_log": str(logs / "slurmctld.log"),
            "slurmd_log": str(logs / "slurmd-{node}.log"),
            **config,
        }
        return SlurmConnector.from_config({key: value for key, value in settings.items() if value is not None})


class Gathered(msgspec.Struct):
    """What one collection gave."""

    contents: dict[str, bytes]
    streams: dict[str, Stream]
    reports: dict[str, CollectionReport]
    diagnosis: Diagnosis | None


@pytest.fixture(scope="session")
def slurm() -> Iterator[Slurm]:
    """Skipped where no cluster can be started; in CI that is an error."""
    leave_out(why_not())
    # a short path of its own: sockets are in it, and jobs run as a user who may not see pytest's folders
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder, Cluster(Path(folder), zone="Asia/Tokyo") as cluster:
        yield Slurm(cluster=cluster, jobs=run_jobs(cluster))


@pytest.fixture(scope="session")
def rules() -> Ruleset:
    return load_ruleset()


def told(steps: list[Found]) -> dict[tuple[str, int], FoundAttempt]:
    """What a search told, by workload and number; each once."""
    found = [step.found for step in steps if isinstance(step.found, FoundAttempt)]
    by_key = {(one.attempt.workload.id, one.attempt.number): one for one in found}
    assert len(by_key) == len(found), "told twice"
    return by_key


def gather(connector: SlurmConnector, found: FoundAttempt, rules: Ruleset | None = None, **request: Any) -> Gathered:
    """Collects and reads everything, and diagnoses it if there are rules."""
    asked = CollectRequest(attempt=found.attempt, ref=found.ref, **request)
    with connector.collect(asked) as collected:
        streams = list(collected.streams())
        contents = {}
        for stream in streams:
            with stream.open() as content:
                contents[stream.name] = content.read()
        reports = collected.reports()
        diagnosis = None
        if rules is not None:
            told = [report.for_engine() for report in reports]
            diagnosis = diagnose(found.attempt, streams, rules, collected=told)
    assert len({report.source for report in reports}) == len(reports)
    return Gathered(contents, {s.name: s for s in streams}, {r.source: r for r in reports}, diagnosis)
