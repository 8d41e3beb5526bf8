"""Each kind of channel says the same message in its receiver's own form, and tells what is wrong in words."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

import msgspec
import pytest

from tests.channels.receivers import MailServer, Receiver, SlackApi
from triage.channels.base import ChannelConfigError, ChannelError, Message, Setup, receivers_reach
from triage.channels.http import read_retry_after
from triage.channels.registry import KINDS


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLACK_TOKEN", "xoxb-quiet")
    monkeypatch.setenv("HOOK_SECRET", "between us")


def slack(receiver: Receiver, setup: Setup) -> tuple[SlackApi, Any]:
    receiver.answer = api = SlackApi("xoxb-quiet", "C0123456789")
    config = {"token": "env:SLACK_TOKEN", "channel": "C0123456789", "url": f"{receiver.url}/api"}
    return api, KINDS["slack"].make(config, setup)


def test_slack_shows_the_message_and_repeats_join_its_thread(
    http_receiver: Receiver, setup: Setup, message: Message
) -> None:
    api, channel = slack(http_receiver, setup)
    first = channel.send(message, "1", "")
    channel.send(msgspec.structs.replace(message, news="repeated", title="INC-7: Again"), "2", first.name)
    channel.send(msgspec.structs.replace(message, news="regressed", title="INC-7: Back"), "3", first.name)
    assert http_receiver.requests[0].path == "/api/chat.postMessage"
    assert [one.get("thread_ts") for one in api.sent] == [None, first.name, first.name]
    assert [bool(one.get("reply_broadcast")) for one in api.sent] == [False, False, True]
    text = api.sent[0]["blocks"][0]["text"]["text"]
    assert text.startswith("*INC-7: NVLink link down on gx-02 &lt;Xid 149&gt; &amp; more*\nHardware, NVLink on gx-02")
    assert "<https://faultline.example.org/incidents/7/|Open in Faultline>" in json.dumps(api.sent[0]["blocks"][1])


def test_slack_asks_to_wait_or_refuses_for_good(http_receiver: Receiver, setup: Setup, message: Message) -> None:
    api, channel = slack(http_receiver, setup)
    api.busy = 1
    with pytest.raises(ChannelError, match="answers 429") as busy:
        channel.send(message, "1", "")
    assert (busy.value.permanent, busy.value.retry_after) == (False, 30.0)
    api.channel = "C9"
    with pytest.raises(ChannelError, match="Slack refuses: channel_not_found") as refused:
        channel.send(message, "1", "")
    assert refused.value.permanent


def test_an_incoming_webhook_is_never_named_in_errors(
    http_receiver: Receiver, setup: Setup, message: Message, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLACK_HOOK", f"{http_receiver.url}/services/T0/B0/confidential")
    channel = KINDS["slack"].make({"webhook": "env:SLACK_HOOK"}, setup)
    assert channel.send(message, "1", "").name == ""
    http_receiver.answer = lambda request: (404, {}, b"no_service")
    with pytest.raises(ChannelError) as refused:
        channel.send(message, "1", "")
    assert str(refused.value) == "the webhook of env:SLACK_HOOK answers 404: no_service"


def test_mail_of_one_thread_refers_to_its_first(mail: MailServer, setup: Setup, message: Message) -> None:
    channel = KINDS["email"].make({"to": ["oncall@example.org", "ada@example.org"]}, setup)
    first = channel.send(message, "11", "")
    channel.send(msgspec.structs.replace(message, title="INC-7: Again\r\nBcc: x@example.org"), "12", first.name)
    one, two = mail.mails
    assert one["Message-ID"] == first.name == "<delivery-11@faultline.example.org>"
    assert one["To"] == "oncall@example.org, ada@example.org" and one["From"] == "faultline@example.org"
    assert one["Subject"] == message.title
    assert "Do next: Restart without gx-02" in one.get_payload() and message.url in one.get_payload()
    assert (two["In-Reply-To"], two["References"]) == (first.name, first.name)
    assert two["Subject"] == "Re: INC-7: Again Bcc: x@example.org" and two["Bcc"] is None


def test_a_mail_server_that_refuses_or_is_away_is_told_apart(
    mail: MailServer, setup: Setup, message: Message, settings: Any
) -> None:
    channel = KINDS["email"].make({"to": ["gone@refused.example"]}, setup)
    with pytest.raises(ChannelError, match="refuses every address: 550 no such user here") as refused:
        channel.send(message, "1", "")
    assert refused.value.permanent
    settings.EMAIL_PORT = 1
    with pytest.raises(ChannelError, match="the mail server can not be used") as away:
        channel.send(message, "1", "")
    assert not away.value.permanent


def test_a_webhook_is_signed_so_that_the_receiver_can_check_it(
    http_receiver: Receiver, setup: Setup, message: Message
) -> None:
    channel = KINDS["webhook"].make({"url": f"{http_receiver.url}/in?a=1", "secret": "env:HOOK_SECRET"}, setup)
    channel.send(message, "42", "")
    (request,) = http_receiver.requests
    assert request.path == "/in?a=1" and request.headers["X-Faultline-Delivery"] == "42"
    assert request.json["id"] == "42" and request.json["facts"]["nodes"] == ["gx-02"]
    at, given = (part.partition("=")[2] for part in request.headers["X-Faultline-Signature"].split(","))
    made = hmac.new(b"between us", at.encode() + b"." + request.body, hashlib.sha256).hexdigest()
    assert hmac.compare_digest(given, made)


@pytest.mark.parametrize(("status", "permanent"), [(301, True), (400, True), (410, True), (429, False), (503, False)])
def test_what_may_pass_is_tried_again_and_a_redirect_is_not_followed(
    http_receiver: Receiver, setup: Setup, message: Message, status: int, permanent: bool
) -> None:
    http_receiver.answer = lambda request: (status, {"Location": f"{http_receiver.url}/elsewhere"}, b"")
    channel = KINDS["webhook"].make({"url": http_receiver.url, "secret": "env:HOOK_SECRET"}, setup)
    with pytest.raises(ChannelError) as error:
        channel.send(message, "1", "")
    assert error.value.permanent == permanent and len(http_receiver.requests) == 1


@pytest.mark.parametrize(
    ("host", "place"),
    [
        ("127.0.0.1", "this machine"), ("localhost", "this machine"), ("[::1]", "this machine"),
        ("0x7f000001", "this machine"), ("10.0.0.8", "a private network"), ("169.254.169.254", "metadata service"),
        ("[64:ff9b::a9fe:a9fe]", "metadata service"),
    ],
)  # fmt: skip
def test_private_networks_are_refused_unless_allowed(message: Message, host: str, place: str) -> None:
    channel = KINDS["webhook"].make({"url": f"http://{host}:9/", "secret": "env:HOOK_SECRET"}, Setup(seconds=3))
    with pytest.raises(ChannelError, match=f"{place}.*; allow it with FAULTLINE_PRIVATE_HOSTS") as error:
        channel.send(message, "1", "")
    assert error.value.permanent


def test_a_star_allows_private_networks_and_still_not_this_machine(http_receiver: Receiver, message: Message) -> None:
    setup = Setup(seconds=3, reach=receivers_reach(["*"]))
    channel = KINDS["webhook"].make({"url": http_receiver.url, "secret": "env:HOOK_SECRET"}, setup)
    with pytest.raises(ChannelError, match="this machine itself"):
        channel.send(message, "1", "")
    assert http_receiver.requests == [] and setup.reach.addresses("10.0.0.8", 80) == ["10.0.0.8"]


def test_a_receiver_that_drips_is_cut_off(http_receiver: Receiver, message: Message) -> None:
    import time

    def slow(request: object) -> tuple[int, dict[str, str], bytes]:
        time.sleep(3)
        return 200, {}, b""

    http_receiver.answer = slow
    setup = Setup(seconds=0.5, reach=receivers_reach(["127.0.0.1"]))
    channel = KINDS["webhook"].make({"url": http_receiver.url, "secret": "env:HOOK_SECRET"}, setup)
    began = time.monotonic()
    with pytest.raises(ChannelError, match="no answer within"):
        channel.send(message, "1", "")
    assert time.monotonic() - began < 2.5


def test_apprise_reaches_what_its_addresses_name(
    http_receiver: Receiver, setup: Setup, message: Message, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAYS", http_receiver.url.replace("http://", "json://") + "/notify")
    channel = KINDS["apprise"].make({"urls": "env:WAYS"}, setup)
    channel.send(message, "1", "")
    (request,) = http_receiver.requests
    assert request.json["title"] == message.title and "Restart without gx-02" in request.json["message"]
    monkeypatch.setenv("WAYS", "nosuchservice://x")
    with pytest.raises(ChannelError, match="env:WAYS: Apprise does not know") as unknown:
        channel.send(message, "1", "")
    assert unknown.value.permanent


@pytest.mark.parametrize(
    ("kind", "config", "key"),
    [
        ("slack", {}, "token"),
        ("slack", {"token": "xoxb-typed-in"}, "token"),
        ("slack", {"token": "env:T"}, "channel"),
        ("slack", {"token": "env:T", "webhook": "env:W", "channel": "C"}, "token"),
        ("email", {}, "to"),
        ("email", {"to": ["nobody"]}, "to"),
        ("email", {"to": ["a@example.org"], "sender": "x"}, "sender"),
        ("webhook", {"url": "https://x.example.org"}, "secret"),
        ("webhook", {"url": "ftp://x.example.org", "secret": "env:S"}, "url"),
        ("webhook", {"url": "https://u:p@x.example.org", "secret": "env:S"}, "url"),
        ("webhook", {"url": "https://x.example.org/\r\nHost: y", "secret": "env:S"}, "url"),
        ("alertmanager", {"url": "http://am.example.org", "username": "u"}, "password"),
        ("alertmanager", {"url": "http://am.example.org", "hours": "soon"}, "hours"),
        ("apprise", {"urls": "slack://typed/in"}, "urls"),
        ("apprise", {"urls": "env:W", "more": "x"}, "more"),
    ],
)
def test_a_configuration_that_can_not_work_names_the_key_and_never_the_value(
    kind: str, config: dict[str, Any], key: str, setup: Setup
) -> None:
    with pytest.raises(ChannelConfigError) as error:
        KINDS[kind].make(config, setup)
    assert error.value.key == key
    assert "xoxb" not in str(error.value) and "slack://" not in str(error.value)


@pytest.mark.parametrize(
    ("value", "seconds"), [("30", 30.0), ("1e9", 3600.0), ("-4", 0.0), ("nan", None), ("soon", None), (None, None)]
)
def test_retry_after_is_read_within_reason(value: str | None, seconds: float | None) -> None:
    assert read_retry_after(value) == seconds
