"""Channels and routes are set up on pages that say what is wrong, and the log shows what became of each message."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from triage.models import Channel, Delivery, DeliveryState, News, Route
from triage.services.channels import RouteFields, save_channel, save_route
from triage.services.delivering import send_trial


@pytest.fixture
def admin(client: Client, db: None) -> Client:
    client.force_login(User.objects.create_user("root", is_staff=True))
    return client


@pytest.fixture
def hook(db: None) -> Channel:
    return save_channel(
        "hook", "webhook", {"url": "https://hooks.example.org/in", "secret": "env:FAULTLINE_CHANNEL_SECRET"}
    )


def page(client: Client, name: str, *args: Any, **query: Any) -> str:
    answer = client.get(reverse(name, args=args), query)
    assert answer.status_code == 200
    return answer.content.decode()


def test_a_channel_is_added_and_its_route_with_it(admin: Client) -> None:
    assert "nothing is told to anybody outside" in page(admin, "channels")
    sent = {"name": "on-call", "to": "oncall@example.org, ada@example.org", "enabled": "on"}
    assert admin.post(reverse("channel-new", args=["email"]), sent).status_code == 302
    channel = Channel.objects.get()
    assert channel.config == {"to": ["oncall@example.org", "ada@example.org"]}
    sent = {
        "name": "hardware", "channel": channel.pk, "news": ["opened", "regressed"], "query": "domain:hardware",
        "least_attempts": "2", "severity": "", "quiet_minutes": "30", "enabled": "on",
    }  # fmt: skip
    assert admin.post(reverse("route-new"), sent).status_code == 302
    text = page(admin, "channels")
    assert (
        "domain:hardware" in text and "It came back after it was settled" in text and "from the 2nd attempt on" in text
    )


def test_what_is_wrong_stands_beside_its_field_and_nothing_typed_is_lost(admin: Client, hook: Channel) -> None:
    answer = admin.post(reverse("channel", args=[hook.pk]), {"name": "hook", "url": "ftp://x", "secret": "sesame"})
    text = answer.content.decode()
    assert answer.status_code == 422 and "1 answer needs another look" in text and 'value="ftp://x"' in text
    hook.refresh_from_db()
    assert hook.config["url"] == "https://hooks.example.org/in"
    answer = admin.post(reverse("route-new"), {"name": "r", "channel": hook.pk, "news": "opened", "query": "domian:x"})
    text = answer.content.decode()
    assert answer.status_code == 422 and "domian" in text and not Route.objects.exists()


def test_a_route_whose_search_no_longer_works_is_shown_as_broken(admin: Client, hook: Channel) -> None:
    route = save_route(RouteFields(name="r", channel_id=hook.pk, news=["opened"]))
    Route.objects.filter(pk=route.pk).update(query="gone:field")
    text = page(admin, "channels")
    assert "Broken" in text and "Tells nothing" in text


def test_the_log_shows_why_something_failed_and_sends_it_again(admin: Client, hook: Channel) -> None:
    delivery = send_trial(hook, User.objects.get())
    Delivery.objects.filter(pk=delivery.pk).update(
        state=DeliveryState.FAILED, trouble="https://hooks.example.org answers 410: <gone>", tries=1
    )
    text = page(admin, "deliveries", state="failed")
    assert "answers 410: &lt;gone&gt;" in text and "Send again" in text
    assert admin.post(reverse("delivery-again", args=[delivery.pk])).status_code == 302
    assert Delivery.objects.filter(again=delivery, state=DeliveryState.WAITING).count() == 1
    waiting = Delivery.objects.get(again=delivery)
    admin.post(reverse("delivery-drop", args=[waiting.pk]))
    waiting.refresh_from_db()
    assert waiting.state == DeliveryState.DROPPED


def test_the_log_goes_on_page_by_page(admin: Client, hook: Channel) -> None:
    Delivery.objects.bulk_create(
        [Delivery(channel=hook, news=News.TEST, thread="test", message={"title": f"message {n}."}) for n in range(60)]
    )
    first = page(admin, "deliveries")
    assert "message 59." in first and "message 10." in first and "message 9." not in first
    last = Delivery.objects.order_by("-id")[49].pk
    assert f"before={last}" in first
    assert "message 9." in page(admin, "deliveries", before=last)


def test_only_administrators_see_any_of_it(signed_in: Client, hook: Channel) -> None:
    for name in ("channels", "deliveries", "route-new"):
        assert signed_in.get(reverse(name)).status_code == 403
    assert signed_in.post(reverse("channel-delete", args=[hook.pk])).status_code == 403
    assert Channel.objects.filter(pk=hook.pk).exists()
    signed_in.logout()
    assert signed_in.get(reverse("channels")).headers["Location"].startswith("/sign-in/")


def test_deleting_a_channel_takes_its_routes(admin: Client, hook: Channel) -> None:
    save_route(RouteFields(name="r", channel_id=hook.pk, news=["opened"]))
    admin.post(reverse("channel-delete", args=[hook.pk]))
    assert not Channel.objects.exists() and not Route.objects.exists()
