"""The configurations in docs/connectors are taken as they stand, and the documents name every key."""

from __future__ import annotations

import gzip
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from connectors.base import CollectionReport, CollectRequest, Connector
from connectors.files import config as files
from connectors.kueue import config as kueue
from connectors.loki import config as loki
from connectors.pods import config as pods
from connectors.promql import config as promql
from connectors.registry import FACTORIES
from connectors.slurm import config as slurm
from engine.model import Attempt, Workload
from tests.fakes.loki import FakeLoki
from triage.layers import load

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs" / "connectors"
KEYS = {
    "files": files._KEYS | files._PATTERN_KEYS,
    "kueue": kueue._KEYS - {"spool_dir"},  # it keeps nothing
    "loki": loki._KEYS | loki._QUERY_KEYS,
    "pods": pods._KEYS,
    "promql": promql._KEYS,
    "slurm": slurm._KEYS,
}
UNTOLD = {"name", "cluster"}
"""What Faultline sets itself."""
BLOCKS = [
    pytest.param(block, id=f"{path.relative_to(ROOT)}-{number}")
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for number, block in enumerate(re.findall(r"```toml\n(.*?)```", path.read_text(), re.DOTALL))
    if "[clusters." in block
]


@pytest.mark.parametrize("block", BLOCKS)
def test_a_configuration_in_the_documents_is_taken_as_it_stands(block: str, tmp_path: Path) -> None:
    path = tmp_path / "faultline.toml"
    path.write_text(block)
    configuration = load(path, {})
    # What only collects is shown by itself: it stands beside the scheduler's source of the same cluster.
    assert [error for error in configuration.errors if "no source finds attempts" not in error] == []
    assert [source.connector().name for cluster in configuration.clusters.values() for source in cluster.sources]


@pytest.mark.parametrize("kind", sorted(KEYS))
def test_every_key_is_in_the_document(kind: str) -> None:
    text = (DOCS / f"{kind}.md").read_text()
    assert {key for key in KEYS[kind] - UNTOLD if not re.search(rf"[`.]{key}\b|^{key} = ", text, re.MULTILINE)} == set()


def test_every_kind_has_a_document_with_what_an_operator_needs() -> None:
    assert set(KEYS) == set(FACTORIES)
    for kind in FACTORIES:
        text = (DOCS / f"{kind}.md").read_text()
        for heading in ("## A configuration that works", "## Least privileges"):
            assert heading in text, (kind, heading)
        assert re.search(r"^## (?:What it|How it) (?:asks|reads)", text, re.MULTILINE), kind


START = 1_780_000_000
JOB = Attempt(
    workload=Workload(id="4242", name="train", cluster="c1", scheduler="slurm", user="mlin"),
    started_at=START, ended_at=START + 600, nodes=("gx-01", "gx-02"),
)  # fmt: skip


def first_of(kind: str) -> dict[str, Any]:
    """The first configuration of a document, as plain values."""
    block = re.findall(r"```toml\n(.*?)```", (DOCS / f"{kind}.md").read_text(), re.DOTALL)[0]
    (cluster,) = tomllib.loads(block)["clusters"].values()
    source: dict[str, Any] = cluster["sources"][kind]
    source.pop("kind", None)
    return source


def collected(connector: Connector) -> tuple[dict[str, bytes], dict[str, CollectionReport]]:
    found = {}
    with connector.collect(CollectRequest(attempt=JOB, ref="")) as collection:
        for stream in collection.streams():
            with stream.open() as content:
                found[stream.name] = content.read()
        return found, {report.source: report for report in collection.reports()}


def test_the_documents_loki_is_asked_for_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("sesame")
    told = first_of("loki")
    with FakeLoki(basic=(told["username"], "sesame"), tenants=[told["tenant"]]) as server:
        at = (START + 5) * 10**9
        server.push({"job": "slurm", "job_id": "4242", "node": "gx-01"}, [(at, "step 1")], tenant=told["tenant"])
        for host in ("gx-01.example.org", "gx-02", "gx-03"):
            lines = [(at, f"kernel of {host}"), (at, "sshd: who was it")]
            server.push({"job": "systemd-journal", "hostname": host}, lines, tenant=told["tenant"])
        mine = {"url": server.url, "password": f"file:{tmp_path}/password"}
        found, reports = collected(FACTORIES["loki"]({**told, **mine}))
    assert b"".join(found.values()).count(b"kernel of") == 2 and b"sshd" not in b"".join(found.values())
    assert (reports["applog"].lines, reports["syslog"].lines, reports["syslog"].status) == (1, 2, "ok")
    assert "the attempt has no namespace" in reports["applog"].note, "the query for Kubernetes is not sent for Slurm"
    assert reports["applog"].link.startswith(told["grafana_url"])


def test_the_documents_files_are_read_where_it_says(tmp_path: Path) -> None:
    told = first_of("files")
    for name in ("jobs/mlin/4242/train.log", "hosts/gx-01/syslog", "hosts/gx-02/syslog.1",
                 "bug-reports/4242/gx-01-nvidia-bug-report.log.gz", "fr/4242/nccl_trace_rank_0"):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(gzip.compress(b"report\n") if name.endswith(".gz") else b"a line\n")
    found, reports = collected(FACTORIES["files"]({**told, "roots": {"logs": tmp_path, "captures": tmp_path}}))
    assert {source: report.streams for source, report in reports.items()} == {
        "applog": 1, "syslog": 3, "flight_recorder": 1,
    }, found  # fmt: skip
    assert {report.status for report in reports.values()} == {"ok"}
