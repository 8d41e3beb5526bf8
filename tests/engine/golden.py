"""Whole diagnoses kept as files, so that every change of one is seen: ``python -m tests.engine.golden`` renews them.

The ruleset's fingerprint is left out: it changes with every rule, the diagnosis should not.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.engine.evidence import case

FOLDER = Path(__file__).parent / "golden"
KEPT = (
    "hw-nvlink-xid149-node02",
    "hw-thermal-throttle-degraded",
    "hw-nccl-only-no-cause",
    "hw-xid79-before-start-keyerror",
    "net-ib-link-down",
    "net-kueue-workload-preempted",
    "net-k8s-node-not-ready",
    "net-slurm-time-limit",
    "sw-completed-with-warnings",
    "sw-fr-rank-stuck-in-save",
    "sw-traceback-after-timeouts",
    "sw-vllm-engine-oom",
)


def made(name: str) -> str:
    """The diagnosis of a stored attempt, one value a line."""
    found: dict[str, Any] = case(name).diagnosed().to_dict()
    del found["engine"]["ruleset"]
    return json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name in KEPT:
        (FOLDER / f"{name}.json").write_text(made(name), encoding="utf-8")
    print(f"{len(KEPT)} diagnoses written to {FOLDER.relative_to(Path.cwd())}")


if __name__ == "__main__":
    main()
