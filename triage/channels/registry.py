"""The kinds of channels: what each is configured with, and what makes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from triage.channels import alertmanager, apprise, email, slack, webhook
from triage.channels.base import Channel, Key, Setup


class Kind(msgspec.Struct, frozen=True):
    """One kind of channel."""

    keys: Sequence[Key]
    make: Callable[[Mapping[str, Any], Setup], Channel]
    """Raises ChannelConfigError."""


KINDS: dict[str, Kind] = {
    "slack": Kind(slack.KEYS, slack.SlackChannel),
    "email": Kind(email.KEYS, email.EmailChannel),
    "webhook": Kind(webhook.KEYS, webhook.WebhookChannel),
    "alertmanager": Kind(alertmanager.KEYS, alertmanager.AlertmanagerChannel),
    "apprise": Kind(apprise.KEYS, apprise.AppriseChannel),
}
