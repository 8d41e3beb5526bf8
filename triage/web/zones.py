"""In which zone a page tells times: UTC, the reader's own, or the cluster's. One choice for everything that is shown.

The choice is a cookie, so that the first byte of a page is right and nothing is rewritten later. The reader's own zone
is known only to the browser; its script puts the name into the cookie. Log text stays as it was written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, tzinfo
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from triage import times
from triage.models import Attempt, Cluster

COOKIE = "faultline_zone"
CHOICES = ("utc", "local", "cluster")


@dataclass
class Zone:
    """How one request tells times."""

    choice: str = "utc"
    zone: tzinfo = UTC
    name: str = "UTC"
    note: str = "All times are UTC"


@lru_cache(maxsize=256)
def zone_of(name: str) -> tzinfo | None:
    """A zone by its IANA name; None for anything else."""
    if not name or len(name) > 64 or name.startswith("/"):
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def cookie_value(choice: str, local: str) -> str:
    """What to keep for a choice of the form: `utc`, `cluster` or `local:Europe/Berlin`."""
    if choice == "local":
        return f"local:{local}" if zone_of(local) is not None else "utc"
    return choice if choice in CHOICES else "utc"


class ZoneMiddleware:
    """Sets the zone for the time of one request. Only cluster time costs a query."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        request.zone = Zone()  # type: ignore[attr-defined]
        token = times.use_zone(UTC)
        try:
            return self.get_response(request)
        finally:
            times.end_zone(token)

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: dict[str, Any]) -> None:
        choice, _, name = request.COOKIES.get(COOKIE, "").partition(":")
        if choice == "local" and (zone := zone_of(name)) is not None:
            request.zone = Zone("local", zone, name, f"Times are yours, {name}; log text stays as written")  # type: ignore[attr-defined]
        elif choice == "cluster":
            request.zone = _cluster_zone(request.path, kwargs)  # type: ignore[attr-defined]
        times.use_zone(request.zone.zone)  # type: ignore[attr-defined]


def _cluster_zone(path: str, kwargs: dict[str, Any]) -> Zone:
    """Of the attempt's cluster; on other pages the zone that all clusters share."""
    names: list[str]
    if path.startswith("/attempts/") and isinstance(pk := kwargs.get("pk"), int) and pk < 2**63:
        names = list(Attempt.objects.filter(pk=pk).values_list("cluster__time_zone", flat=True))
    else:
        names = list(Cluster.objects.order_by().values_list("time_zone", flat=True).distinct()[:2])
    if len(names) > 1:
        return Zone("cluster", UTC, "UTC", "Times are UTC here, because the clusters are in several zones")
    name = names[0] if names else "UTC"
    zone = zone_of(name)
    if zone is None:
        return Zone("cluster", UTC, "UTC", "Times are UTC; the cluster's zone is not known")
    return Zone("cluster", zone, name, f"Times are the cluster's, {name}; log text stays as written")
