"""Channels and routes as administrators set them up. Nothing is kept that can't be used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from django.conf import settings
from django.db import IntegrityError, transaction

from triage.channels.base import ChannelConfigError, Setup, receivers_reach
from triage.channels.registry import KINDS
from triage.models import Channel, News, Route
from triage.selectors.query import parse
from triage.services.facts import short
from triage.services.sources import page_rules

SECRETS = "FAULTLINE_CHANNEL_"
"""Environment variables that a channel may name as a secret begin with it."""
M = TypeVar("M", Channel, Route)
MAX_QUIET_MINUTES = 7 * 24 * 60


class ChannelRefused(ValueError):
    """A channel or route can't be kept; `field` names what is wrong with it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def setup() -> Setup:
    """What this installation gives every channel."""
    return Setup(
        sender=settings.DEFAULT_FROM_EMAIL,
        site=settings.FAULTLINE_URL,
        seconds=float(settings.FAULTLINE_DELIVERY_SECONDS),
        reach=receivers_reach(settings.FAULTLINE_PRIVATE_HOSTS),
    )


def save_channel(
    name: str, kind: str, config: Mapping[str, Any], *, pk: int | None = None, enabled: bool = True
) -> Channel:
    """Makes a channel or changes the one with this id. Raises ChannelRefused."""
    name = short(" ".join(name.split()), 80)
    if not name:
        raise ChannelRefused("name", "Give the channel a name.")
    if kind not in KINDS:
        raise ChannelRefused("kind", f"It must be one of {', '.join(sorted(KINDS))}.")
    config = {key: value for key, value in config.items() if value}
    _check_secrets(kind, config)
    try:
        KINDS[kind].make(config, setup())
    except ChannelConfigError as error:
        raise ChannelRefused(error.key, str(error)) from None
    values = {"name": name, "kind": kind, "config": config, "enabled": enabled}
    with _unique("name", f"There is a channel named {name} already."):
        return _kept(Channel, pk, values)


def _check_secrets(kind: str, config: Mapping[str, Any]) -> None:
    """Only what is meant for channels: else whoever sets one up could have any secret of the worker sent anywhere."""
    for key in KINDS[kind].keys:
        place = str(config.get(key.name, "")) if key.secret else ""
        if place.startswith("env:") and not place.startswith(f"env:{SECRETS}"):
            raise ChannelRefused(key.name, f"env: must name a variable that begins with {SECRETS}.")
        if place.startswith("file:"):
            why = page_rules().why_not(place.removeprefix("file:"))
            if why:
                raise ChannelRefused(key.name, f"{why}.")


@dataclass(frozen=True, kw_only=True)
class RouteFields:
    """What a route says."""

    name: str
    channel_id: int | None
    news: Sequence[str]
    query: str = ""
    least_attempts: int = 1
    severity: int | None = None
    quiet_minutes: int = 15
    enabled: bool = True


def save_route(fields: RouteFields, *, pk: int | None = None) -> Route:
    """Makes a route or changes the one with this id. Raises ChannelRefused."""
    name = short(" ".join(fields.name.split()), 80)
    if not name:
        raise ChannelRefused("name", "Give the route a name.")
    channel = Channel.objects.filter(pk=fields.channel_id).first()
    if channel is None:
        raise ChannelRefused("channel", "Choose a channel.")
    news = [kind for kind in News.values if kind in fields.news and kind != News.TEST]
    if not news:
        raise ChannelRefused("news", "Choose at least one kind of news.")
    query = parse(fields.query)
    if query.errors:
        raise ChannelRefused("query", query.errors[0])
    if not 1 <= fields.least_attempts <= 100_000:
        raise ChannelRefused("least_attempts", "It must be a number from 1 to 100,000.")
    if not 0 <= fields.quiet_minutes <= MAX_QUIET_MINUTES:
        raise ChannelRefused("quiet_minutes", f"It must be a number from 0 to {MAX_QUIET_MINUTES:,} (a week).")
    if fields.severity is not None and fields.severity not in (1, 2, 3, 4):
        raise ChannelRefused("severity", "It must be a number from 1 to 4.")
    values = {
        "name": name,
        "channel": channel,
        "news": news,
        "query": str(query),
        "least_attempts": fields.least_attempts,
        "severity": fields.severity,
        "quiet_minutes": fields.quiet_minutes,
        "enabled": fields.enabled,
    }
    with _unique("name", f"There is a route named {name} already."):
        return _kept(Route, pk, values)


def delete_channel(pk: int) -> bool:
    """Deletes a channel with its routes and its log. False when it was gone."""
    return bool(Channel.objects.filter(pk=pk).delete()[0])


def delete_route(pk: int) -> bool:
    """Deletes a route; its log stays. False when it was gone."""
    return bool(Route.objects.filter(pk=pk).delete()[0])


def _kept(model: type[M], pk: int | None, values: Mapping[str, Any]) -> M:
    """A new row, or the one with this id changed. Raises ChannelRefused when that is gone."""
    if pk is None:
        return model._default_manager.create(**values)
    row = model._default_manager.select_for_update().filter(pk=pk).first()
    if row is None:
        raise ChannelRefused("name", f"This {model._meta.verbose_name} is gone.")
    for field, value in values.items():
        setattr(row, field, value)
    row.save()
    return row


@contextmanager
def _unique(field: str, message: str) -> Iterator[None]:
    """A transaction in which a name that is taken becomes ChannelRefused."""
    try:
        with transaction.atomic():
            yield
    except IntegrityError:
        raise ChannelRefused(field, message) from None
