"""What happened is told to whom a route says, once, in order, and until it is taken."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from tests.channels.receivers import Receiver, SlackApi, receiver
from tests.triage.conftest import MakeAttempt
from tests.triage.test_verdicts import at_once
from triage.models import Announcement, Attempt, Channel, Delivery, DeliveryState, Incident, News, Route
from triage.services.announcing import plan_deliveries
from triage.services.channels import ChannelRefused, RouteFields, save_channel, save_route
from triage.services.delivering import (
    MAX_TRIES,
    ResendRefused,
    drop,
    due_deliveries,
    forget_deliveries,
    lease_delivery,
    send_again,
    send_trial,
)
from triage.services.incidents import set_severity, set_status
from triage.tasks.telling import deliver

EVERYTHING = [kind for kind in News.values if kind != News.TEST]


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[SlackApi]:
    monkeypatch.setenv("FAULTLINE_CHANNEL_TOKEN", "xoxb-quiet")
    settings.FAULTLINE_PRIVATE_HOSTS = ["127.0.0.1"]
    settings.FAULTLINE_URL = "https://faultline.example.org"
    with receiver() as made:
        made.answer = made_api = SlackApi("xoxb-quiet", "C1")
        made_api.receiver = made  # type: ignore[attr-defined]
        yield made_api


@pytest.fixture
def channel(api: SlackApi, db: None) -> Channel:
    url: Receiver = api.receiver  # type: ignore[attr-defined]
    return save_channel("on-call", "slack", {"token": "env:FAULTLINE_CHANNEL_TOKEN", "channel": "C1", "url": url.url})


@pytest.fixture
def maren(db: None) -> User:
    return User.objects.create_user("maren")


def route(channel: Channel, name: str = "all", **fields: Any) -> Route:
    values: dict[str, Any] = {"news": EVERYTHING, "quiet_minutes": 0, **fields}
    return save_route(RouteFields(name=name, channel_id=channel.pk, **values))


def tell() -> None:
    """What beat and the workers do, here and now."""
    plan_deliveries()
    while due := due_deliveries():
        for pk in due:
            deliver(pk)


def texts(api: SlackApi) -> list[str]:
    return [sent["text"] for sent in api.sent]


def test_one_incident_is_one_thread_from_its_opening_to_its_return(
    channel: Channel, api: SlackApi, diagnosed: MakeAttempt, maren: User
) -> None:
    route(channel)
    diagnosed("1")
    diagnosed("2")
    incident = Incident.objects.get()
    set_status(incident.pk, maren, "resolved", seen="new")
    diagnosed("3", facts={"ended_at": timezone.now().timestamp() + 60})
    tell()
    name = incident.name
    assert texts(api) == [
        f"{name}: GPU fell off the bus on gx-02 (Xid 79)",
        f"{name}: Again: GPU fell off the bus on gx-02 (Xid 79)",
        f"{name}: Resolved: GPU fell off the bus on gx-02 (Xid 79)",
        f"{name}: Back after it was settled: GPU fell off the bus on gx-02 (Xid 79)",
    ]
    assert {sent.get("thread_ts") for sent in api.sent[1:]} == {api.sent[0]["ts"]}
    said = api.sent[0]["blocks"][0]["text"]["text"].split("\n")
    assert said[1:] == [
        "Hardware, GPU on gx-02",
        "llama-7b 1, attempt 1 of ada on c1: failed",
        f"3 attempts, {Incident.objects.get().gpu_hours:,.1f} GPU-hours lost",
        "Do next: Restart as it was",
    ]
    assert f"https://faultline.example.org/incidents/{incident.pk}/" in str(api.sent[0]["blocks"][1])
    assert not Announcement.objects.exists()


def test_without_a_route_nothing_is_kept_and_nothing_told_later(
    channel: Channel, api: SlackApi, diagnosed: MakeAttempt
) -> None:
    diagnosed("1")
    assert not Announcement.objects.exists()
    route(channel)
    tell()
    assert texts(api) == []


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"query": "domain:hardware"}, 1),
        ({"query": "domain:network"}, 1),
        ({"query": "cluster:elsewhere"}, 0),
        ({"query": "node:gx-02 user:ada"}, 2),
        ({"query": "domain:hardware", "news": ["repeated"]}, 0),
        ({"least_attempts": 2}, 0),
        ({"severity": 2}, 0),
        ({"enabled": False}, 0),
    ],
)
def test_a_route_tells_only_what_it_asks_for(
    channel: Channel, api: SlackApi, diagnosed: MakeAttempt, fields: dict[str, Any], told: int
) -> None:
    route(channel, **fields)
    diagnosed("1")
    diagnosed("2", domain="network", sub_domain="dns", title="Name not resolved")
    tell()
    assert len(api.sent) == told


def test_a_repeat_counts_from_the_attempt_that_the_route_names(
    channel: Channel, api: SlackApi, diagnosed: MakeAttempt
) -> None:
    route(channel, least_attempts=3)
    for workload in "1234":
        diagnosed(workload)
        tell()
    assert [text.partition(": ")[2].partition(":")[0] for text in texts(api)] == ["Again", "Again"]


def test_severity_lets_through_only_what_is_as_bad(
    channel: Channel, api: SlackApi, diagnosed: MakeAttempt, maren: User
) -> None:
    route(channel, severity=2)
    diagnosed("1")
    tell()
    set_severity(Incident.objects.get().pk, maren, 1, seen=None)
    diagnosed("2")
    tell()
    assert len(api.sent) == 1 and "Again" in api.sent[0]["text"]


def test_a_failure_without_a_known_cause_is_told_with_its_own_link(
    channel: Channel, api: SlackApi, diagnosed: MakeAttempt
) -> None:
    route(channel)
    attempt = diagnosed("7", domain="unattributed", sub_domain="none", nodes={}, title="No cause found")
    diagnosed("8", outcome="succeeded", domain="unattributed", sub_domain="none", nodes={}, title="Succeeded")
    tell()
    assert texts(api) == ["Failed without a known cause: llama-7b 7, attempt 1"]
    assert f"/attempts/{attempt.pk}/" in str(api.sent[0]["blocks"])


def test_repeats_within_the_quiet_time_are_told_in_one_message(
    channel: Channel, api: SlackApi, diagnosed: MakeAttempt
) -> None:
    route(channel, quiet_minutes=15)
    for workload in "12345":
        diagnosed(workload)
        tell()
    assert len(api.sent) == 1
    Delivery.objects.filter(state=DeliveryState.WAITING).update(due_at=timezone.now())
    tell()
    assert texts(api)[1].endswith("4 more times: GPU fell off the bus on gx-02 (Xid 79)")
    assert "5 attempts" in str(api.sent[1]["blocks"])


def test_two_routes_of_one_channel_tell_an_event_once(channel: Channel, api: SlackApi, diagnosed: MakeAttempt) -> None:
    route(channel, "all")
    route(channel, "hardware", query="domain:hardware")
    diagnosed("1")
    tell()
    assert len(api.sent) == 1


@pytest.mark.django_db(transaction=True)
def test_workers_at_once_send_each_message_once(channel: Channel, api: SlackApi, diagnosed: MakeAttempt) -> None:
    route(channel)
    for workload in "123":
        diagnosed(workload, sub_domain=f"gpu{workload}")
    at_once([plan_deliveries] * 4)
    assert Delivery.objects.count() == 3
    at_once([partial(deliver, pk) for pk in due_deliveries() * 3])
    assert len(api.sent) == 3 and {d.state for d in Delivery.objects.all()} == {DeliveryState.SENT}


def test_what_is_not_taken_is_tried_again_and_holds_back_the_rest_of_its_thread(
    channel: Channel, api: SlackApi, diagnosed: MakeAttempt
) -> None:
    route(channel)
    diagnosed("1")
    diagnosed("2")
    api.busy = 1
    tell()
    first, second = Delivery.objects.order_by("id")
    assert api.sent == [] and (first.state, first.tries, second.tries) == (DeliveryState.WAITING, 1, 0)
    assert "answers 429" in first.trouble and first.due_at > timezone.now() + timedelta(seconds=25)
    assert due_deliveries() == []
    Delivery.objects.update(due_at=timezone.now())
    tell()
    assert [sent.get("thread_ts") for sent in api.sent] == [None, api.sent[0]["ts"]]
    first.refresh_from_db()
    assert (first.state, first.trouble) == (DeliveryState.SENT, "")


def test_what_can_not_work_fails_at_once_and_what_never_works_in_the_end(
    channel: Channel, api: SlackApi, diagnosed: MakeAttempt
) -> None:
    route(channel)
    diagnosed("1")
    api.channel = "C9"
    tell()
    failed = Delivery.objects.get()
    assert (failed.state, failed.tries) == (DeliveryState.FAILED, 1) and "channel_not_found" in failed.trouble
    api.channel, api.busy = "C1", 1
    diagnosed("2")
    plan_deliveries()
    (pk,) = due_deliveries()
    Delivery.objects.filter(pk=pk).update(tries=MAX_TRIES - 1)
    tell()
    assert Delivery.objects.get(pk=pk).state == DeliveryState.FAILED


def test_a_worker_that_died_is_replaced_once_its_lease_is_over(
    channel: Channel, api: SlackApi, diagnosed: MakeAttempt
) -> None:
    route(channel)
    diagnosed("1")
    plan_deliveries()
    (pk,) = due_deliveries()
    assert lease_delivery(pk) is not None
    assert due_deliveries() == [] and lease_delivery(pk) is None
    Delivery.objects.update(leased_until=timezone.now() - timedelta(seconds=1))
    tell()
    assert len(api.sent) == 1


def test_a_failed_message_is_sent_again_by_hand(
    channel: Channel, api: SlackApi, diagnosed: MakeAttempt, maren: User
) -> None:
    route(channel)
    diagnosed("1")
    api.channel = "C9"
    tell()
    api.channel = "C1"
    again = send_again(Delivery.objects.get().pk, maren)
    tell()
    again.refresh_from_db()
    assert (again.state, again.asked_by) == (DeliveryState.SENT, maren) and len(api.sent) == 1
    Channel.objects.update(enabled=False)
    with pytest.raises(ResendRefused, match="on-call is switched off"):
        send_again(again.pk, maren)


def test_a_test_says_that_it_is_one(channel: Channel, api: SlackApi, maren: User) -> None:
    send_trial(channel, maren)
    tell()
    assert texts(api) == ["Faultline can reach on-call"] and "No attempt failed" in str(api.sent[0]["blocks"])


def test_what_waits_can_be_dropped_and_old_entries_go(channel: Channel, api: SlackApi, diagnosed: MakeAttempt) -> None:
    route(channel)
    diagnosed("1")
    plan_deliveries()
    (pk,) = due_deliveries()
    assert drop(pk) and not drop(pk)
    tell()
    assert api.sent == []
    Delivery.objects.update(created_at=timezone.now() - timedelta(days=100))
    assert forget_deliveries(timedelta(days=90)) == 1


def test_a_channel_that_is_off_keeps_its_messages_until_it_is_on(
    channel: Channel, api: SlackApi, diagnosed: MakeAttempt
) -> None:
    route(channel)
    diagnosed("1")
    plan_deliveries()
    Channel.objects.update(enabled=False)
    tell()
    assert api.sent == []
    Channel.objects.update(enabled=True)
    tell()
    assert len(api.sent) == 1


def test_hostile_names_stay_one_line_without_hidden_characters(
    channel: Channel, api: SlackApi, diagnosed: MakeAttempt
) -> None:
    route(channel)
    diagnosed("1", title="<!channel> \u202egnp.exe\nsecond line", facts={"user": "a\u200bda", "name": "<b>x"})
    tell()
    (sent,) = api.sent
    assert sent["text"].endswith("&lt;!channel&gt; \u27e8U+202E\u27e9gnp.exe second line")
    assert "a\u27e8U+200B\u27e9da" in sent["blocks"][0]["text"]["text"]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"name": " "}, "name"),
        ({"channel_id": 0}, "channel"),
        ({"news": []}, "news"),
        ({"news": ["test"]}, "news"),
        ({"query": "domian:hardware"}, "query"),
        ({"least_attempts": 0}, "least_attempts"),
        ({"quiet_minutes": -1}, "quiet_minutes"),
        ({"severity": 9}, "severity"),
        ({"name": "all"}, "name"),
    ],
)
def test_a_route_that_can_not_work_is_refused_by_field(channel: Channel, fields: dict[str, Any], field: str) -> None:
    route(channel)
    values: dict[str, Any] = {"name": "other", "channel_id": channel.pk, "news": ["opened"], **fields}
    with pytest.raises(ChannelRefused) as error:
        save_route(RouteFields(**values))
    assert error.value.field == field and Route.objects.count() == 1


def test_the_attempt_is_told_of_once_though_it_is_diagnosed_again(
    channel: Channel, api: SlackApi, diagnosed: MakeAttempt
) -> None:
    from triage.services.triage import request_triage

    route(channel)
    attempt: Attempt = diagnosed("1")
    tell()
    request_triage(attempt.pk)
    diagnosed("1")
    tell()
    assert len(api.sent) == 1


@pytest.mark.parametrize("secret", ["env:SECRET_KEY", "env:DATABASE_URL", "file:/etc/shadow", "file:../secret"])
def test_a_channel_can_not_have_other_secrets_of_the_worker_sent(db: None, secret: str) -> None:
    with pytest.raises(ChannelRefused) as error:
        save_channel("x", "slack", {"token": secret, "channel": "C1", "url": "https://collect.example.org"})
    assert error.value.field == "token"


def test_a_secret_in_a_folder_that_is_opened_to_pages_may_be_named(db: None, tmp_path: Path, settings: Any) -> None:
    settings.FAULTLINE_PAGE_FOLDERS = [tmp_path]
    (tmp_path / "hook").write_text("between us")
    save_channel("x", "webhook", {"url": "https://hooks.example.org/in", "secret": f"file:{tmp_path / 'hook'}"})
    (tmp_path / "out").symlink_to("/etc/hostname")
    with pytest.raises(ChannelRefused, match="FAULTLINE_PAGE_FOLDERS"):
        save_channel("y", "webhook", {"url": "https://hooks.example.org/in", "secret": f"file:{tmp_path / 'out'}"})
