"""Labelled attempts: the engine says what a careful expert says."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from tests.engine.evidence import case, labels
from tests.engine.judge import FALSE_BLAME, RIGHT, Judgement, judge, line_templates, report


@cache
def judged(name: str) -> Judgement:
    return judge(labels()[name], case(name).diagnosed())


@pytest.mark.parametrize("name", sorted(labels()))
def test_domain_sub_domain_and_nodes_are_those_of_the_label(name: str) -> None:
    judgement = judged(name)
    assert judgement.verdict == RIGHT, "; ".join(judgement.complaints)


@pytest.mark.parametrize("name", sorted(labels()))
def test_outcome_is_the_label_s_and_symptoms_are_kept(name: str) -> None:
    assert judged(name).complaints == ()


def test_nobody_is_blamed_falsely_and_at_least_95_of_100_are_right() -> None:
    verdicts = Counter(judged(name).verdict for name in labels())
    assert verdicts[FALSE_BLAME] == 0
    assert verdicts[RIGHT] >= 0.95 * len(labels())


def test_no_label_is_stored_with_the_evidence_that_it_belongs_to() -> None:
    for name in labels():
        evidence = case(name)
        assert "expected.yaml" not in evidence.files
        assert evidence.files, name


def test_every_case_has_its_label_and_every_label_its_case() -> None:
    from tests.engine.evidence import CASES

    assert {file.name.removesuffix(".tar.zst") for file in CASES.glob("*.tar.zst")} == set(labels())


def test_line_templates_leave_numbers_and_hosts_aside() -> None:
    one = case("sw-port-in-use")
    assert 20 < len(line_templates([one])) == len(line_templates([one, one]))


def test_the_account_counts_every_attempt_once() -> None:
    from tests.engine.judge import Judged

    made = [Judged(name, labels()[name], judged(name)) for name in labels()]
    assert f"| **all** | {len(made)} | {len(made)} | 0 | 0 |" in report(made)
