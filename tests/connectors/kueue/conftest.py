"""A cluster of its own for each test, and a connector that is signed in to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from connectors.kube.sightings import MemorySightings
from connectors.kueue.connector import KueueConnector
from tests.fakes.kubernetes import FakeKubernetes


@pytest.fixture(autouse=True)
def quick_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch of these tests is over as soon as it has told what happened."""
    monkeypatch.setattr("connectors.kueue.discovery.IDLE_SECONDS", 0.3)


@pytest.fixture
def cluster() -> Iterator[FakeKubernetes]:
    with FakeKubernetes() as kubernetes:
        yield kubernetes


@pytest.fixture
def connect(cluster: FakeKubernetes, tmp_path: Path) -> Callable[..., KueueConnector]:
    """`connect(queues=[...])`: a connector with a store of sightings."""
    sightings = MemorySightings()

    def make(**config: Any) -> KueueConnector:
        file = cluster.kubeconfig(tmp_path / "kubeconfig")
        made = KueueConnector.from_config(
            {"name": "kueue", "kubeconfig": file, "cluster": "k2", "since_hours": 10**6, "watch_seconds": 2, **config}
        )
        made.sightings = sightings
        return made

    return make
