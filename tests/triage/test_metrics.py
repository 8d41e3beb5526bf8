"""`/metrics` tells what was done and what stands, only to those who may know, and alerts and dashboard ask for nothing
that isn't there.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.conf import settings as project
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from msgspec import structs
from prometheus_client.parser import text_string_to_metric_families

from engine.bundle import loose_stream
from engine.diagnose import diagnose as run_engine
from engine.model import Source, Symptom
from engine.ruleset import load_ruleset
from tests.fakes.kubernetes import FakeKubernetes
from tests.peers import leave_out
from tests.triage import cast
from tests.triage.conftest import MakeAttempt
from tests.triage.jobs import fail
from triage.metrics import counters
from triage.metrics.standing import MOST_CLUSTERS, OTHERS
from triage.models import Attempt, Discovery, TriageState
from triage.services.attempts import record_attempt
from triage.services.bundles import import_bundle
from triage.services.triage import begin_triage, request_triage
from triage.tasks.collecting import collect
from triage.tasks.diagnosing import count, diagnose
from triage.tasks.discovery import discover_source

ENDS = ("answered", "failed")
ON_TRIAL = """
family: own
rules:
  - id: own.on-trial
    version: 1
    status: shadow
    title: On trial
    source: [syslog]
    match: ['fallen off the bus']
    role: cause
    domain: hardware
    sub_domain: gpu
    guide: none
    does_not_prove: anything
    examples: {match: [{line: "fallen off the bus"}], no_match: ["ok"]}
"""
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


def test_what_waits_at_a_source_and_in_a_queue_of_the_broker_is_told(scrape: Any, db: None, tmp_path: Path) -> None:
    attempt = import_bundle(cast.archive(tmp_path / "a.tar.zst", cast.members())).attempt
    begin_triage(attempt.pk)
    attempt.collections.update(queued_at=timezone.now() - timedelta(seconds=500))
    found = scrape()
    labels = (("cluster", attempt.cluster.name), ("source", "files"))
    assert found["faultline_collections_unfinished", labels] == 1
    assert 500 <= found["faultline_collections_oldest_seconds", labels] < 560
    queues = {dict(labels)["queue"] for name, labels in found if name == "faultline_queue_messages"}
    assert queues == {queue.name for queue in project.CELERY_TASK_QUEUES}


@pytest.mark.django_db(transaction=True)
def test_searches_of_a_source_are_counted_with_how_they_ended_and_how_late_they_told(
    scrape: Any, kubernetes: FakeKubernetes, configured: Callable[..., Path]
) -> None:
    fail(kubernetes)
    Discovery.objects.create(connector="gone/slurm", cluster="gone", last_run_at=timezone.now(), last_error="away")
    before = scrape()
    discover_source("k2/kueue")
    discover_source("k2/kueue")
    kubernetes.token = "another"
    discover_source("k2/kueue")
    after = scrape()
    grown = {key: value - before.get(key, 0) for key, value in after.items()}
    place = (("cluster", "k2"), ("source", "kueue"))
    result = {end: grown["faultline_discovery_searches_total", (place[0], ("result", end), place[1])] for end in ENDS}
    assert result == {"answered": 2, "failed": 1}
    known = Attempt.objects.filter(cluster__name="k2").count()
    assert grown["faultline_discovery_found_total", place] >= known > 0
    assert grown["faultline_discovery_lag_seconds_count", place] == known, "each once, however often it is told of"
    assert 0 <= after["faultline_discovery_answered_age_seconds", place] < 60
    assert after["faultline_discovery_failing", place] == 1
    assert not [labels for _, labels in after if ("cluster", "gone") in labels], "it is not configured any more"


def test_how_often_rules_were_symptoms_or_matched_on_trial_is_counted(scrape: Any, db: None, tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(ON_TRIAL)
    (tmp_path / "gx-02.log").write_text(cast.SYSLOG)
    rules, on_trial = load_ruleset([tmp_path], builtin=False), set[str]()
    stream = structs.replace(loose_stream(tmp_path / "gx-02.log"), source=Source.SYSLOG)
    diagnosis = run_engine(cast.facts(), [stream], rules, on_trial=on_trial)
    assert on_trial == {"own.on-trial"} and "on-trial" not in str(diagnosis.to_dict())
    before = scrape()
    symptom = Symptom(
        rule="own.symptom", title="", nodes=(), ranks=(), count=900, first_at=None, last_at=None, explained_by=None,
        evidence=(),
    )  # fmt: skip
    count(structs.replace(diagnosis, symptoms=(symptom, symptom)), on_trial)
    after = scrape()
    grown = {key: value - before.get(key, 0) for key, value in after.items()}
    assert grown["faultline_rule_shadow_hits_total", (("rule", "own.on-trial"),)] == 1
    assert grown["faultline_rule_symptoms_total", (("rule", "own.symptom"),)] == 1


def test_labels_are_bounded_whatever_is_sent(scrape: Any, db: None) -> None:
    for number in range(MOST_CLUSTERS + 20):
        for workload in range(2 if number < MOST_CLUSTERS else 1):
            attempt, _ = record_attempt(cast.facts(f"{number}-{workload}", cluster=f"c{number}"))
            request_triage(attempt.pk)
    found = {labels: value for (name, labels), value in scrape().items() if name == "faultline_attempts_unfinished"}
    assert len(found) == MOST_CLUSTERS + 1
    assert found[("cluster", OTHERS), ("state", "pending")] == 20
    assert counters.label_of("syslog", "c1/loki") == "syslog" and counters.label_of("loki", "c1/loki") == "loki"
    assert counters.label_of("applog/a link that somebody made.log", "files") == "other"


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
