"""Servers that Kubernetes ended while they were still loading: their probe gives up sooner than they can be ready.

A server that hangs, or that died of something else, fails its probe as well. That it loaded on until it was ended is
what tells the two apart.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from engine.facts import Fact
from engine.findings import Placed

FAILED = "k8s.probe-failed"
LOADING = "serving.loading"
AROUND = 120.0
"""Seconds between what it loaded last and its end: so long may one part take, or its end be put off."""
_ENDED = re.compile(r"failed (?P<probe>liveness|startup) probe, will be restarted")


def still_loading(placed: Sequence[Placed]) -> list[Fact]:
    """Of each log: how far the server was when its probe gave up, where it was not ready."""
    ends = [
        (one.at, found["probe"])
        for one in placed
        if one.rule.id == FAILED and one.aside is None and one.at is not None and (found := _ENDED.search(one.hit.text))
    ]
    if not ends:
        return []
    last_of: dict[str, Placed] = {}
    for one in placed:
        if one.rule.id == LOADING and one.aside is None:
            last = last_of.setdefault(one.hit.stream, one)
            last_of[one.hit.stream] = max(last, one, key=lambda bar: bar.hit.offset)
    facts = []
    for stream, last in sorted(last_of.items()):
        told = None if last.at is None or last.hit.inherited is not None else last.at
        probes = [probe for at, probe in ends if told is not None and abs(at - told) <= AROUND]
        if probes and float(last.hit.captures["percent"]) < 100:
            what = " ".join(last.hit.captures["what"].split()).rstrip(" :(")
            text = f"serving ended: {what} was at {last.hit.captures['percent']} % when the {min(probes)} probe gave up"
            place = {"stream": stream}
            facts.append(Fact(text, last.hit.offset, last.hit.line, last.hit.stamp, last.node, "serving", place))
    return facts
