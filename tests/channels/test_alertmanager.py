"""An incident is one alert of a real Alertmanager, from its opening until it is settled."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from tests.peers import leave_out
from tests.peers.alerts import Alertmanager
from tests.peers.metrics import why_not
from triage.channels.base import Message, Setup
from triage.channels.registry import KINDS


@pytest.fixture
def alertmanager(tmp_path: Path) -> Iterator[Alertmanager]:
    leave_out(why_not(Alertmanager.program))
    server = Alertmanager(tmp_path / "alertmanager", [])
    with server:
        yield server


def test_an_incident_is_one_alert_that_ends_when_it_is_settled(
    alertmanager: Alertmanager, setup: Setup, message: Message
) -> None:
    channel = KINDS["alertmanager"].make({"url": alertmanager.url}, setup)
    now = datetime.now(UTC)
    opened = msgspec.structs.replace(message, at=now.isoformat(), since=(now - timedelta(minutes=5)).isoformat())
    channel.send(opened, "1", "")
    channel.send(msgspec.structs.replace(opened, news="repeated", title="INC-7: Again"), "2", "incident-7")
    (alert,) = alertmanager.alerts()
    assert alert["labels"] == {
        "alertname": "FaultlineIncident", "thread": "incident-7", "domain": "hardware", "sub_domain": "nvlink",
    }  # fmt: skip
    assert alert["annotations"]["summary"] == "INC-7: Again" and alert["annotations"]["nodes"] == "gx-02"
    assert alert["generatorURL"] == message.url
    lasts = datetime.fromisoformat(alert["endsAt"]) - now
    assert timedelta(hours=23) < lasts < timedelta(hours=25)
    channel.send(msgspec.structs.replace(opened, news="settled", settled=True), "3", "incident-7")
    deadline = time.monotonic() + 10
    while alertmanager.alerts():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_a_wrong_password_is_told_in_words(alertmanager: Alertmanager, setup: Setup, message: Message) -> None:
    channel = KINDS["alertmanager"].make({"url": f"{alertmanager.url}/elsewhere"}, setup)
    with pytest.raises(Exception, match="answers 404"):
        channel.send(message, "1", "")
