"""What was done: counted by the process that does it.

Processes of one machine share them through the folder PROMETHEUS_MULTIPROC_DIR, if that is set.
"""

from __future__ import annotations

from prometheus_client import Counter, Histogram

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900, 3600)

DIAGNOSES = Counter("faultline_diagnoses", "Diagnoses made.", ["outcome", "domain"])
ROOTS = Counter("faultline_rule_roots", "Diagnoses whose root cause this rule found.", ["rule"])
DIAGNOSE_SECONDS = Histogram("faultline_diagnose_seconds", "Time of the engine for one attempt.", buckets=_SECONDS)
TRIAGE_FAILURES = Counter("faultline_triage_failures", "Attempts that could not be diagnosed, by a fault of ours.")
COLLECTIONS = Counter("faultline_collections", "Sources asked, by how that ended.", ["source", "status"])
COLLECT_SECONDS = Histogram(
    "faultline_collect_seconds", "Time that one source took for one attempt.", ["source"], buckets=_SECONDS
)
DELIVERIES = Counter("faultline_deliveries", "Tries to deliver a message.", ["kind", "result"])
