"""A place for a demo's folder that other users can pass through, as a checkout usually is; pytest's own is closed."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from triage.supervisor.folder import Folder


@pytest.fixture(scope="module")
def open_place() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="faultline-demo-"))
    place.chmod(0o711)
    yield place
    shutil.rmtree(place)


@pytest.fixture
def place(open_place: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    place = open_place / f"test-{abs(hash(request.node.nodeid))}"
    place.mkdir()
    yield place
    shutil.rmtree(Folder(place / "demo").outside, ignore_errors=True)
