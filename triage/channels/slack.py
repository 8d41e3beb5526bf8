"""Slack, by an app's token (chat.postMessage: repeats join their thread) or an incoming webhook (no threads).

Shapes and errors: https://docs.slack.dev/reference/methods/chat.postMessage and
https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from connectors.base import ConnectorError
from connectors.secrets import Secret
from triage.channels import http
from triage.channels.base import ChannelConfigError, ChannelError, Key, Message, Receipt, Setup, read_config

KEYS = (
    Key(
        name="token",
        label="Token of the app",
        secret=True,
        hint="env:FAULTLINE_CHANNEL_NAME or file:PATH; needs the scope chat:write.",
    ),
    Key(name="channel", label="Slack channel", hint="Its id, like C0123456789; the app must be a member."),
    Key(name="webhook", label="Incoming webhook", secret=True, hint="Instead of both; repeats are then not threaded."),
    Key(name="url", label="Address of the API", hint="Only for a proxy; else https://slack.com/api."),
)
API = "https://slack.com/api"
MAX_TEXT = 3000
"""Characters of a section's text."""
_PASSING = {"internal_error", "fatal_error", "service_unavailable", "request_timeout", "ratelimited", "rate_limited"}


class SlackChannel:
    """See docs/notifications.md for the configuration."""

    def __init__(self, config: Mapping[str, Any], setup: Setup) -> None:
        """Raises ChannelConfigError."""
        values = read_config(KEYS, config)
        self._token: Secret | None = values["token"] or None
        self._webhook: Secret | None = values["webhook"] or None
        self._channel: str = values["channel"]
        if (self._token is None) == (self._webhook is None):
            raise ChannelConfigError("token", "Give either the app's token or an incoming webhook.")
        if (self._token is None) != (not self._channel):
            raise ChannelConfigError("channel", "Token and Slack channel belong together.")
        self._url = http.checked_url("url", (values["url"] or API).rstrip("/"))
        self._setup = setup

    def send(self, message: Message, delivery: str, first: str) -> Receipt:
        """Raises ChannelError."""
        try:
            secret = (self._token or self._webhook or Secret("")).reveal()
        except ConnectorError as error:
            raise ChannelError(str(error)) from None
        body: dict[str, Any] = {"text": escape(message.title), "blocks": _blocks(message), "unfurl_links": False}
        if self._webhook is not None:
            self._post(secret, body, {}, shown=f"the webhook of {self._webhook}")
            return Receipt()
        body["channel"] = self._channel
        if first:
            body |= {"thread_ts": first, "reply_broadcast": message.news == "regressed"}
        headers = {"Authorization": f"Bearer {secret}"}
        answer = self._post(f"{self._url}/chat.postMessage", body, headers).json()
        if not isinstance(answer, dict) or not answer.get("ok"):
            why = str(answer.get("error", "")) if isinstance(answer, dict) else ""
            raise ChannelError(f"Slack refuses: {why[:100] or 'no reason given'}", permanent=why not in _PASSING)
        return Receipt(str(answer.get("ts", "")))

    def _post(self, url: str, body: dict[str, Any], headers: dict[str, str], shown: str = "") -> http.Answer:
        return http.post(
            url,
            json.dumps(body).encode(),
            {"Content-Type": "application/json; charset=utf-8", **headers},
            seconds=self._setup.seconds,
            reach=self._setup.reach,
            shown=shown,
        )


def escape(text: str) -> str:
    """Text that Slack shows as it is: no mention, no link."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _blocks(message: Message) -> list[dict[str, Any]]:
    title = f"*{escape(message.title)}*"
    text = "\n".join((title, *map(escape, message.lines)))[:MAX_TEXT]
    blocks: list[dict[str, Any]] = [{"type": "section", "text": {"type": "mrkdwn", "text": text, "verbatim": True}}]
    if message.url:
        link = {"type": "mrkdwn", "text": f"<{escape(message.url)}|Open in Faultline>"}
        blocks.append({"type": "context", "elements": [link]})
    return blocks
