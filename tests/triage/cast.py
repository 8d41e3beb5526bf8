"""The bundles and diagnoses that these tests play with. Invented hosts and people."""

from __future__ import annotations

import io
import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import zstandard

from engine import model as engine

START = datetime(2026, 11, 3, 2, 0, tzinfo=UTC)
END = datetime(2026, 11, 3, 4, 22, 31, tzinfo=UTC)
NODES = ("gx-01", "gx-02")

MANIFEST = """\
schema: 1
workload: {id: "%(workload)s", name: llama-7b, scheduler: slurm, cluster: c1, user: ada, queue: gpu}
attempt:
  number: %(number)s
  state: FAILED
  exit_code: "1:0"
  started_at: 2026-11-03T02:00:00Z
  ended_at: 2026-11-03T04:22:31Z
  nodes: [gx-01, gx-02]
  gpus_per_node: 8
"""
APPLOG = """\
2026-11-03 04:11:54,433 rank 3 iteration 1525 | loss 2.1
[rank3]: Traceback (most recent call last):
[rank3]:   File "/home/ada/train.py", line 12, in <module>
[rank3]:     main()
[rank3]: KeyError: 'input_ids'
2026-11-03 04:22:30,001 exported HF_TOKEN=hf_abcdefghij0123456789klmnop
"""
SYSLOG = """\
Nov  3 04:11:16 gx-02 kernel: NVRM: Xid (PCI:0000:61:00): 79, pid=1234, name=python3, GPU has fallen off the bus.
Nov  3 04:22:29 gx-02 systemd[1]: Starting system activity accounting tool...
"""


def members(workload: str = "48213", number: int = 1, **files: str | bytes) -> dict[str, bytes]:
    """The files of a bundle by name; `files` add or replace, with `/` written as `__`."""
    contents: dict[str, str | bytes] = {
        "attempt.yaml": MANIFEST % {"workload": workload, "number": number},
        "applog/train.log": APPLOG,
        "syslog/gx-02.log": SYSLOG,
    }
    contents |= {name.replace("__", "/"): content for name, content in files.items()}
    return {name: content.encode() if isinstance(content, str) else content for name, content in contents.items()}


def archive(path: Path, contents: dict[str, bytes]) -> Path:
    """A .tar.zst with these files."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for name, content in contents.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    path.write_bytes(zstandard.ZstdCompressor().compress(raw.getvalue()))
    return path


def folder(path: Path, contents: dict[str, bytes]) -> Path:
    """A folder with these files."""
    for name, content in contents.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path


def facts(workload: str = "48213", **changes: Any) -> engine.Attempt:
    """What a scheduler says of an attempt."""
    named = {"name": "llama-7b", "scheduler": "slurm", "cluster": "c1", "user": "ada", "queue": "gpu"}
    named |= {key: changes.pop(key) for key in list(changes) if key in named}
    values: dict[str, Any] = {
        "state": "FAILED",
        "started_at": START.timestamp(),
        "ended_at": END.timestamp(),
        "nodes": NODES,
        "gpus_per_node": 8,
    }
    return engine.Attempt(workload=engine.Workload(id=workload, **named), **{**values, **changes})


def contract(
    domain: str = "hardware",
    sub_domain: str = "gpu",
    *,
    outcome: str = "failed",
    nodes: dict[str, str] | None = None,
    title: str = "GPU fell off the bus on gx-02 (Xid 79)",
    ruleset: str = "sha256:one",
) -> dict[str, Any]:
    """A diagnosis as plain containers. `nodes`: node -> role."""
    nodes = {"gx-02": "cause", "gx-01": "affected"} if nodes is None else nodes
    blamed = tuple(node for node, role in nodes.items() if role != "affected")
    at = "2026-11-03T04:11:16.000000Z"
    root = engine.RootCause(
        rule="xid.79", title=title, nodes=blamed, devices=(), ranks=(), at=at, evidence=(), why="It began there."
    )
    return engine.Diagnosis(
        bundle="",
        attempt={},
        outcome=outcome,
        domain=domain,
        sub_domain=sub_domain,
        title=title,
        root_cause=root if domain != "unattributed" else None,
        candidates=(),
        affected_nodes=tuple(engine.AffectedNode(node=n, role=role, first_at=at) for n, role in nodes.items()),
        symptoms=(),
        evidence=(),
        timeline=(),
        reasoning=(),
        recommendation=engine.Recommendation(action="restart"),
        coverage=(),
        fingerprint=engine.Fingerprint(key=f"f-{domain}-{sub_domain}", parts={}, version="1"),
        engine=engine.EngineInfo(version="0.1.0", ruleset=ruleset),
    ).to_dict()
