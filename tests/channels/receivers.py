"""Receivers that channels send to: a real HTTP server and a real mail server, each in a thread."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import Message as Mail
from email.policy import default
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from aiosmtpd.controller import Controller

from triage.supervisor.ports import free_port


@dataclass
class Request:
    """What a receiver was sent."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Receiver:
    """An HTTP server that keeps what it is sent; `answer` says what it replies: status, headers, body."""

    url: str
    requests: list[Request] = field(default_factory=list)
    answer: Callable[[Request], tuple[int, dict[str, str], bytes]] = lambda request: (200, {}, b"ok")


@contextmanager
def receiver() -> Iterator[Receiver]:
    kept = Receiver("")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            request = Request(self.path, dict(self.headers.items()), body)
            kept.requests.append(request)
            status, headers, answer = kept.answer(request)
            self.send_response(status)
            for name, value in {"Content-Length": str(len(answer)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    kept.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield kept
    finally:
        server.shutdown()
        server.server_close()


class SlackApi:
    """chat.postMessage as https://docs.slack.dev/reference/methods/chat.postMessage tells of it: HTTP 200 with ok true
    or false, `ts` names a message, 429 with Retry-After when there are too many.
    """

    def __init__(self, token: str, channel: str) -> None:
        self.token, self.channel = token, channel
        self.busy = 0
        self.sent: list[dict[str, Any]] = []

    def __call__(self, request: Request) -> tuple[int, dict[str, str], bytes]:
        if self.busy:
            self.busy -= 1
            return 429, {"Retry-After": "30"}, b'{"ok":false,"error":"ratelimited"}'
        sent = request.json
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return 200, {}, b'{"ok":false,"error":"invalid_auth"}'
        if sent["channel"] != self.channel:
            return 200, {}, b'{"ok":false,"error":"channel_not_found"}'
        if "thread_ts" in sent and sent["thread_ts"] not in [one["ts"] for one in self.sent]:
            return 200, {}, b'{"ok":false,"error":"thread_not_found"}'
        self.sent.append({**sent, "ts": f"17622.{len(self.sent):06d}"})
        return 200, {}, json.dumps({"ok": True, "channel": self.channel, "ts": self.sent[-1]["ts"]}).encode()


@dataclass
class MailServer:
    """A mail server that keeps what it takes; an address at refused.example is refused for good."""

    port: int
    mails: list[Mail] = field(default_factory=list)


@contextmanager
def mail_server() -> Iterator[MailServer]:
    kept = MailServer(0)

    class Handler:
        async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
            if address.endswith("@refused.example"):
                return "550 no such user here"
            envelope.rcpt_tos.append(address)
            return "250 OK"

        async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
            kept.mails.append(message_from_bytes(envelope.content, policy=default))
            return "250 taken"

    kept.port = free_port()
    controller = Controller(Handler(), hostname="127.0.0.1", port=kept.port)
    controller.start()
    try:
        yield kept
    finally:
        controller.stop()
