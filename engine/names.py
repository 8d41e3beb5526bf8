"""Names of nodes: which of the attempt's nodes a host's name or address means.

A node is called by its whole name, by the part before its domain, or by its address. What stands before the first dot
is no name where the rest is an address (``cn-beijing.172.21.8.61``, ``10.0.3.7``), or where several nodes begin alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

MOST_KNOWN = 4096
"""Names whose nodes are remembered: lines ask again and again for the same few."""
_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}\Z")
_OWN_ADDRESS = re.compile(r"(?:\A|[.-])(?:ip-)?(\d{1,3})([.-])(\d{1,3})\2(\d{1,3})\2(\d{1,3})(?=\Z|\.[a-z])")


def heads(name: str) -> tuple[str, ...]:
    """The name, and what is left of it without its domain, the longest first: ``a.b.c``, ``a.b``, ``a``."""
    labels = name.split(".")
    lengths = [1] if len(labels) > 8 else range(len(labels) - 1, 0, -1)
    domains = ((".".join(labels[:count]), labels[count:]) for count in lengths)
    return (name, *(head for head, rest in domains if not any(label.isdigit() for label in rest)))


def address_in(name: str) -> str | None:
    """The address that a node's name holds: ``ip-10-0-3-7.ec2.internal``, ``cn-beijing.172.21.8.61``."""
    found = _OWN_ADDRESS.search(name)
    if not found or (found[2] == "-" and "ip-" not in found[0]):
        return None
    numbers = found.group(1, 3, 4, 5)
    return ".".join(str(int(number)) for number in numbers) if all(int(number) < 256 for number in numbers) else None


def short_names(nodes: Sequence[str]) -> dict[str, str]:
    """Part before the domain, in lower case -> the one node that is called so."""
    found: dict[str, set[str]] = {}
    for node in nodes:
        for head in heads(node.lower())[1:]:
            found.setdefault(head, set()).add(node)
    return {head: next(iter(called)) for head, called in found.items() if len(called) == 1}


class NodeNames:
    """The nodes of an attempt by any name."""

    def __init__(self, nodes: Sequence[str]) -> None:
        self._whole = {node.lower(): node for node in nodes}
        self._short = short_names(nodes)
        self.addresses = _unique((address, node) for node in nodes if (address := address_in(node)))
        """Address that stands in a node's name -> node"""
        self.known = lru_cache(maxsize=MOST_KNOWN)(self._known)

    def _known(self, host: str) -> str | None:
        """The node that `host` names, with or without domain, or by the address in its name."""
        host = host.strip("[]").lower()
        if _ADDRESS.match(host):
            return self._whole.get(host) or self.addresses.get(host)
        for head in heads(host):
            found = self._whole.get(head) or self._short.get(head)
            if found:
                return found
        return None


def _unique(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    found: dict[str, set[str]] = {}
    for address, node in pairs:
        found.setdefault(address, set()).add(node)
    return {address: next(iter(nodes)) for address, nodes in found.items() if len(nodes) == 1}
