"""`/metrics` tells what was done and what stands, only to those who may know, and alerts and dashboard ask for nothing
that isn't there.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.contrib.auth.models import User
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families

from tests.peers import leave_out
from tests.triage import cast
from tests.triage.conftest import MakeAttempt
from triage.models import Discovery, TriageState
from triage.services.attempts import record_attempt
from triage.services.bundles import import_bundle
from triage.services.triage import begin_triage, request_triage
from triage.tasks.collecting import collect
from triage.tasks.diagnosing import diagnose

MONITORING = Path(__file__).resolve().parents[2] / "docs" / "monitoring"


@pytest.fixture
def scrape(client: Client, settings: Any) -> Any:
    """What Prometheus reads: sample name and labels -> value."""
    settings.FAULTLINE_METRICS_TOKEN = "open sesame"

    def read() -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        answer = client.get("/metrics", headers={"authorization": "Bearer open sesame"})
        assert answer.status_code == 200
        families = text_string_to_metric_families(answer.content.decode())
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in families
            for sample in family.samples
        }

    return read


def test_what_stands_is_read_from_database_and_broker(scrape: Any, diagnosed: MakeAttempt) -> None:
    diagnosed("1")
    for workload in ("2", "3"):
        attempt, _ = record_attempt(cast.facts(workload))
        request_triage(attempt.pk)
    Discovery.objects.create(connector="c1/slurm", last_error="sacct: not found")
    found = scrape()
    pending = (("cluster", "c1"), ("state", TriageState.PENDING.value))
    assert found["faultline_attempts_unfinished", pending] == 2
    assert 0 <= found["faultline_attempts_oldest_seconds", pending] < 60
    assert found["faultline_discovery_failing", (("cluster", "c1"), ("source", "slurm"))] == 1
    assert found["faultline_up", (("part", "database"),)] == 1
    assert found["faultline_up", (("part", "broker"),)] == 1
    assert ("faultline_workers", ()) in found and ("faultline_broker_messages", ()) in found


def test_a_broker_that_is_away_is_a_figure_and_no_failure(scrape: Any, settings: Any, db: None) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    found = scrape()
    assert found["faultline_up", (("part", "broker"),)] == 0
    assert found["faultline_up", (("part", "database"),)] == 1 and ("faultline_deliveries_waiting", ()) in found


def test_the_work_of_a_worker_is_counted(scrape: Any, db: None, tmp_path: Path) -> None:
    before = scrape()
    attempt = import_bundle(cast.archive(tmp_path / "a.tar.zst", cast.members())).attempt
    begin_triage(attempt.pk)
    for collection in attempt.collections.all():
        collect(collection.pk)
    diagnose(attempt.pk)
    attempt.refresh_from_db()
    assert attempt.diagnosis is not None
    after = scrape()
    labels = (("domain", attempt.domain), ("outcome", attempt.outcome))
    grown = {key: value - before.get(key, 0) for key, value in after.items() if not key[0].startswith("django")}
    assert grown["faultline_diagnoses_total", labels] == 1
    assert grown["faultline_rule_roots_total", (("rule", attempt.rule),)] == 1
    assert grown["faultline_diagnose_seconds_count", ()] == 1
    assert grown["faultline_collections_total", (("source", "applog"), ("status", "ok"))] == 1


def test_only_prometheus_and_administrators_may_read(client: Client, settings: Any, db: None) -> None:
    assert client.get("/metrics").status_code == 401
    assert client.get("/metrics", headers={"authorization": "Bearer "}).status_code == 401
    settings.FAULTLINE_METRICS_TOKEN = "open sesame"
    assert client.get("/metrics", headers={"authorization": "Bearer closed"}).status_code == 401
    client.force_login(User.objects.create_user("ada"))
    assert client.get("/metrics").status_code == 401
    client.force_login(User.objects.create_user("root", is_staff=True))
    assert client.get("/metrics").status_code == 200


def test_alerts_and_dashboard_ask_only_for_what_is_told(scrape: Any, diagnosed: MakeAttempt, db: None) -> None:
    scrape()
    alerts = yaml.safe_load((MONITORING / "alerts.yml").read_text())
    rules = [rule for group in alerts["groups"] for rule in group["rules"]]
    panels = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    asked = [rule["expr"] for rule in rules] + [target["expr"] for panel in panels for target in panel["targets"]]
    names = {name for text in asked for name in re.findall(r"\b(?:faultline|django)_[a-z_]+", text)}
    told = set()
    from prometheus_client import REGISTRY

    from triage.metrics.standing import Standing

    for family in [*REGISTRY.collect(), *Standing().collect()]:
        suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(family.type, ("",))
        told |= {family.name + suffix for suffix in suffixes}
    assert names - told == set() and len(names) > 12
    documented = (MONITORING.parent / "monitoring.md").read_text().lower()
    assert {rule["alert"] for rule in rules if f"### {rule['alert'].lower()}" not in documented} == set()


def test_promtool_takes_the_alerts() -> None:
    if not shutil.which("promtool"):
        leave_out("promtool is not installed: make peers installs prometheus")
    checked = subprocess.run(
        ["promtool", "check", "rules", str(MONITORING / "alerts.yml")], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stderr
