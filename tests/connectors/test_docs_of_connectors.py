"""The configurations in docs/connectors are taken by the connectors, and the documents name every key."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from connectors.loki import config as loki
from connectors.promql import config as promql
from connectors.registry import Registry

DOCS = Path(__file__).resolve().parents[2] / "docs" / "connectors"


@pytest.mark.parametrize("name", ["loki", "promql"])
def test_the_configuration_in_the_document_works(name: str) -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", (DOCS / f"{name}.md").read_text(), re.DOTALL)
    registry = Registry.from_config(tomllib.loads(block)["connectors"])
    assert registry.get(name).name == name


@pytest.mark.parametrize(("name", "keys"), [("loki", loki._KEYS), ("promql", promql._KEYS)])
def test_every_key_is_in_the_document(name: str, keys: set[str]) -> None:
    text = (DOCS / f"{name}.md").read_text()
    assert {key for key in keys - {"name"} if key not in text} == set()
