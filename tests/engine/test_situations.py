"""What becomes of attempts that were written by hand to see whether a statement about the engine holds."""

from __future__ import annotations

import pytest

from tests.engine.situations import Situation, situations


@pytest.mark.parametrize("situation", situations(), ids=lambda s: f"{s.source}: {s.it}")
def test_the_verdict_is_an_expert_s(situation: Situation) -> None:
    assert situation.complaints(situation.evidence.diagnosed()) == []
