"""The configurations in docs/connectors are taken as they stand, and the documents name every key."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from connectors.loki import config as loki
from connectors.promql import config as promql
from triage.configuration import load

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs" / "connectors"
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


@pytest.mark.parametrize(("name", "keys"), [("loki", loki._KEYS), ("promql", promql._KEYS)])
def test_every_key_is_in_the_document(name: str, keys: set[str]) -> None:
    text = (DOCS / f"{name}.md").read_text()
    assert {key for key in keys - {"name"} if key not in text} == set()
