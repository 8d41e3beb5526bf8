"""Channels, routes and what went out over them: for administrators."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from triage.access.rights import administrators
from triage.channels.registry import KINDS
from triage.models import Channel, ChannelKind, DeliveryState, News, Route, Severity
from triage.selectors import outbox as selectors
from triage.services import channels as service
from triage.services import delivering

NEWS = [choice for choice in News.choices if choice[0] != News.TEST]


@administrators
def index(request: HttpRequest) -> HttpResponse:
    """Every channel and every route."""
    context = {
        "section": "channels",
        "channels": selectors.list_channels(),
        "routes": selectors.list_routes(),
        "kinds": ChannelKind.choices,
    }
    return render(request, "outbox/index.html", context)


@administrators
def new_channel(request: HttpRequest, kind: str) -> HttpResponse:
    """The form of a channel of one kind, and what it sends."""
    if kind not in KINDS:
        raise Http404("no such kind of channel")
    return _channel(request, Channel(kind=kind))


@administrators
def edit_channel(request: HttpRequest, pk: int) -> HttpResponse:
    """The form of a channel."""
    channel = Channel.objects.filter(pk=pk).first()
    if channel is None:
        raise Http404("no such channel")
    return _channel(request, channel)


def _channel(request: HttpRequest, channel: Channel) -> HttpResponse:
    keys = KINDS[channel.kind].keys
    values: dict[str, Any] = {"name": channel.name, "enabled": channel.enabled, **channel.config}
    errors: dict[str, str] = {}
    if request.method == "POST":
        values = {"name": request.POST.get("name", ""), "enabled": bool(request.POST.get("enabled"))}
        values |= {key.name: _typed(request.POST.get(key.name, ""), key.many) for key in keys}
        config = {key.name: values[key.name] for key in keys}
        try:
            kept = service.save_channel(values["name"], channel.kind, config, pk=channel.pk, enabled=values["enabled"])
        except service.ChannelRefused as error:
            errors[error.field] = str(error)
        else:
            messages.success(request, f"Saved {kept.name}. Send a test to see that it works.")
            return redirect("channels")
    fields = [(key, _shown(values.get(key.name, "")), errors.get(key.name, "")) for key in keys]
    context = {
        "section": "channels", "channel": channel, "fields": fields, "values": values, "errors": errors,
    }  # fmt: skip
    return render(request, "outbox/channel.html", context, status=422 if errors else 200)


@require_POST
@administrators
def delete_channel(request: HttpRequest, pk: int) -> HttpResponse:
    """Deletes a channel."""
    if service.delete_channel(pk):
        messages.success(request, "The channel is deleted, with its routes and its log.")
    return redirect("channels")


@require_POST
@administrators
def try_channel(request: HttpRequest, pk: int) -> HttpResponse:
    """Sends a test; the log shows what becomes of it."""
    channel = Channel.objects.filter(pk=pk).first()
    if channel is None:
        raise Http404("no such channel")
    delivering.send_trial(channel, request.user)
    messages.success(request, f"A test is on its way over {channel.name}.")
    return redirect("deliveries")


@administrators
def new_route(request: HttpRequest) -> HttpResponse:
    """The form of a new route."""
    return _route(request, Route(news=[News.OPENED, News.REGRESSED], quiet_minutes=15))


@administrators
def edit_route(request: HttpRequest, pk: int) -> HttpResponse:
    """The form of a route."""
    route = Route.objects.filter(pk=pk).first()
    if route is None:
        raise Http404("no such route")
    return _route(request, route)


def _route(request: HttpRequest, route: Route) -> HttpResponse:
    values: dict[str, Any] = {
        name: getattr(route, name)
        for name in ("name", "channel_id", "news", "query", "least_attempts", "severity", "quiet_minutes", "enabled")
    }
    errors: dict[str, str] = {}
    if request.method == "POST":
        sent = request.POST
        values = {
            "name": sent.get("name", ""),
            "channel_id": _number(sent.get("channel", "")),
            "news": sent.getlist("news"),
            "query": sent.get("query", ""),
            "least_attempts": _number(sent.get("least_attempts", "")) or 0,
            "severity": _number(sent.get("severity", "")),
            "quiet_minutes": -1 if (quiet := _number(sent.get("quiet_minutes", ""))) is None else quiet,
            "enabled": bool(sent.get("enabled")),
        }
        try:
            kept = service.save_route(service.RouteFields(**values), pk=route.pk)
        except service.ChannelRefused as error:
            errors[error.field] = str(error)
        else:
            messages.success(request, f"Saved {kept.name}.")
            return redirect("channels")
    context = {
        "section": "channels",
        "route": route,
        "values": values,
        "errors": errors,
        "channels": Channel.objects.order_by("name"),
        "news": NEWS,
        "severities": Severity.choices,
    }
    return render(request, "outbox/route.html", context, status=422 if errors else 200)


@require_POST
@administrators
def delete_route(request: HttpRequest, pk: int) -> HttpResponse:
    """Deletes a route."""
    if service.delete_route(pk):
        messages.success(request, "The route is deleted. What it sent stays in the log.")
    return redirect("channels")


@administrators
def log(request: HttpRequest) -> HttpResponse:
    """What went out, waits or failed."""
    state = request.GET.get("state", "")
    channel = _number(request.GET.get("channel", ""))
    page = selectors.delivery_log(state=state, channel=channel, before=_number(request.GET.get("before", "")))
    counts = selectors.state_counts()
    context = {
        "section": "channels",
        "page": page,
        "state": state if state in DeliveryState.values else "",
        "channel": Channel.objects.filter(pk=channel).first() if channel is not None else None,
        "tabs": [(value, label, counts.get(value, 0)) for value, label in DeliveryState.choices],
        "total": sum(counts.values()),
    }
    return render(request, "outbox/log.html", context)


@require_POST
@administrators
def send_again(request: HttpRequest, pk: int) -> HttpResponse:
    """Sends a delivery once more."""
    try:
        delivery = delivering.send_again(pk, request.user)
    except delivering.ResendRefused as error:
        messages.error(request, str(error))
    else:
        messages.success(request, f"On its way again over {delivery.channel.name}.")
    return redirect("deliveries")


@require_POST
@administrators
def drop(request: HttpRequest, pk: int) -> HttpResponse:
    """Gives up on a delivery that waits."""
    if not delivering.drop(pk):
        messages.error(request, "It does not wait any more.")
    return redirect("deliveries")


def _typed(text: str, many: bool) -> str | list[str]:
    if not many:
        return text.strip()
    return [part.strip() for part in text.replace(",", "\n").split("\n") if part.strip()]


def _shown(value: Any) -> str:
    return "\n".join(value) if isinstance(value, list) else str(value)


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 18 else None
