from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.channels.receivers import MailServer, Receiver, mail_server, receiver
from triage.channels.base import Message, Setup, receivers_reach


@pytest.fixture
def http_receiver() -> Iterator[Receiver]:
    with receiver() as made:
        yield made


@pytest.fixture
def mail(settings: object) -> Iterator[MailServer]:
    with mail_server() as made:
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"  # type: ignore[attr-defined]
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", made.port  # type: ignore[attr-defined]
        yield made


@pytest.fixture
def setup() -> Setup:
    return Setup(
        sender="faultline@example.org",
        site="https://faultline.example.org",
        seconds=5,
        reach=receivers_reach(["127.0.0.1"]),
    )


@pytest.fixture
def message() -> Message:
    return Message(
        news="opened",
        thread="incident-7",
        title="INC-7: NVLink link down on gx-02 <Xid 149> & more",
        lines=("Hardware, NVLink on gx-02", "Do next: Restart without gx-02"),
        url="https://faultline.example.org/incidents/7/",
        at="2026-11-03T04:30:00+00:00",
        since="2026-11-03T04:22:31+00:00",
        facts={"domain": "hardware", "sub_domain": "nvlink", "nodes": ["gx-02"], "clusters": ["c1"], "severity": None},
    )
