"""With less evidence the engine says less, never something else: nobody is accused because lines are missing."""

from __future__ import annotations

import random
from collections import Counter
from functools import cache
from typing import Any

import pytest

from tests.engine.evidence import Evidence, case, labels
from tests.engine.judge import FALSE_BLAME, RIGHT, judge


def label_of(name: str) -> dict[str, Any]:
    """What may be said with less evidence: the label's cause, or that the node was lost where Slurm says so."""
    label = labels()[name] | {"symptoms": []}
    if case(name).document["attempt"]["state"] == "NODE_FAIL":
        lost = {"domain": "scheduler", "sub_domain": "node_failure"}
        label["also_ok"] = [*(label.get("also_ok") or []), lost]
    return label


def thinned(evidence: Evidence, share: float, seed: str) -> Evidence:
    """Without this share of the lines of the logs, by chance."""
    chance = random.Random(seed)
    for name in [name for name in evidence.files if name.startswith(("applog/", "syslog/"))]:
        lines = evidence.files[name].splitlines(keepends=True)
        evidence.files[name] = b"".join(line for line in lines if chance.random() > share)
    return evidence


@cache
def verdict(name: str, share: float) -> str:
    return judge(label_of(name), thinned(case(name), share, f"{name} {share}").diagnosed()).verdict


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("name", sorted(labels()))
def test_lines_that_are_missing_accuse_nobody(name: str, share: float) -> None:
    assert verdict(name, share) != FALSE_BLAME


SOURCES = sorted({(name, file.split("/")[0]) for name in labels() for file in case(name).files})


@pytest.mark.parametrize(("name", "folder"), SOURCES)
def test_a_source_that_is_missing_accuses_nobody(name: str, folder: str) -> None:
    found = case(name).without_files(f"{folder}/*").diagnosed()
    assert judge(label_of(name), found).verdict != FALSE_BLAME


def test_a_third_of_the_lines_is_not_much_missed() -> None:
    verdicts = Counter(verdict(name, 0.3) for name in labels())
    assert verdicts[RIGHT] >= 0.85 * len(labels())


@pytest.mark.parametrize("name", sorted(labels()))
def test_nothing_but_the_scheduler_s_word_blames_no_node_for_what_it_cannot_know(name: str) -> None:
    evidence = case(name)
    evidence.files = {}
    found = evidence.diagnosed()
    assert found.domain in ("unattributed", "scheduler", labels()[name]["domain"])
    assert found.root_cause is None or found.root_cause.nodes == ()
