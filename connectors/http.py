"""One small HTTP client for all connectors that ask a server: time limits that hold, retries that are polite,
errors that say what to change.

Nothing waits longer than its limit: each request has a watchdog that cuts the connection, so that a server that sends
a byte now and then is as bounded as one that says nothing.
"""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

import urllib3
from urllib3.exceptions import HTTPError, NameResolutionError, NewConnectionError, TimeoutError

from connectors.endpoint import Endpoint
from connectors.reach import ANYWHERE, NotAllowed, Reach
from connectors.refusals import HttpError, Kind, refusal, unreachable

CONNECT_SECONDS = 10.0
USER_AGENT = "faultline"
_BLOCK = 64 * 1024
_TRIES = {Kind.DOWN: 3, Kind.BUSY: 8, Kind.SERVER: 4}


class Deadline:
    """A time limit that several requests share, ended early by `stop`."""

    def __init__(self, seconds: float, stop: threading.Event | None = None, *, whole: float | None = None) -> None:
        self.seconds = seconds
        self.whole = seconds if whole is None else whole
        """The limit that people set, of which this may be a part."""
        self._end = time.monotonic() + seconds
        self._stop = stop

    def left(self) -> float:
        """Seconds, never below 0."""
        return 0.0 if self.stopped() else max(self._end - time.monotonic(), 0.0)

    def stopped(self) -> bool:
        return self._stop is not None and self._stop.is_set()

    def part(self, share: float) -> Deadline:
        """A limit of its own for a share (0 to 1) of what is left."""
        return Deadline(self.left() * share, self._stop, whole=self.whole)

    def wait(self, seconds: float) -> None:
        """Sleeps, less when the time is over or `stop` is set."""
        seconds = min(seconds, self.left())
        if self._stop is not None:
            self._stop.wait(seconds)
        else:
            time.sleep(seconds)


class HttpClient:
    """Requests to one endpoint, one after another, over one kept connection. Not shared between threads."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        parts = urllib.parse.urlsplit(endpoint.url)
        self._path = parts.path
        self._socket: list[socket.socket] = []
        self._pool = _pool(endpoint, parts, self._socket)

    def __enter__(self) -> HttpClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._pool.close()

    def get(
        self,
        path: str,
        params: Sequence[tuple[str, str]],
        deadline: Deadline,
        *,
        headers: Mapping[str, str] | None = None,
        max_bytes: int = 64 * 1024**2,
        final: Callable[[HttpError], bool] | None = None,
        post: bool = False,
    ) -> bytes:
        """The body of a 200 answer. Repeats what may pass by itself, as long as `deadline` allows, unless `final` says
        that the caller has a better idea. Raises HttpError, and ConnectorError for secrets that can't be read.
        """
        tries = 0
        while True:
            try:
                return self._once(path, params, deadline, headers or {}, max_bytes, post)
            except HttpError as error:
                tries += 1
                if tries >= _TRIES.get(error.kind, 1) or (final is not None and final(error)):
                    raise
                wait = error.retry_after
                if wait is None:
                    wait = min(0.5 * 2 ** (tries - 1), 30.0) * random.uniform(0.75, 1.25)
                if wait >= deadline.left():
                    asked = f", and asks to wait {error.retry_after:.0f} s" if error.retry_after else ""
                    raise HttpError(
                        error.kind,
                        f"{error}{asked}, for which the time limit leaves no room",
                        status=error.status,
                        detail=error.detail,
                        retry_after=error.retry_after,
                    ) from None
                deadline.wait(wait)

    def _once(
        self,
        path: str,
        params: Sequence[tuple[str, str]],
        deadline: Deadline,
        headers: Mapping[str, str],
        max_bytes: int,
        post: bool,
    ) -> bytes:
        what, allowed = self.endpoint.what, min(self.endpoint.request_seconds, deadline.left())
        if deadline.stopped():
            raise HttpError(Kind.STOPPED, "stopped before it was finished")
        if allowed <= 0:
            raise _over(what, deadline)
        identity = self.endpoint.identity()
        sent = {"User-Agent": USER_AGENT, "Accept": "application/json", "Accept-Encoding": "gzip"}
        sent |= {**self.endpoint.headers, **headers, **identity}
        encoded = urllib.parse.urlencode(params)
        target, body = f"{self._path}{path}", None
        if post:
            body, sent["Content-Type"] = encoded, "application/x-www-form-urlencoded"
        elif encoded:
            target += f"?{encoded}"
        watchdog = Watchdog(allowed, self._socket)
        try:
            with watchdog:
                return self._exchange(target, body, sent, allowed, max_bytes)
        except (HTTPError, OSError) as error:
            late = watchdog.fired or (isinstance(error, TimeoutError) and not isinstance(error, NewConnectionError))
            if late and deadline.stopped():
                raise HttpError(Kind.STOPPED, "stopped before it was finished") from None
            if late and deadline.left() < 0.05:
                raise _over(what, deadline) from None
            if late:
                raise HttpError(
                    Kind.SLOW,
                    f"{what} did not answer within {allowed:.0f} s: it is overloaded, or the question is too large",
                ) from None
            raise unreachable(what, self.endpoint.url, error) from None

    def _exchange(
        self, target: str, body: str | None, headers: dict[str, str], allowed: float, max_bytes: int
    ) -> bytes:
        response = self._pool.urlopen(
            "POST" if body is not None else "GET",
            target,
            body=body,
            headers=headers,
            timeout=urllib3.Timeout(connect=min(CONNECT_SECONDS, allowed), read=allowed),
            retries=False,
            redirect=False,
            preload_content=False,
        )
        whole = False
        try:
            content = bytearray()
            limit = max_bytes if response.status == 200 else _BLOCK
            for block in response.stream(_BLOCK, decode_content=True):
                content += block
                if len(content) > limit:
                    break
            else:
                whole = True
            if response.status == 200 and not whole:
                raise HttpError(Kind.TOO_LARGE, f"{self.endpoint.what} answers with more than {max_bytes} bytes")
            if response.status != 200:
                raise refusal(self.endpoint, target, response, bytes(content[:_BLOCK]), headers)
            return bytes(content)
        finally:
            if whole:
                response.release_conn()
            else:
                response.close()


class Watchdog:
    """Cuts the connection when the time of a request is over."""

    def __init__(self, seconds: float, sockets: list[socket.socket]) -> None:
        self.fired = False
        self._sockets = sockets
        self._timer = threading.Timer(seconds, self._cut)
        self._timer.daemon = True

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def _cut(self) -> None:
        self.fired = True
        for held in self._sockets:
            with contextlib.suppress(OSError):  # already closed
                socket.socket.shutdown(held, socket.SHUT_RDWR)  # not SSLSocket's, which the reading thread still uses


def cuttable_pools(
    held: list[socket.socket], reach: Reach = ANYWHERE, what: str = "the server"
) -> dict[str, type[urllib3.HTTPConnectionPool]]:
    """urllib3's pools by scheme, with the socket of the connection in use in `held`, so that a Watchdog can cut it.
    They connect to addresses within `reach` alone; `what` the server is called when that refuses it.
    """

    class Plain(urllib3.connection.HTTPConnection):
        def _new_conn(self) -> socket.socket:
            return _within(self, super()._new_conn, reach, what)

        def connect(self) -> None:
            super().connect()
            held[:] = [self.sock] if self.sock else []

    class PlainPool(urllib3.HTTPConnectionPool):
        ConnectionCls = Plain

    class Secure(urllib3.connection.HTTPSConnection):
        def _new_conn(self) -> socket.socket:
            return _within(self, super()._new_conn, reach, what)

        def connect(self) -> None:
            super().connect()
            held[:] = [self.sock] if self.sock else []

    class SecurePool(urllib3.HTTPSConnectionPool):
        ConnectionCls = Secure

    return {"http": PlainPool, "https": SecurePool}


def _within(
    connection: urllib3.connection.HTTPConnection, connect: Callable[[], socket.socket], reach: Reach, what: str
) -> socket.socket:
    """A connection to one of the addresses that `reach` lets through, which are looked up once."""
    if reach.is_everywhere:
        return connect()
    name = connection._dns_host  # what urllib3 resolves; `host`, which TLS checks, is it again once connected
    try:
        addresses = reach.addresses(connection.host, connection.port)
    except NotAllowed as refused:
        raise HttpError(Kind.REJECTED, f"{what}: {refused}") from None
    except OSError as error:
        found = error if isinstance(error, socket.gaierror) else socket.gaierror(str(error))
        raise NameResolutionError(name, connection, found) from None
    try:
        for last, address in enumerate(addresses, 1 - len(addresses)):
            connection._dns_host = address
            try:
                return connect()
            except (NewConnectionError, TimeoutError):
                if not last:
                    raise
        raise AssertionError("a host has an address")
    finally:
        connection._dns_host = name


def _pool(endpoint: Endpoint, parts: urllib.parse.SplitResult, held: list[socket.socket]) -> urllib3.HTTPConnectionPool:
    """One connection."""
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    secure: Any = {"ssl_context": endpoint.tls()} if parts.scheme == "https" else {}
    port = parts.port or (443 if secure else 80)
    return cuttable_pools(held, endpoint.reach, endpoint.what)[parts.scheme](
        host, port, maxsize=1, block=True, **secure
    )


def _over(what: str, deadline: Deadline) -> HttpError:
    return HttpError(Kind.OVER, f"{what} was not finished within its part of the time limit ({deadline.whole:.0f} s)")
