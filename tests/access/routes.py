"""Every route of the URL configuration, with the addresses of what belongs to a team."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from django.urls import URLPattern, URLResolver, get_resolver, reverse

LIBRARIES = ("admin",)
"""Namespaces whose views are a library's; tested apart."""


@dataclass(frozen=True)
class Route:
    name: str
    """With its namespace: `attempt`, `api:attempt`."""
    view: Any
    converters: tuple[str, ...]
    """Names of what its address takes."""

    @property
    def about(self) -> tuple[str, ...]:
        """What kind of thing each of them names. Raises KeyError for a new route that nobody has explained here."""
        return tuple(_about(self.name, word) for word in self.converters)

    def address(self, values: dict[str, Any]) -> str:
        """Where it shows these things."""
        return reverse(self.name, kwargs=dict(zip(self.converters, (values[kind] for kind in self.about), strict=True)))


@cache
def all_routes() -> tuple[Route, ...]:
    return tuple(_walk(get_resolver(), ""))


def _walk(resolver: Any, prefix: str) -> Iterator[Route]:
    for entry in resolver.url_patterns:
        if isinstance(entry, URLResolver):
            namespace = f"{prefix}{entry.namespace}:" if entry.namespace else prefix
            if entry.namespace not in LIBRARIES:
                yield from _walk(entry, namespace)
        elif isinstance(entry, URLPattern):
            assert entry.name, f"{entry.pattern}: a route without a name can have no rule"
            yield Route(f"{prefix}{entry.name}", entry.callback, tuple(entry.pattern.converters))


_WORDS = {
    "attempt_id": "attempt",
    "incident_id": "incident",
    "diagnosis_id": "diagnosis",
    "rule_id": "rule",
    "ref": "evidence",
    "token": "token",
    "provider_id": "provider",
}
_PK = {
    "attempt": "attempt", "evidence": "attempt", "stream": "attempt", "verdict": "attempt", "lanes": "attempt",
    "compare": "attempt", "incident": "incident", "comment": "comment", "notification": "notification",
    "ticket": "ticket", "share": "share", "view": "view", "channel": "channel", "route": "route",
    "delivery": "delivery", "following": "followed", "token": "api token",
}  # fmt: skip
_NAMES = {
    "node": "node",
    "stream": "stream",
    "stream-lines": "stream",
    "stream-raw": "stream",
    "api:observation": "stream",
}


def _about(route: str, word: str) -> str:
    if route == "followed":
        return "followed word"
    if word in _WORDS:
        return _WORDS[word]
    if route == "channel-new":
        return "channel kind"
    if route.partition("-")[0] in ("cluster", "source"):
        return f"configured {'source' if word == 'source' else 'cluster'}"
    if word == "name":
        return _NAMES[route]
    if word == "pk":
        begin = route.partition("-")[0]
        if begin in _PK:
            return _PK[begin]
    raise KeyError(f"{route}: say in tests/access/routes.py what its {word} is")
