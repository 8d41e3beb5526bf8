"""A line that a rule can match holds a trigger; ordinary lines hold none."""

from __future__ import annotations

import re

import pytest

from engine import ordinary, triggers
from engine.diagnose import scanner_of
from tests.engine.evidence import case, labels, ruleset


def has_trigger(line: bytes) -> bool:
    return bool(scanner_of(ruleset()).triggers.found_in(line))


def may_match(line: bytes) -> bool:
    return bool(scanner_of(ruleset()).database.found_in(line))


def test_every_example_of_every_rule_holds_a_trigger() -> None:
    lines = [e.line.encode() for m in ruleset().line_matchers for e in m.spec.examples.match]
    assert len(lines) > 600
    assert [line for line in lines if may_match(line) and not has_trigger(line)] == []


@pytest.mark.parametrize("name", sorted(labels()))
def test_every_line_that_a_pattern_matches_holds_a_trigger(name: str) -> None:
    lines = {line for content in case(name).files.values() for line in content.split(b"\n")}
    assert [line for line in lines if may_match(line) and not has_trigger(line)] == []


def test_few_ordinary_lines_hold_a_trigger() -> None:
    lines = [line for line in ordinary.PATH.read_bytes().splitlines() if not may_match(line)]
    assert len(lines) > 500
    assert sum(map(has_trigger, lines)) < 0.02 * len(lines)


PATTERNS = [
    r"NVRM: Xid \((?:PCI:)?(?P<device>[0-9a-f:.]+)\): 149, .*",
    r"(?i)\bloss is (?:nan|inf)\b",
    r"(?:Error|Failure): (?:disk|drive) full",
    r"[Ll]ink (?:is )?(?:DOWN|[Dd]own)",
    r"(?:watchdog )?timed? ?out after \d+ s",
    r"(?:ab){2}cd(?:ef)?gh",
    r"x{4,}y",
]
MATCHING = [
    "NVRM: Xid (PCI:0000:61:00): 149, NETIR",
    "Loss is NaN at step 3",
    "Failure: drive full",
    "link Down",
    "Link is DOWN",
    "watchdog timed out after 5 s",
    "timeout after 5 s",
    "ababcdgh",
    "xxxxxxy",
]


def test_a_match_always_holds_one_of_the_words_that_are_chosen() -> None:
    chosen, without = triggers.choose(PATTERNS, [])
    for line in MATCHING:
        assert any(re.search(pattern, line) for pattern in PATTERNS)
        held = any(t.word in (line.lower() if t.any_case else line) for t in chosen)
        assert held or any(re.search(pattern, line) for pattern in without), line


def test_words_of_ordinary_lines_are_not_chosen() -> None:
    ordinary = ["lm loss: 2.31 | number of skipped iterations: 0"] * 200
    chosen, without = triggers.choose([r"skipped iterations: [1-9]\d+ in a row", r"(?i)number of \d+"], ordinary)
    assert chosen and all(t.word not in ordinary[0] for t in chosen)
    assert without == [r"(?i)number of \d+"]


def test_what_is_chosen_does_not_depend_on_the_order_of_the_patterns() -> None:
    assert triggers.choose(PATTERNS, ["a line"]) == triggers.choose(list(reversed(PATTERNS)), ["a line"])


def test_a_trigger_is_written_for_the_scanner() -> None:
    assert triggers.Trigger("a b.", False).pattern == r"a\x20b\x2e"
    assert triggers.Trigger("nan", True).pattern == "(?i)nan"
