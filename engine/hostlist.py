"""Lists of hosts as Slurm writes them: `node-[01-04,07],login1` to names and back."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import product

MOST = 100_000
"""Names that one list may stand for: more is a mistake, or meant to do harm."""
LONGEST = 255
"""Characters of a name, as DNS allows: numbers with zeros before them, and many names of much text, would be large."""
_ITEM = re.compile(r"([0-9]+)(?:-([0-9]+))?")
_NUMBERED = re.compile(r"(.*?)([0-9]+)")


class BadHostlist(ValueError):
    """The list can't be read; says what is wrong with it."""


def expand_hostlist(text: str, *, allow_duplicates: bool = False, most: int = MOST) -> list[str]:
    """Every name in the order of the list, each once unless duplicates are allowed. Raises BadHostlist, also for more
    names than `most`.
    """
    found: list[str] = []
    for part in _parts(text):
        found += _expanded(part, most - len(found))
    return found if allow_duplicates else list(dict.fromkeys(found))


def collect_hostlist(names: Iterable[str]) -> str:
    """The shortest usual form: sorted, numbers at the ends of names as ranges. Raises BadHostlist."""
    found: list[str] = []
    numbered: dict[str, list[str]] = {}
    for name in sorted(set(names)):
        if not name or re.search(r"[\[\],\s]", name):
            raise BadHostlist(f"no name of a host: {name!r}")
        match = _NUMBERED.fullmatch(name)
        if match is None:
            found.append(name)
        else:
            numbered.setdefault(match[1], []).append(match[2])
    for prefix, numbers in numbered.items():
        ranges = list(_ranges(sorted(numbers, key=lambda text: (int(text), len(text)))))
        single = len(ranges) == 1 and "-" not in ranges[0]
        found.append(prefix + (ranges[0] if single else f"[{','.join(ranges)}]"))
    return ",".join(sorted(found))


def _ranges(numbers: list[str]) -> Iterator[str]:
    first = last = numbers[0]
    for number in numbers[1:]:
        if number == f"{int(last) + 1:0{len(first)}}":
            last = number
            continue
        yield first if first == last else f"{first}-{last}"
        first = last = number
    yield first if first == last else f"{first}-{last}"


def _parts(text: str) -> Iterator[str]:
    """What stands between commas that are in no bracket."""
    depth = begin = 0
    for at, character in enumerate(text):
        if character == "[":
            depth += 1
        elif character == "]":
            depth -= 1
        elif character == "," and depth == 0:
            if begin < at:
                yield text[begin:at]
            begin = at + 1
        if not 0 <= depth <= 1:
            raise BadHostlist("brackets within brackets" if depth > 1 else "a bracket that nothing opens")
    if depth:
        raise BadHostlist("a bracket that nothing closes")
    if begin < len(text):
        yield text[begin:]


def _expanded(part: str, most: int) -> list[str]:
    pieces = re.split(r"\[([^\]]*)\]", part)  # plain, inside, plain, inside, ..., plain
    choices = [[piece] if number % 2 == 0 else _numbers(piece) for number, piece in enumerate(pieces)]
    size = 1
    for choice in choices:
        size *= len(choice)
    if sum(max(map(len, choice)) for choice in choices) > LONGEST:
        raise BadHostlist(f"a name of more than {LONGEST} characters")
    if size > most:
        raise BadHostlist(f"more than {MOST} names")
    return ["".join(chosen) for chosen in product(*choices)]


def _numbers(inside: str) -> list[str]:
    """`01-03,7`: each as it is written, with the zeros of the first of a range."""
    found: list[str] = []
    for item in inside.split(","):
        match = _ITEM.fullmatch(item)
        if match is None or len(item) > LONGEST:
            raise BadHostlist(f"no number and no range: {item[:40]!r}")
        low, high = int(match[1]), int(match[2] or match[1])
        if high < low:
            raise BadHostlist(f"a range that ends before it begins: {item[:40]}")
        if high - low >= MOST - len(found):
            raise BadHostlist(f"more than {MOST} names")
        found += [f"{number:0{len(match[1])}}" for number in range(low, high + 1)]
    return found
