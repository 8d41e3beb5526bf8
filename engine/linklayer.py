"""What a port of the job's network is: InfiniBand, RoCE or plain Ethernet.

Adapters of both worlds share a driver and most of its words, and RoCE is Ethernet that RDMA is used on. So rules that
are `layered` leave it open, and the rest of the evidence decides: how NCCL lists the node's devices, whether it uses
them or sockets, how the kernel calls the port.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache

import msgspec

from engine.findings import Placed
from engine.model import Source
from engine.origin import Places, normal_device
from engine.rule import Rule
from engine.scan import StreamScan

INFINIBAND, ROCE, ETHERNET = "infiniband", "roce", "ethernet"
NAMES = {INFINIBAND: "InfiniBand", ROCE: "RoCE", ETHERNET: "Ethernet"}
TELLS = "origin.link-layer"
_LISTED = re.compile(r"\b(\w+):\d+/(IB|RoCE)\b", re.IGNORECASE)
_GID = re.compile(r"\blocalGid \S+.{0,200}? hca (\w+)|\blocalGid \S")
_LAYER = re.compile(r"(?i)\blink[_ ]layer:?\s+(infiniband|ethernet)")
_SOCKET = re.compile(r"NET/Socket ?: Using|Using network Socket")
_PORT = re.compile(r"\bmlx[45]_core ([0-9a-fA-F:]+\.\d) (\w+)(?: \S+)?: ")
_TITLE = re.compile(r"\b(?:InfiniBand|RoCE|Ethernet)\b")
_OF_A_HCA = re.compile(r"(?:mlx[45]|bnxt_re|irdma|rocep|rdmap|ib|hfi1|erdma)\w*")


class Layers:
    """What was told of the ports of the job's nodes."""

    def __init__(self, scans: Iterable[StreamScan], places: Places) -> None:
        self._named: dict[tuple[str | None, str], set[str]] = defaultdict(set)
        """Node and adapter, and the adapter at any node -> what it is said to be."""
        self._guessed: dict[tuple[str | None, str], set[str]] = defaultdict(set)
        """The same, by addresses that mostly, but not always, only RoCE's connections are told with."""
        self._ports: dict[tuple[str | None, str], str] = {}
        """Node and bus id -> Ethernet or InfiniBand, by the name of the port's interface."""
        said: set[tuple[str, str | None]] = set()
        """What lines tell at which node; all its ranks say the same."""
        for scan in scans:
            for hit in scan.hits:
                if hit.rule.id == TELLS:
                    said.add((hit.cleaned.text, places.node_of(hit.cleaned, scan.stream, hit.captures, None)))
                elif scan.stream.source is Source.SYSLOG and (port := _PORT.search(hit.text)):
                    node = places.node_of(hit.cleaned, scan.stream, hit.captures, None)
                    self._ports[node, normal_device(port[1])] = INFINIBAND if port[2].startswith("ib") else ETHERNET
        used = {layer for text, node in said for layer in self._learn(text, node)}
        named_layers = {layer for told in self._named.values() for layer in told}
        guessed = {layer for told in self._guessed.values() for layer in told}
        self._used = used | (named_layers or guessed)
        """What the job's ranks go by."""

    def _learn(self, text: str, node: str | None) -> set[str]:
        """Learn what a line tells of adapters; gives Ethernet when it tells that sockets are used."""
        told = [(found[1], INFINIBAND if found[2].upper() == "IB" else ROCE) for found in _LISTED.finditer(text)]
        if layer := _LAYER.search(text):
            told.append(("", INFINIBAND if layer[1].lower() == INFINIBAND else ROCE))
        for at in (node, None):
            for device, name in told:
                self._named[at, device].add(name)
            if gid := _GID.search(text):
                self._guessed[at, gid[1] or ""].add(ROCE)
        return {ETHERNET} if _SOCKET.search(text) else set()

    def of(self, placed: Placed) -> str | None:
        """The layer of the port that the line is about; None where nothing tells."""
        device = placed.device or ""
        port = self._ports.get((placed.node, device))
        if port == INFINIBAND:
            return port
        if port == ETHERNET or placed.rule.sub_domain != INFINIBAND:
            # An Ethernet port. RDMA goes by it unless the job has no RDMA devices, or none but InfiniBand's.
            return ETHERNET if self._used and ROCE not in self._used else ROCE
        hca = device.split("/")[-1].split(":")[0] if _OF_A_HCA.match(device) else ""
        for told in (self._named, self._guessed):
            for at in (placed.node, None):
                listed = told.get((at, hca), set()) if hca else set()
                if len(listed) == 1:
                    return next(iter(listed))
        return next(iter(self._used)) if len(self._used) == 1 and (not hca or ETHERNET not in self._used) else None


def decide_layers(placed: Sequence[Placed], layers: Layers) -> None:
    """Give every signal of a layered rule the sub-domain of the port that it is about."""
    for one in placed:
        if one.rule.layered and one.rule.sub_domain in NAMES:
            layer = layers.of(one)
            if layer is not None and layer != one.rule.sub_domain:
                one.rule = _of_layer(one.rule, layer)


@lru_cache(maxsize=256)
def _of_layer(rule: Rule, layer: str) -> Rule:
    return msgspec.structs.replace(rule, sub_domain=layer, title=_TITLE.sub(NAMES[layer], rule.title))
