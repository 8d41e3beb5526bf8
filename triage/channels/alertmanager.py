"""Alertmanager: an incident is an alert that fires until the incident is settled, or nothing is heard of it for long.

API: https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml (POST /api/v2/alerts).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from connectors.base import ConnectorError
from connectors.secrets import Secret
from triage.channels import http
from triage.channels.base import ChannelConfigError, ChannelError, Key, Message, Receipt, Setup, read_config

KEYS = (
    Key(name="url", label="Address", required=True, hint="What comes before /api/v2; not of a load balancer."),
    Key(name="username", label="User", hint="With a password; both may stay empty."),
    Key(name="password", label="Password", secret=True, hint="env:FAULTLINE_CHANNEL_NAME or file:PATH."),
    Key(name="hours", label="Hours that an alert lasts", hint="After its last failure; else 24."),
)
HOURS = 24.0


class AlertmanagerChannel:
    """See docs/notifications.md for labels and annotations."""

    def __init__(self, config: Mapping[str, Any], setup: Setup) -> None:
        """Raises ChannelConfigError."""
        values = read_config(KEYS, config)
        self._url = http.checked_url("url", values["url"].rstrip("/"))
        self._username: str = values["username"]
        self._password: Secret | None = values["password"] or None
        if (self._password is None) != (not self._username):
            raise ChannelConfigError("password", "User and password belong together.")
        try:
            hours = float(values["hours"] or HOURS)
        except ValueError:
            hours = 0.0
        if not 0 < hours <= 24 * 365:
            raise ChannelConfigError("hours", "It must be a number above 0.")
        self._lasts = timedelta(hours=hours)
        self._setup = setup

    def send(self, message: Message, delivery: str, first: str) -> Receipt:
        """Raises ChannelError."""
        headers = {"Content-Type": "application/json"}
        if self._password is not None:
            try:
                pair = f"{self._username}:{self._password.reveal()}".encode()
            except ConnectorError as error:
                raise ChannelError(str(error)) from None
            headers["Authorization"] = "Basic " + base64.b64encode(pair).decode()
        http.post(
            f"{self._url}/api/v2/alerts",
            json.dumps([self._alert(message)]).encode(),
            headers,
            seconds=self._setup.seconds,
            reach=self._setup.reach,
        )
        return Receipt(message.thread)

    def _alert(self, message: Message) -> dict[str, Any]:
        """Labels name the incident and nothing that changes while it lasts, so that every message is the same alert."""
        facts = message.facts
        labels = {
            "alertname": "FaultlineIncident" if message.thread.startswith("incident-") else "FaultlineAttempt",
            "thread": message.thread,
            "domain": str(facts.get("domain") or ""),
            "sub_domain": str(facts.get("sub_domain") or ""),
        }
        at = datetime.fromisoformat(message.at)
        alert: dict[str, Any] = {
            "labels": {name: value for name, value in labels.items() if value},
            "annotations": {
                "summary": message.title,
                "description": "\n".join(message.lines),
                **{name: _flat(facts[name]) for name in ("nodes", "clusters", "severity", "rule") if facts.get(name)},
            },
            "startsAt": message.since or message.at,
            "endsAt": (at if message.settled else at + self._lasts).isoformat(),
        }
        if message.url:
            alert["generatorURL"] = message.url
        return alert


def _flat(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
