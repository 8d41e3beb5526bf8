"""A fabric that fails under everybody: file systems and ranks that go by it lose their connections at the same time.

A file server that is gone lets ranks wait, but takes no connection between two of them away; a rank that died takes no
file system away. Where many nodes lose both at once, and no rank had failed before, it is what carries both.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from engine.facts import Fact
from engine.findings import Placed
from engine.lines import printable
from engine.model import Role, Source
from engine.shared import AT_ONCE, MANY

FAILED_BEFORE = 180.0
"""Seconds before the first lost connection in which a rank's own failure may be why its peers lost theirs."""

_OUT_OF_RETRIES = "12"
_OVER_RDMA = re.compile(r"@o2ib\d*\b|\bRDMA\b|\brpcrdma\b")


def lost(placed: Sequence[Placed]) -> list[Fact]:
    """That the fabric was lost, said of the first file system that lost it; for rules/ib.yaml."""
    timed = [one for one in placed if one.at is not None and one.aside is None]
    mounts = [one for one in timed if _of_a_mount(one)]
    ranks = [one for one in timed if _of_a_rank(one)]
    if not mounts or not ranks:
        return []
    began = min(mounts, key=Placed.order)
    first = began.at or 0.0
    mounts, ranks = ([one for one in some if abs((one.at or 0.0) - first) <= AT_ONCE] for some in (mounts, ranks))
    nodes, peers = {one.node for one in mounts if one.node}, {one.node for one in ranks if one.node}
    if len(nodes) < MANY or len(peers) < MANY or any(_failed_before(one, first) for one in timed):
        return []
    text = f"fabric lost: file systems of {len(nodes)} nodes and ranks of {len(peers)} lost their connections at once: "
    hit = began.hit
    return [Fact(printable(text + hit.text), hit.offset, hit.line, hit.stamp, None, "fabric", {"stream": hit.stream})]


def _of_a_mount(one: Placed) -> bool:
    """Does a node's system log tell of a file system that lost its server, by way of RDMA?"""
    shared = one.rule.sub_domain == "shared_filesystem" or one.rule.id == "ib.transport-retry"
    return shared and one.hit.source is Source.SYSLOG and bool(_OVER_RDMA.search(one.hit.text))


def _of_a_rank(one: Placed) -> bool:
    """Did a rank's connection run out of retries? That a peer is gone at once looks otherwise."""
    captures, rule = one.hit.captures, one.rule.id
    by_status = rule == "nccl.ib-completion-error" and captures.get("status") == _OUT_OF_RETRIES
    return one.hit.source is Source.APPLOG and (by_status or rule == "ib.transport-retry")


def _failed_before(one: Placed, first: float) -> bool:
    own = one.hit.source is Source.APPLOG and one.hit.inherited is None and one.rule.role in (Role.CAUSE, Role.EITHER)
    return own and first - FAILED_BEFORE <= (one.at or 0.0) < first and one.rule.domain != "network"
