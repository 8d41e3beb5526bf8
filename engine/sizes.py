"""Checks of the paths between nodes with packets of several sizes: a node that only small packets reach.

Jobs begin with small packets, so a path that drops large ones lets them start and stops their first large transfer.
A single pair that fails does not tell which of its ends it is; that all of one node's fail and all others pass does.
Such a check tells what would fail, not that it did: a rank must also have waited for what never came.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from engine.facts import Fact
from engine.findings import Placed
from engine.lines import printable
from engine.model import Role
from engine.origin import Places

CHECKED = "origin.path-check"
WAITED = 60.0
"""Seconds that a rank must say it waited."""
ORDINARY = 1472
"""Bytes that every Ethernet carries behind the headers of IP and ICMP."""
_PASSED = re.compile(r"\b(\d{2,5})(?: ?B| bytes)?,?(?: \(?DF\)?)?:? (\d{1,4})/(\d{1,4})\b")
_LOST = re.compile(r"\b(\d{2,5})(?: ?B| bytes)?,?(?: \(?DF\)?)?:?[ ,]{1,2}(\d{1,3})% (?:packet )?loss")
_OK = re.compile(
    r"\b(\d{2,5})(?: ?B| bytes)?,?(?: \(?DF\)?)?:? (ok|OK|pass|PASS|passed|fail|FAIL|failed|lost|timeout)\b"
)
_GOOD = frozenset({"ok", "OK", "pass", "PASS", "passed"})


def too_large(placed: Sequence[Placed], places: Places) -> list[Fact]:
    """The first line that shows it, of the one node that no large packet reaches although small ones do; for
    rules/ethernet.yaml.
    """
    if not any(p.rule.role is Role.SYMPTOM and p.elapsed >= WAITED and p.aside is None for p in placed):
        return []
    large: dict[frozenset[str], bool] = {}
    small: dict[frozenset[str], bool] = {}
    said: dict[frozenset[str], list[Placed]] = defaultdict(list)
    for one in sorted((p for p in placed if p.rule.id == CHECKED and p.aside is None), key=Placed.order):
        ends = [places.known(one.hit.captures[key]) for key in ("device", "peer")]
        pair = frozenset(end for end in ends if end is not None)
        if len(pair) < 2:
            continue
        said[pair].append(one)
        for size, passed in _results(one.hit.text):
            told = large if size > ORDINARY else small
            told[pair] = told.get(pair, True) and passed
    failing = [pair for pair, passed in large.items() if not passed]
    common = frozenset.intersection(*failing) if len(failing) > 1 else frozenset()
    if len(common) != 1 or not all(small.get(pair, False) for pair in failing):
        return []
    (node,) = common
    others = [pair for pair in large if node not in pair]
    if not others or any(node in pair and large[pair] for pair in large):
        return []
    hit = min((one for pair in failing for one in said[pair]), key=Placed.order).hit
    text = (
        f"path check: no large packet passes between {node} and {len(failing)} other nodes, small ones do: {hit.text}"
    )
    return [Fact(printable(text), hit.offset, hit.line, hit.stamp, node, "sizes", {"stream": hit.stream})]


def _results(text: str) -> list[tuple[int, bool]]:
    """Bytes of a packet, and whether any such packet passed."""
    found = [(int(size), int(got) > 0) for size, got, _ in _PASSED.findall(text)]
    found += [(int(size), int(lost) < 100) for size, lost in _LOST.findall(text)]
    return found + [(int(size), word in _GOOD) for size, word in _OK.findall(text)]
