"""Channels, routes and the log of deliveries, as their pages show them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Count, Q, QuerySet

from triage.models import Channel, Delivery, DeliveryState, News, Route
from triage.selectors.query import parse

PAGE = 50


@dataclass(frozen=True)
class RouteRow:
    """A route with what is wrong with it by now: a query may name what the language no longer has."""

    route: Route
    news: Sequence[str]
    """What it tells of, in words."""
    trouble: str


@dataclass(frozen=True)
class Page:
    """A part of the log, newest first."""

    deliveries: Sequence[Delivery]
    next: int | None
    """For `before` of the next page; None on the last."""


def list_channels() -> list[Channel]:
    """Every channel with its routes, and how its deliveries of the log stand (`waiting`, `failed`, `sent`)."""
    counts = {
        state: Count("deliveries", filter=Q(deliveries__state=state), distinct=True)
        for state in (DeliveryState.WAITING, DeliveryState.FAILED, DeliveryState.SENT)
    }
    return list(Channel.objects.annotate(**{state.value: count for state, count in counts.items()}).order_by("name"))


def list_routes() -> list[RouteRow]:
    """Every route, with its channel."""
    routes = Route.objects.select_related("channel").order_by("name")
    return [
        RouteRow(
            route,
            [News(news).label for news in route.news if news in News.values],
            next(iter(parse(route.query).errors), ""),
        )
        for route in routes
    ]


def delivery_log(*, state: str = "", channel: int | None = None, before: int | None = None) -> Page:
    """What went out, waits or failed. `before` is the id after which the page goes on."""
    found: QuerySet[Delivery] = Delivery.objects.select_related("channel", "route", "incident", "attempt__workload")
    if state in DeliveryState.values:
        found = found.filter(state=state)
    if channel is not None:
        found = found.filter(channel=channel)
    if before is not None:
        found = found.filter(pk__lt=before)
    rows = list(found.order_by("-id")[: PAGE + 1])
    return Page(rows[:PAGE], rows[PAGE - 1].pk if len(rows) > PAGE else None)


def state_counts() -> dict[str, int]:
    """How many deliveries of the log are in each state."""
    rows = Delivery.objects.order_by().values_list("state").annotate(count=Count("*"))
    return dict(rows)
