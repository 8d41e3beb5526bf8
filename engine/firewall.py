"""Connections that a firewall turned away: what a rank could not reach, beside the packets that a kernel logged.

Either alone says little. Ranks fail to connect to a peer that is gone, and firewalls turn away strangers all day. The
same address and port in both is the one's reason for the other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from engine.facts import Fact
from engine.findings import Placed
from engine.lines import printable
from engine.model import Role, Source
from engine.origin import Places

PACKET = "firewall.packet"
TOGETHER = 60.0
"""Seconds between a packet turned away and the words of the rank that sent it, where no port is told."""

_PORT = r"{}[\])\s]{{0,2}}(?:<|, ?|:)(\d{{2,5}})\b"
_IN_PEER = re.compile(r"(?:<|:)(\d{2,5})\b")
_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")


class Refusal(msgspec.Struct, frozen=True):
    """A connection that a rank did not get."""

    node: str | None
    to_node: str | None
    address: str | None
    port: str | None
    at: float | None


def turned_away(placed: Sequence[Placed], places: Places) -> list[Fact]:
    """For each node whose firewall turned a rank's connection away the first such packet, for rules/firewall.yaml."""
    packets = [one for one in placed if one.rule.id == PACKET and one.aside is None and one.node]
    refusals = [refusal for one in placed if packets and (refusal := _refusal(one)) is not None]
    first: dict[str, Placed] = {}
    for packet in sorted(packets, key=Placed.order):
        if packet.node and packet.node not in first and any(_same(packet, refusal, places) for refusal in refusals):
            first[packet.node] = packet
    return [_fact(node, packet) for node, packet in sorted(first.items())]


def _refusal(one: Placed) -> Refusal | None:
    peer = one.hit.captures.get("peer")
    failed = one.rule.role in (Role.SYMPTOM, Role.EITHER) and one.hit.source is Source.APPLOG
    if not peer or not failed or one.aside is not None:
        return None
    address = _ADDRESS.search(peer)
    port = _IN_PEER.search(peer) or re.search(_PORT.format(re.escape(peer)), one.hit.text)
    at = one.at if one.hit.inherited is None else None
    return Refusal(one.node, one.peer, address[0] if address else None, port[1] if port else None, at)


def _same(packet: Placed, refusal: Refusal, places: Places) -> bool:
    captures = packet.hit.captures
    there = refusal.address == captures["to"] or (refusal.to_node is not None and refusal.to_node == packet.node)
    if not there:
        return False
    if refusal.port == captures["port"]:
        return True
    sender = places.ips.get(captures["peer"])
    times = packet.at is not None and refusal.at is not None and abs(packet.at - refusal.at) <= TOGETHER
    return refusal.port is None and sender is not None and sender == refusal.node and times


def _fact(node: str, packet: Placed) -> Fact:
    captures = packet.hit.captures
    text = (
        f"firewall turned away: node={node} port={captures['port']} from={captures['peer']} to={captures['to']} "
        f"by {captures.get('rule', '?').strip()}: {packet.hit.text}"
    )
    hit = packet.hit
    return Fact(printable(text), hit.offset, hit.line, hit.stamp, node, "firewall", {"stream": hit.stream})
