from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.access import world
from tests.access.world import Team
from tests.triage.conftest import data_dir

__all__ = ["data_dir"]


@pytest.fixture
def teams(db: None, data_dir: Path, tmp_path: Path, settings: Any) -> tuple[Team, Team]:
    settings.FAULTLINE_API_RATE = 0
    amber, birch = world.build(tmp_path)
    return amber, birch
