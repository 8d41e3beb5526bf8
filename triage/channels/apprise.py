"""Everything else that Apprise reaches: Teams, Discord, Matrix, PagerDuty, Opsgenie, ntfy and a hundred more.

Its addresses hold secrets (https://github.com/caronc/apprise/wiki), so they stand behind a reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connectors.base import ConnectorError
from connectors.secrets import Secret
from triage.channels.base import ChannelError, Key, Message, Receipt, Setup, read_config

KEYS = (
    Key(
        name="urls",
        label="Apprise addresses",
        required=True,
        secret=True,
        hint="env:FAULTLINE_CHANNEL_NAME or file:PATH of one or several, parted by spaces.",
    ),
)


class AppriseChannel:
    """See docs/notifications.md."""

    def __init__(self, config: Mapping[str, Any], setup: Setup) -> None:
        """Raises ChannelConfigError."""
        self._urls: Secret = read_config(KEYS, config)["urls"]

    def send(self, message: Message, delivery: str, first: str) -> Receipt:
        """Raises ChannelError."""
        import apprise  # a hundred services: half a second that only who uses it pays

        types = {"settled": apprise.NotifyType.SUCCESS, "regressed": apprise.NotifyType.FAILURE}
        try:
            urls = self._urls.reveal().split()
        except ConnectorError as error:
            raise ChannelError(str(error)) from None
        receivers = apprise.Apprise()
        if sum(bool(receivers.add(url)) for url in urls) < len(urls):
            raise ChannelError(f"{self._urls}: Apprise does not know one of these addresses", permanent=True)
        body = "\n".join((*message.lines, message.url)).strip() or message.title
        told = receivers.notify(
            body=body,
            title=message.title,
            notify_type=types.get(message.news, apprise.NotifyType.WARNING),
            body_format=apprise.NotifyFormat.TEXT,
        )
        if not told:
            raise ChannelError(f"{self._urls}: a receiver did not take it; the worker's log says more")
        return Receipt()
