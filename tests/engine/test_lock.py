"""rules.lock: what a rule says changes only together with its version, and no id is used again."""

from __future__ import annotations

import pytest

from engine.ruleset import BUILTIN, lock_text
from tests.engine.evidence import ruleset

LOCK = BUILTIN / "rules.lock"
COMMAND = "python -m engine rules lock"
pytestmark = pytest.mark.skipif(not LOCK.exists(), reason="rules are not locked yet")

Locked = dict[str, tuple[int, str, str]]


def read(text: str) -> Locked:
    """Rule -> version, status and hash of its content."""
    rows = [line.split() for line in text.splitlines()]
    return {row[0]: (int(row[1]), row[2], row[3]) for row in rows}


@pytest.fixture(scope="module")
def locked() -> Locked:
    return read(LOCK.read_text())


@pytest.fixture(scope="module")
def current() -> Locked:
    return read(lock_text(ruleset()))


def test_changed_content_has_a_new_version(locked: Locked, current: Locked) -> None:
    both = locked.keys() & current.keys()
    silent = [
        rule for rule in sorted(both) if current[rule][2] != locked[rule][2] and current[rule][0] <= locked[rule][0]
    ]
    assert not silent, f"raise their version, then run {COMMAND}: {', '.join(silent)}"


def test_the_lock_is_up_to_date(locked: Locked, current: Locked) -> None:
    changed = sorted(rule for rule in current if locked.get(rule) != current[rule])
    assert not changed, f"run {COMMAND}: {', '.join(changed)}"


def test_no_rule_vanishes_it_is_retired(locked: Locked, current: Locked) -> None:
    gone = sorted(locked.keys() - current.keys())
    assert not gone, f"keep them with status: retired, so that their ids are never used again: {', '.join(gone)}"


def test_a_retired_rule_stays_retired(locked: Locked, current: Locked) -> None:
    woken = [rule for rule, (_, status, _) in locked.items() if status == "retired" and current[rule][1] != "retired"]
    assert not woken
