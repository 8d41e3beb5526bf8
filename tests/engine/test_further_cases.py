"""Attempts written without knowledge of the engine, of other clusters, wordings and faults: how well it generalises.

They are not expected to be all right; nobody may be blamed falsely, and 95 of 100 must be right.
"""

from __future__ import annotations

from collections import Counter
from functools import cache

from tests.engine.judge import FALSE_BLAME, FURTHER, RIGHT, Judgement, judge_further


@cache
def verdicts() -> dict[str, Judgement]:
    return {judged.name: judged.judgement for judged in judge_further()}


def test_nobody_is_blamed_falsely() -> None:
    blamed = {name: v.complaints for name, v in verdicts().items() if v.verdict == FALSE_BLAME}
    assert blamed == {}


def test_at_least_95_of_100_are_right() -> None:
    counted = Counter(v.verdict for v in verdicts().values())
    assert counted[RIGHT] >= 0.95 * counted.total(), {
        name: v.complaints for name, v in verdicts().items() if v.verdict != RIGHT
    }


def test_every_attempt_has_its_label() -> None:
    assert {file.name.removesuffix(".tar.zst") for file in FURTHER.glob("*.tar.zst")} == set(verdicts())
    assert len(verdicts()) >= 651
