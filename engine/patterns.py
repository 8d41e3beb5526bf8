"""Rewrites a rule's regex for the linear-time scanner, and refuses what cannot run in linear time.

The scanner (hyperscan) reads raw bytes of many lines at once and reports where a match ends. So that it stays fast
and never matches across lines, a pattern is parsed with the standard library's own parser and written out again
with these changes:

- anchors are dropped (a line still has its envelope there); the match is confirmed on the cleaned line with ``re``
  later;
- ``.``, ``\\s`` and negated sets never match a line end;
- leading and trailing repeats shrink to their minimum: a pattern that ends in ``.*`` would report every byte of the
  line;
- group names vanish.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

# The parser of `re` has no public name; its tree is stable from Python 3.11 on.
sre: Any = import_module("re._constants")
sre_parse: Any = import_module("re._parser")

_CATEGORIES = {
    sre.CATEGORY_DIGIT: r"0-9",
    sre.CATEGORY_WORD: r"A-Za-z0-9_",
    sre.CATEGORY_SPACE: r"\x20\t\r\f\x0b",  # to the scanner \v would be every vertical space, line ends too
}
_NEGATED_CATEGORIES = {
    sre.CATEGORY_NOT_DIGIT: r"\x00-\x09\x0b-\x2f\x3a-\xff",
    sre.CATEGORY_NOT_SPACE: r"\x00-\x08\x0e-\x1f\x21-\xff",
    sre.CATEGORY_NOT_WORD: r"\x00-\x09\x0b-\x2f\x3a-\x40\x5b-\x5e\x60\x7b-\xff",
}
_LONGEST_REPEAT = 2_000
_ANCHORS = {
    sre.AT_BEGINNING: "^",
    sre.AT_BEGINNING_STRING: "^",
    sre.AT_END: r"\r?$",
    sre.AT_END_STRING: r"\r?$",
    sre.AT_BOUNDARY: r"\b",
    sre.AT_NON_BOUNDARY: r"\B",
}
"""What an anchor becomes in a search: of the line, since the scanner sees many."""


class PatternError(ValueError):
    """The pattern cannot be used; the message says why."""


def to_scanner(pattern: str) -> str:
    """Return the scanner's form of `pattern` (a Python regex). Raises PatternError."""
    try:
        tree = sre_parse.parse(pattern)
    except re.error as error:
        raise PatternError(f"not a valid regex: {error}") from None
    items = _trim(list(tree), leading=True)
    text = _emit(items)
    if not text or _min_width(items) == 0:
        raise PatternError("matches the empty string")
    return f"(?i){text}" if tree.state.flags & re.IGNORECASE else text


def to_search(pattern: str) -> str:
    """The scanner's form of a regex that a person searches a log with, for a multi-line scan of many lines at once.

    Unlike a rule's pattern nothing confirms the match later, so anchors stay and nothing is trimmed. Raises
    PatternError, also for what cannot run in linear time.
    """
    try:
        tree = sre_parse.parse(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise PatternError(f"not a valid regex: {error}") from None
    items = list(tree)
    text = _emit(items, anchors=True)
    if not text or _min_width(items) == 0:
        raise PatternError("matches the empty string")
    return f"(?i){text}" if tree.state.flags & re.IGNORECASE else text


def ends_unbounded(pattern: str) -> bool:
    """Does a match go on to the end of the line, whatever stands there?"""
    return _ends_unbounded(list(sre_parse.parse(pattern)))


def _ends_unbounded(items: list[Any]) -> bool:
    items = [item for item in items if item[0] is not sre.AT]
    if not items:
        return False
    op, argument = items[-1]
    if op is sre.SUBPATTERN:
        return _ends_unbounded(list(argument[3]))
    if op is sre.BRANCH:
        return any(_ends_unbounded(list(branch)) for branch in argument[1])
    if op in (sre.MAX_REPEAT, sre.MIN_REPEAT):
        is_any = len(argument[2]) == 1 and argument[2][0][0] is sre.ANY
        return (argument[1] is sre.MAXREPEAT and is_any) or _ends_unbounded(list(argument[2]))
    return False


def to_ripgrep(pattern: str) -> str:
    """The pattern as ripgrep takes it among many: without names, which may stand only once, and with its own flags."""
    plain = re.sub(r"\\.|\(\?P<\w+>", lambda found: found[0] if found[0][0] == "\\" else "(?:", pattern)
    return f"(?i:{plain[4:]})" if plain.startswith("(?i)") else plain


def first_characters(pattern: str) -> frozenset[str]:
    """The ASCII characters that a match can begin with."""
    return frozenset(_first(list(sre_parse.parse(pattern)))[0])


def _first(items: list[Any]) -> tuple[set[str], bool]:
    """What the items can begin with, and whether they can be empty."""
    found: set[str] = set()
    for op, argument in items:
        if op in (sre.AT, sre.ASSERT, sre.ASSERT_NOT):
            continue
        more, is_empty = _first_of(op, argument)
        found |= more
        if not is_empty:
            return found, False
    return found, True


def _first_of(op: Any, argument: Any) -> tuple[set[str], bool]:
    if op is sre.SUBPATTERN:
        return _first(list(argument[3]))
    if op is sre.BRANCH:
        branches = [_first(list(branch)) for branch in argument[1]]
        return set().union(*(more for more, _ in branches)), any(is_empty for _, is_empty in branches)
    if op in (sre.MAX_REPEAT, sre.MIN_REPEAT):
        more, is_empty = _first(list(argument[2]))
        return more, is_empty or argument[0] == 0
    one = re.compile(f"[{_emit_set(argument)[1:-1]}]" if op is sre.IN else _emit_one(op, argument, False))
    return {char for char in map(chr, range(128)) if one.match(char)}, False


def longest_literal(pattern: str) -> int:
    """Length of the longest run of literal characters that every match must contain (0 when there is none)."""
    return _longest_literal(list(sre_parse.parse(pattern)))


def _longest_literal(items: list[Any]) -> int:
    best = run = 0
    for op, argument in items:
        if op is sre.LITERAL:
            run += 1
            best = max(best, run)
            continue
        run = 0
        if op is sre.SUBPATTERN:
            best = max(best, _longest_literal(list(argument[3])))
        elif op is sre.BRANCH:
            best = max(best, min(_longest_literal(list(branch)) for branch in argument[1]))
        elif op in (sre.MAX_REPEAT, sre.MIN_REPEAT) and argument[0] > 0:
            best = max(best, _longest_literal(list(argument[2])))
    return best


def _min_width(items: list[Any]) -> int:
    width = 0
    for op, argument in items:
        if op is sre.AT:
            continue
        if op in (sre.MAX_REPEAT, sre.MIN_REPEAT):
            width += argument[0] * _min_width(list(argument[2]))
        elif op is sre.SUBPATTERN:
            width += _min_width(list(argument[3]))
        elif op is sre.BRANCH:
            width += min(_min_width(list(branch)) for branch in argument[1])
        else:
            width += 1
    return width


def _trim(items: list[Any], *, leading: bool) -> list[Any]:
    """Shrink repeats at the end (and the beginning) to their minimum; drop anchors there."""
    while items:
        op, argument = items[-1]
        if op is sre.AT and argument is not sre.AT_BOUNDARY:
            items.pop()
        elif op in (sre.MAX_REPEAT, sre.MIN_REPEAT):
            low, _, body = argument
            if low == 0:
                items.pop()
                continue
            items[-1] = (sre.MAX_REPEAT, (low, low, body))
            break
        elif op is sre.SUBPATTERN:
            group, add, remove, body = argument
            inner = _trim(list(body), leading=False)
            if not inner:
                items.pop()
                continue
            items[-1] = (sre.SUBPATTERN, (group, add, remove, inner))
            break
        else:
            break
    while leading and items:
        op, argument = items[0]
        is_anchor = op is sre.AT and argument is not sre.AT_BOUNDARY
        is_optional = op in (sre.MAX_REPEAT, sre.MIN_REPEAT) and argument[0] == 0
        if not (is_anchor or is_optional):
            break
        items.pop(0)
    return items


def _emit(items: list[Any], *, anchors: bool = False) -> str:
    return "".join(_emit_one(op, argument, anchors) for op, argument in items)


def _emit_one(op: Any, argument: Any, anchors: bool) -> str:
    if op is sre.LITERAL:
        if anchors and argument == 0x0A:
            raise PatternError("names a line end; a search stays within a line")
        return literal(argument)
    if op is sre.NOT_LITERAL:
        return f"[^{_set_literal(argument)}\\n]"
    if op is sre.ANY:
        return r"[^\n]"
    if op is sre.IN:
        return _emit_set(argument)
    if op is sre.BRANCH:
        return "(?:" + "|".join(_emit(list(branch), anchors=anchors) for branch in argument[1]) + ")"
    if op is sre.SUBPATTERN:
        _, add, remove, body = argument
        if remove or add & ~re.IGNORECASE:
            raise PatternError("inline flags other than (?i) are not supported")
        return ("(?i:" if add & re.IGNORECASE else "(?:") + _emit(list(body), anchors=anchors) + ")"
    if op in (sre.MAX_REPEAT, sre.MIN_REPEAT):
        return _emit_repeat(argument, anchors)
    if op is sre.AT:
        return _ANCHORS.get(argument, "") if anchors else r"\b" if argument is sre.AT_BOUNDARY else ""
    names = {
        "ASSERT": "look-around",
        "ASSERT_NOT": "look-around",
        "GROUPREF": "a back-reference",
        "ATOMIC_GROUP": "an atomic group",
        "POSSESSIVE_REPEAT": "a possessive repeat",
        "GROUPREF_EXISTS": "a conditional",
    }
    raise PatternError(f"uses {names.get(str(op), str(op))}, which cannot run in linear time")


def _emit_repeat(argument: Any, anchors: bool) -> str:
    low, high, body = argument
    inner = _emit(list(body), anchors=anchors)
    if not inner:
        return ""
    if len(body) != 1 or body[0][0] not in (sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN, sre.SUBPATTERN):
        inner = f"(?:{inner})"
    if high is not sre.MAXREPEAT and high > _LONGEST_REPEAT:
        raise PatternError(f"repeats up to {high} times; at most {_LONGEST_REPEAT}")
    if (low, high) == (0, sre.MAXREPEAT):
        return inner + "*"
    if (low, high) == (1, sre.MAXREPEAT):
        return inner + "+"
    if (low, high) == (0, 1):
        return inner + "?"
    if low == high == 1:
        return inner
    return f"{inner}{{{low},{'' if high is sre.MAXREPEAT else high}}}"


def _emit_set(members: list[Any]) -> str:
    negate = members[0][0] is sre.NEGATE
    parts = []
    for op, argument in members[1:] if negate else members:
        if op is sre.LITERAL:
            parts.append(_set_literal(argument))
        elif op is sre.RANGE:
            low, high = argument
            if high > 0x7F:
                raise PatternError("a character range beyond ASCII is not supported")
            parts.append(f"{_set_literal(low)}-{_set_literal(high)}")
        elif op is sre.CATEGORY:
            parts.append(_CATEGORIES.get(argument) or _NEGATED_CATEGORIES[argument])
    return f"[^{''.join(parts)}\\n]" if negate else f"[{''.join(parts)}]"


def literal(code: int) -> str:
    char = chr(code)
    if char.isalnum() and code < 0x80:
        return char
    return "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogatepass"))


def _set_literal(code: int) -> str:
    if code > 0x7F:
        raise PatternError("a character beyond ASCII inside [...] is not supported")
    return literal(code)
