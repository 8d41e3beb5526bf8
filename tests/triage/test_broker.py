"""A worker outlives its broker, whatever it had in its hands."""

from __future__ import annotations

import logging

import pytest
from kombu import Connection, Consumer, Exchange, Producer, Queue
from kombu.common import ignore_errors

from tests.triage.conftest import Broker
from triage import broker as transport

transport.use()
QUEUE = Queue("work", Exchange("work"), routing_key="work")
CONTROL = Queue("control", Exchange("control", type="fanout"), auto_delete=True)
"""A worker listens to orders, too, on a channel of its own."""


def test_a_connection_that_is_lost_with_a_message_at_work_is_let_go_like_any_other(
    own_broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    taken = []
    with Connection(own_broker.url) as sender:
        Producer(sender).publish({"id": 1}, exchange=QUEUE.exchange, routing_key="work", declare=[QUEUE])
    lost = Connection(own_broker.url, transport_options={"socket_timeout": 2})
    Consumer(lost.default_channel, [QUEUE], callbacks=[lambda _, message: taken.append(message)]).consume()
    Consumer(lost.channel(), [CONTROL], callbacks=[lambda *_: None]).consume()
    while not taken:
        lost.drain_events(timeout=5)
    (message,) = taken
    with pytest.raises(TimeoutError):
        while True:
            lost.drain_events(timeout=0.2)  # it has room for another one, and waits for it
    own_broker.kill()
    # what a worker does when it lost its broker (celery.worker.consumer): forget the sockets, then close
    lost.collect(socket_timeout=0.1)
    ignore_errors(lost, lost.close)
    # and what it says of the message when the task has ended: it can't, and goes on
    message.ack_log_error(logging.getLogger("worker"), lost.connection_errors)
    assert "Couldn't ack" in caplog.text and not message.acknowledged
    own_broker.start()
    with Connection(own_broker.url) as anew:
        anew.ensure_connection(max_retries=3)
