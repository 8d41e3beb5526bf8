"""Every family of rules that can decide: its verdict changes with the evidence as an expert's would, and only then."""

from __future__ import annotations

import pytest

from tests.engine.families import base, changes, chosen, deciding


def test_every_family_that_can_decide_has_an_attempt() -> None:
    assert set(chosen()) == deciding()


@pytest.mark.parametrize("family", sorted(chosen()))
def test_the_verdict_changes_as_an_expert_s_would(family: str) -> None:
    made, exempt = {change.name: change for change in changes(family)}, base(family).exempt
    assert exempt < set(made)
    wrong = {name: made[name].complaints(made[name].evidence().diagnosed()) for name in sorted(set(made) - exempt)}
    assert {name: said for name, said in wrong.items() if said} == {}
