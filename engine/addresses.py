"""Addresses that ranks gave to their peers although no peer can reach them: a bridge's, the loop's, one that several
nodes have alike.

A library that is not told which interface to use takes the first that is up. That such an address was chosen says
little: nobody of another node may have needed it. That a rank could not connect to this very address is the other half.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from engine.facts import Fact
from engine.findings import Placed
from engine.lines import printable
from engine.model import Role, Source
from engine.origin import Places

CHOSEN = "origin.nccl-address"
NO_PEER_NAMED = "nccl.connect-failed"
"""Newer NCCL says that a connection was refused, and not by whom."""

_LOCAL = re.compile(r"(?:lo|docker|virbr|podman|lxcbr|lxdbr|cni|br-|veth|usb|cdc|idrac)[\w.-]*\Z")
"""Interfaces that lead to no other node."""
_LOCAL_ADDRESS = re.compile(r"127\.|169\.254\.")
_LOOP = re.compile(r"(?i)\bconnect(?:ing)?(?: to)?\b.{0,24}?[\[( ](localhost|127\.\d{1,3}\.\d{1,3}\.\d{1,3}|::1)\b")
_MISSED = frozenset({"nccl.connect-failed", "pytorch.gloo-connection", "pytorch.connect-timeout"})
_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")


def out_of_reach(placed: Sequence[Placed], places: Places) -> list[Fact]:
    """The first failed connection to an address that leads to no other node, for rules/nccl.yaml."""
    if len(places.attempt.nodes) < 2:
        return []
    chosen = {
        p.hit.captures["ip"]: p.hit.captures.get("interface", "?")
        for p in placed
        if p.rule.id == CHOSEN and p.aside is None
    }
    useless = {ip: why for ip, interface in chosen.items() if (why := _leads_nowhere(ip, interface, places))}
    for one in sorted(placed, key=Placed.order) if useless else ():
        if one.rule.role not in (Role.SYMPTOM, Role.EITHER) or one.hit.source is not Source.APPLOG or one.aside:
            continue
        address = _ADDRESS.search(one.hit.captures.get("peer", ""))
        ip = address[0] if address else None
        if one.rule.id == NO_PEER_NAMED and "peer" not in one.hit.captures and len(useless) == len(chosen) > 0:
            ip = min(useless)  # whoever it was, no rank gave another kind of address
        if ip not in useless:
            continue
        text = f"network address: ranks gave {ip} of {chosen[ip]} to their peers, but {useless[ip]}: {one.hit.text}"
        hit = one.hit
        return [Fact(printable(text), hit.offset, hit.line, hit.stamp, one.node, "nccl", {"stream": hit.stream})]
    return _at_home(placed, places)


def _leads_nowhere(ip: str, interface: str, places: Places) -> str | None:
    """Why no other node can reach the address; None when nothing says so."""
    nodes = places.claimed.get(ip, ())
    if len(nodes) > 1:
        return f"{len(nodes)} nodes have it alike"
    return "it leads to no other node" if _LOCAL.match(interface) or _LOCAL_ADDRESS.match(ip) else None


def _at_home(placed: Sequence[Placed], places: Places) -> list[Fact]:
    """A rank that looked for the first one, which is on another node, at its own node's loop."""
    for one in sorted((p for p in placed if p.rule.id in _MISSED and p.aside is None), key=Placed.order):
        to, node = _LOOP.search(one.hit.text), places.known(one.node)
        if to and node is not None and node != places.ranks.get(0):
            text, hit = f"own address for another node: {to[1]} on {node}: {one.hit.text}", one.hit
            return [Fact(printable(text), hit.offset, hit.line, hit.stamp, node, "nccl", {"stream": hit.stream})]
    return []
