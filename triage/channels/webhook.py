"""A webhook of one's own: JSON over HTTP POST, signed with a shared secret so that the receiver can tell who sent it.

The signature is HMAC-SHA256 over `<seconds>.<body>`; `X-Faultline-Signature: t=<seconds>,v1=<hex>`.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from connectors.base import ConnectorError
from connectors.secrets import Secret
from triage.channels import http
from triage.channels.base import ChannelError, Key, Message, Receipt, Setup, read_config

KEYS = (
    Key(name="url", label="Address", required=True, hint="https://host/path"),
    Key(
        name="secret",
        label="Shared secret",
        required=True,
        secret=True,
        hint="env:FAULTLINE_CHANNEL_NAME or file:PATH.",
    ),
)


class WebhookChannel:
    """See docs/notifications.md for what is sent, and how to check the signature."""

    def __init__(self, config: Mapping[str, Any], setup: Setup) -> None:
        """Raises ChannelConfigError."""
        values = read_config(KEYS, config)
        self._url = http.checked_url("url", values["url"])
        self._secret: Secret = values["secret"]
        self._setup = setup

    def send(self, message: Message, delivery: str, first: str) -> Receipt:
        """Raises ChannelError."""
        try:
            secret = self._secret.reveal()
        except ConnectorError as error:
            raise ChannelError(str(error)) from None
        body = msgspec.json.encode({"id": delivery, **msgspec.to_builtins(message)})
        headers = {
            "Content-Type": "application/json",
            "X-Faultline-Delivery": delivery,
            "X-Faultline-News": message.news,
            "X-Faultline-Signature": signature(secret, body, int(time.time())),
        }
        http.post(self._url, body, headers, seconds=self._setup.seconds, reach=self._setup.reach)
        return Receipt(delivery)


def signature(secret: str, body: bytes, at: int) -> str:
    """The header's value for a body sent at `at`, seconds since 1970."""
    digest = hmac.new(secret.encode(), str(at).encode() + b"." + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"
