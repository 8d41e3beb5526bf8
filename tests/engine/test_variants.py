"""Attempts changed on purpose: the verdict changes as an expert's would, and only then."""

from __future__ import annotations

import pytest

from tests.engine.judge import RIGHT, judge
from tests.engine.variants import VARIANTS, Variant


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: v.name)
def test_the_verdict_is_an_expert_s(variant: Variant) -> None:
    judgement = judge(variant.label, variant.evidence().diagnosed())
    assert judgement.verdict == RIGHT, "; ".join(judgement.complaints)


def test_no_two_variants_have_one_name() -> None:
    assert len({variant.name for variant in VARIANTS}) == len(VARIANTS)
