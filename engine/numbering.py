"""Which pattern of which rule a number stands for that the scanner tells."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from engine.rule import Matcher


class Numbering:
    """Numbers the patterns of rules, in their order."""

    def __init__(self, matchers: Sequence[Matcher]) -> None:
        self.patterns = [pattern for matcher in matchers for pattern in matcher.spec.patterns]
        """Number -> the pattern."""
        self._places = [(n, place) for n, matcher in enumerate(matchers) for place in range(len(matcher.spec.patterns))]

    def matchers_of(self, numbers: Iterable[int]) -> dict[int, list[int]]:
        """Number of a matcher -> places of its patterns, both ascending; other numbers are left out."""
        found: dict[int, list[int]] = {}
        for number in sorted(numbers):
            if number < len(self._places):
                matcher, place = self._places[number]
                found.setdefault(matcher, []).append(place)
        return found

    def matcher_of(self, number: int) -> int | None:
        return self._places[number][0] if number < len(self._places) else None
