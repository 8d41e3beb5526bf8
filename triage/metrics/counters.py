"""What was done: counted by the process that does it.

Processes of one machine share them through the folder PROMETHEUS_MULTIPROC_DIR, if that is set.
"""

from __future__ import annotations

from prometheus_client import Counter, Histogram

from engine.model import Source

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900, 3600)

DIAGNOSES = Counter("faultline_diagnoses", "Diagnoses made.", ["outcome", "domain"])
ROOTS = Counter("faultline_rule_roots", "Diagnoses whose root cause this rule found.", ["rule"])
SYMPTOMS = Counter("faultline_rule_symptoms", "Diagnoses that show this rule among the symptoms.", ["rule"])
SHADOW_HITS = Counter("faultline_rule_shadow_hits", "Diagnoses in which this rule on trial matched.", ["rule"])
DIAGNOSE_SECONDS = Histogram("faultline_diagnose_seconds", "Time of the engine for one attempt.", buckets=_SECONDS)
TRIAGE_FAILURES = Counter("faultline_triage_failures", "Attempts that could not be diagnosed, by a fault of ours.")
COLLECTIONS = Counter("faultline_collections", "Sources asked, by how that ended.", ["source", "status"])
COLLECT_SECONDS = Histogram(
    "faultline_collect_seconds", "Time that one source took for one attempt.", ["source"], buckets=_SECONDS
)
SEARCHES = Counter(
    "faultline_discovery_searches", "Searches of a source, by how they ended.", ["cluster", "source", "result"]
)
FOUND = Counter("faultline_discovery_found", "Attempts that searches of a source told of.", ["cluster", "source"])
DISCOVERY_LAG = Histogram(
    "faultline_discovery_lag_seconds",
    "From the end of an attempt until it was known.",
    ["cluster", "source"],
    buckets=(5, 15, 30, 60, 120, 300, 600, 1800, 3600, 21_600, 86_400),
)
DELIVERIES = Counter("faultline_deliveries", "Tries to deliver a message.", ["kind", "result"])


def label_of(source: str, connector: str) -> str:
    """Of a report: a kind of evidence or the source's own name. A bundle's reports may be about one of its files, and
    each label that Prometheus is told of is kept for weeks.
    """
    return source if source in set(Source) or source == connector.rpartition("/")[2] else "other"


def place_of(key: str) -> tuple[str, str]:
    """Labels of a source: cluster and name."""
    cluster, _, name = key.rpartition("/")
    return cluster, name
