"""Which hosts a server may be at that somebody named on a page: neither this machine nor what links and clouds serve.

A name is resolved once for each connection, and what was checked is what is connected to. What the machine's owner
names in the file may be anywhere.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator, Sequence
from enum import StrEnum

import msgspec

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_METADATA = {
    ipaddress.ip_address(text)
    for text in ("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254")
}
"""Where clouds tell a machine its credentials, beside 169.254.169.254."""
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


class Place(StrEnum):
    """What an address is, in words."""

    MACHINE = "an address of this machine itself"
    LINK = "an address that only the link, or a cloud's metadata service, answers"
    PRIVATE = "an address in a private network"
    PUBLIC = "an address that is public"


EVERYWHERE = frozenset(Place)


class NotAllowed(Exception):
    """A host may not be connected to; why, in words."""


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """Hosts that may be connected to: by what their address is, or because the owner of the machine names them."""

    places: frozenset[Place] = EVERYWHERE
    hosts: tuple[str, ...] = ()
    """Names, `.example.org` for all below one, addresses, and networks like 10.20.0.0/16."""
    setting: str = ""
    """The variable that `hosts` are from."""

    @property
    def is_everywhere(self) -> bool:
        return self.places == EVERYWHERE

    def addresses(self, host: str, port: int) -> list[str]:
        """The host's addresses that may be connected to. Raises NotAllowed, and OSError when there is none."""
        if self._names(host):
            return list(_resolved(host, port))
        found: list[str] = []
        refused = ""
        for text in _resolved(host, port):
            address = ipaddress.ip_address(text.partition("%")[0])
            place = place_of(address)
            if place in self.places or self._lists(address):
                found.append(text)
            else:
                refused = refused or f"{host} is {place}; allow it with {self.setting}"
        if not found:
            raise NotAllowed(refused)
        return found

    def why_not(self, host: str) -> str:
        """Why a host can't be connected to as far as its name tells; empty when it may be, or has to be looked up."""
        try:
            ipaddress.ip_address(host)
        except ValueError:
            if host.rstrip(".").lower() != "localhost":
                return ""
        try:
            self.addresses(host, 0)
        except NotAllowed as refused:
            return str(refused)
        except OSError:
            pass
        return ""

    def _names(self, host: str) -> bool:
        name = host.rstrip(".").lower()
        return any(name == entry or (entry.startswith(".") and name.endswith(entry)) for entry in self.hosts)

    def _lists(self, address: Address) -> bool:
        for entry in self.hosts:
            try:
                network = ipaddress.ip_network(entry, strict=False)
            except ValueError:
                continue
            if address in network:
                return True
        return False


ANYWHERE = Reach()


def reach_of(entries: Sequence[str], setting: str, by_default: frozenset[Place] = frozenset()) -> Reach:
    """What a setting says. `*` in it stands for private and public hosts; the machine itself and link-local addresses
    are always named.
    """
    hosts = tuple(entry.rstrip(".").lower() for entry in entries if entry != "*")
    places = frozenset({Place.PRIVATE, Place.PUBLIC}) if "*" in entries else by_default
    return Reach(places=places, hosts=hosts, setting=setting)


def place_of(address: Address) -> Place:
    """The most dangerous thing that an address is, or leads to through a translation to IPv4."""
    ways = {_place(way) for way in _ways(address)}
    return next(place for place in Place if place in ways)


def _ways(address: Address) -> Iterator[Address]:
    yield address
    if isinstance(address, ipaddress.IPv6Address):
        low = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if address.ipv4_mapped or address in _NAT64 or (int(address) >> 32 == 0 and int(address) > 1):
            yield low
        if address.sixtofour:
            yield address.sixtofour
        if address.teredo:
            yield from address.teredo


def _place(address: Address) -> Place:
    if address.is_loopback or address.is_unspecified or _is_own(address):
        return Place.MACHINE
    if address.is_link_local or address.is_multicast or address in _METADATA:
        return Place.LINK
    if isinstance(address, ipaddress.IPv4Address) and address in ipaddress.ip_network("0.0.0.0/8"):
        return Place.MACHINE
    return Place.PUBLIC if address.is_global else Place.PRIVATE


def _is_own(address: Address) -> bool:
    """Whether an interface of this machine has the address: the way to it then begins at it. Nothing is sent."""
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), 9))
            return ipaddress.ip_address(str(probe.getsockname()[0]).partition("%")[0]) == address
    except OSError:
        return False


def _resolved(host: str, port: int) -> Iterator[str]:
    """Each address once. Raises OSError."""
    try:
        found = socket.getaddrinfo(host, port or None, type=socket.SOCK_STREAM)
    except UnicodeError:
        raise OSError(f"{host!r} is no name of a host") from None
    yield from dict.fromkeys(str(info[4][0]) for info in found)
