"""Where a request comes from."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

from django.conf import settings
from django.http import HttpRequest


def client_address(request: HttpRequest) -> str | None:
    """The reader's address: the nearest proxy's word only where one is set up."""
    forwarded = request.headers.get("X-Forwarded-For", "") if settings.SECURE_PROXY_SSL_HEADER else ""
    address = forwarded.rsplit(",", 1)[-1].strip() or request.META.get("REMOTE_ADDR", "")
    try:
        return str(ip_address(address))
    except ValueError:
        return None


def network_of(address: str | None) -> str:
    """Whose openings count together: an address, of IPv6 the network that one subscriber has."""
    if address is None or ":" not in address:
        return address or "unknown"
    without_scope = address.partition("%")[0]
    return str(ip_network(f"{without_scope}/64", strict=False).network_address)
