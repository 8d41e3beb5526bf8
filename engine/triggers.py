"""Which words a line must hold before any rule can match it: a few hundred literals, looked for before anything else.

Of an ordinary log nearly no line holds one, so that nearly nothing is scanned with all patterns. A literal is chosen
for being rare in ordinary lines (rules/ordinary.txt): a wrong choice costs time and never a match.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from engine.patterns import literal, sre, sre_parse

SHORTEST, LONGEST = 4, 8
"""Characters of a trigger. The scanner takes longer steps the longer its shortest literal is."""
SHORT = 0.5
"""What each character costs that a trigger is shorter than the longest: it is less rare in lines that nobody thought
of, and makes the scanner slower.
"""
MOST_ORDINARY = 0.005
"""Share of the ordinary lines that may hold a trigger."""
ONE_DIGIT = 0.2
"""Share of the digits in ordinary lines that are a certain one: low ones are more frequent than others."""
WEIGHT = 3.0
"""What each ordinary line costs that holds a trigger."""
MOST_WORDS = 64
"""Words that one part of a pattern may stand for."""
_DIGIT = re.compile(r"\d")


class Trigger(NamedTuple):
    word: str
    any_case: bool

    @property
    def pattern(self) -> str:
        """Its form for the scanner."""
        text = "".join(literal(ord(char)) for char in self.word)
        return f"(?i){text}" if self.any_case else text


class _Pattern(NamedTuple):
    source: str
    any_case: bool
    choices: list[list[str]]
    """Of each of these lists every match holds at least one word."""


def choose(patterns: Iterable[str], ordinary: Sequence[str]) -> tuple[list[Trigger], list[str]]:
    """Triggers of which every match of the patterns holds one, and the patterns for which none are rare enough."""
    read = [_read(pattern) for pattern in dict.fromkeys(patterns)]
    common = _Common(ordinary)
    popular = Counter(
        (part, one.any_case)
        for one in read
        for part in {p for words in one.choices for w in words for p in _parts(w, one.any_case)}
    )
    chosen: set[tuple[str, bool]] = set()
    without: list[str] = []
    # The patterns with the fewest choices come first, so that others can share what they need.
    for one in sorted(read, key=lambda r: (len(r.choices), r.source)):
        best: tuple[float, list[tuple[str, bool]]] | None = None
        for words in one.choices:
            found = _cheapest(words, one.any_case, chosen, popular, common)
            if found is not None and (best is None or found[0] < best[0]):
                best = found
        if best is None:
            without.append(one.source)
        else:
            chosen.update(best[1])
    return [Trigger(*one) for one in sorted(chosen)], sorted(without)


class _Common:
    """How many ordinary lines a part of a word stands in, if their digits were any others."""

    def __init__(self, lines: Sequence[str]) -> None:
        shapes = [_DIGIT.sub("5", line) for line in lines]
        self._most = len(lines) * MOST_ORDINARY
        self._parts = Counter(part for line in shapes for part in _parts(line, False))
        self._lower = Counter(part for line in shapes for part in _parts(line, True))

    def cost(self, part: tuple[str, bool]) -> float | None:
        """What it costs to look for the part because ordinary lines hold it; None when that is too much."""
        word, any_case = part
        shape, digits = _DIGIT.subn("5", word)
        lines = (self._lower if any_case else self._parts)[shape]
        return WEIGHT * lines * ONE_DIGIT**digits if lines <= self._most else None


def _parts(word: str, any_case: bool) -> set[str]:
    word = word.lower() if any_case else word
    return {word[at : at + size] for size in range(SHORTEST, LONGEST + 1) for at in range(len(word) - size + 1)}


def _cheapest(
    words: list[str],
    any_case: bool,
    chosen: set[tuple[str, bool]],
    popular: Counter[tuple[str, bool]],
    common: _Common,
) -> tuple[float, list[tuple[str, bool]]] | None:
    """The new triggers that these words need and what they cost; None when one of them has no rare part."""
    cost, needed = 0.0, []
    for word in words:
        parts = _parts(word, any_case)
        if any((part, any_case) in chosen for part in parts):
            continue
        costs = {(part, any_case): common.cost((part, any_case)) for part in parts}
        rare = {
            part: paid + 1 / popular[part] + SHORT * (LONGEST - len(part[0]))
            for part, paid in costs.items()
            if paid is not None
        }
        if not rare:
            return None
        best = min(rare, key=lambda part: (rare[part], -len(part[0]), part))
        cost += rare[best]
        needed.append(best)
    return cost, needed


def _read(pattern: str) -> _Pattern:
    tree = sre_parse.parse(pattern)
    any_case = bool(tree.state.flags & re.IGNORECASE) or "(?i:" in pattern
    return _Pattern(pattern, any_case, _choices(list(tree)))


def _choices(items: list[Any]) -> list[list[str]]:
    """Lists of words; of each list every match holds at least one word."""
    found: list[list[str]] = []
    run: list[str] = [""]
    for op, argument in items:
        words = _words(op, argument)
        if words is not None and len(run) * len(words) <= MOST_WORDS:
            run = [head + tail for head in run for tail in words]
            continue
        # What is repeated ends one run and begins the next.
        once = _once(op, argument)
        found.append([head + tail for head in run for tail in once] if len(run) * len(once) <= MOST_WORDS else run)
        run = words if words is not None else once
        if op is sre.SUBPATTERN:
            found += _choices(list(argument[3]))
        elif op is sre.BRANCH:
            branches = [_choices(list(branch)) for branch in argument[1]]
            if all(branches):
                found.append(sorted({word for choices in branches for word in max(choices, key=_strength)}))
        elif op in (sre.MAX_REPEAT, sre.MIN_REPEAT) and argument[0] > 0:
            found += _choices(list(argument[2]))
    found.append(run)
    return [sorted(set(words)) for words in found if len(words) <= MOST_WORDS and min(map(len, words)) >= SHORTEST]


def _once(op: Any, argument: Any) -> list[str]:
    """What one of the repetitions of an item can match, when that is little and there is at least one."""
    if op in (sre.MAX_REPEAT, sre.MIN_REPEAT) and argument[0] > 0:
        return _sequence(list(argument[2])) or [""]
    return [""]


def _strength(words: list[str]) -> tuple[int, int]:
    return min(map(len, words)), -len(words)


def _words(op: Any, argument: Any) -> list[str] | None:
    """Everything that one item can match, when that is little."""
    if op is sre.LITERAL:
        return [chr(argument)]
    if op is sre.AT:
        return [""]
    if op is sre.IN:
        return _members(argument)
    if op is sre.SUBPATTERN:
        return _sequence(list(argument[3]))
    if op is sre.BRANCH:
        words: list[str] = []
        for branch in argument[1]:
            more = _sequence(list(branch))
            if more is None or len(words) + len(more) > MOST_WORDS:
                return None
            words += more
        return words
    if op in (sre.MAX_REPEAT, sre.MIN_REPEAT):
        low, high, body = argument
        once = _sequence(list(body)) if high is not sre.MAXREPEAT and high <= 2 else None
        if once is None:
            return None
        several = [_sequence([item for _ in range(times) for item in body]) for times in range(low, high + 1)]
        return None if any(s is None for s in several) else [word for s in several for word in s or []]
    return None


def _members(members: list[Any]) -> list[str] | None:
    chars: list[str] = []
    for op, argument in members:
        if op is sre.LITERAL:
            chars.append(chr(argument))
        elif op is sre.RANGE and argument[1] - argument[0] < 3:
            chars += [chr(code) for code in range(argument[0], argument[1] + 1)]
        else:
            return None
    return chars if len(chars) <= 4 else None


def _sequence(items: list[Any]) -> list[str] | None:
    words = [""]
    for op, argument in items:
        more = _words(op, argument)
        if more is None or len(words) * len(more) > MOST_WORDS:
            return None
        words = [head + tail for head in words for tail in more]
    return words
