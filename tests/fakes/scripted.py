"""An HTTP server that says what a test tells it to, once a request: for what goes wrong on the way to a server."""

from __future__ import annotations

import json
import threading
import time
import urllib.parse
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Say(NamedTuple):
    """One answer."""

    body: Any = ""
    """Text, or a value that is sent as JSON."""
    status: int = 200
    headers: Mapping[str, str] = {}
    after: float = 0.0
    """Seconds before the first byte."""
    each: float = 0.0
    """Seconds between two bytes."""


class ScriptedServer:
    """`answer(path, parameters)` gives each answer; `requests` holds what came: path, parameters, headers."""

    def __init__(self, answer: Callable[[str, dict[str, str]], Say], *, tls: Any = None) -> None:
        self.requests: list[tuple[str, dict[str, str], dict[str, str]]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._say(b"")

            def do_POST(self) -> None:
                self._say(self.rfile.read(int(self.headers.get("Content-Length", 0))))

            def _say(self, body: bytes) -> None:
                parts = urllib.parse.urlsplit(self.path)
                params = dict(urllib.parse.parse_qsl(parts.query or body.decode()))
                server.requests.append((parts.path, params, {k.lower(): v for k, v in self.headers.items()}))
                said = answer(parts.path, params)
                content = said.body.encode() if isinstance(said.body, str) else json.dumps(said.body).encode()
                try:
                    time.sleep(said.after)
                    self.send_response(said.status)
                    for name, value in said.headers.items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    pieces = [content[i : i + 1] for i in range(len(content))] if said.each else [content]
                    for piece in pieces:
                        self.wfile.write(piece)
                        self.wfile.flush()
                        time.sleep(said.each)
                except OSError:
                    self.close_connection = True  # the client went away

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> ScriptedServer:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
