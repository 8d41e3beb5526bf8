"""The configurations in docs/connectors are taken as they stand, and the documents name every key."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from connectors.files import config as files
from connectors.kueue import config as kueue
from connectors.loki import config as loki
from connectors.pods import config as pods
from connectors.promql import config as promql
from connectors.registry import FACTORIES
from connectors.slurm import config as slurm
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
