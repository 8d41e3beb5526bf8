"""One request to a receiver: no redirects, a time limit that holds, and no way into private networks unless allowed.

The address that was checked is the one that is connected to, so a name that resolves differently the second time gets
nowhere.
"""

from __future__ import annotations

import email.utils
import http.client
import json
import socket
import ssl
import time
import urllib.parse
from collections.abc import Mapping
from typing import Any

import msgspec

from connectors.http import Watchdog
from connectors.reach import NotAllowed, Reach
from triage.channels.base import ChannelConfigError, ChannelError

MAX_ANSWER = 64 * 1024
_BUSY = {408, 425, 429}


class Answer(msgspec.Struct, frozen=True):
    """What a receiver answered, cut at MAX_ANSWER bytes."""

    status: int
    body: bytes

    def json(self) -> Any:
        """The body; None when it is no JSON."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None


def checked_url(key: str, url: str) -> str:
    """An http(s) address with a host and without user or fragment. Raises ChannelConfigError."""
    try:
        parts = urllib.parse.urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable or "@" in parts.netloc or parts.fragment or not url.isascii() or not url.isprintable() or " " in url:
        raise ChannelConfigError(key, "It must be like https://host:port/path, without user and password.")
    return url


def post(url: str, body: bytes, headers: Mapping[str, str], *, seconds: float, reach: Reach, shown: str = "") -> Answer:
    """The answer to a POST; `shown` stands for the address in errors when that is a secret. Raises ChannelError."""
    parts = urllib.parse.urlsplit(url)
    host, shown = parts.hostname or "", shown or f"{parts.scheme}://{parts.netloc}"
    secure = parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    end = time.monotonic() + seconds
    address = _address(host, port, reach, shown)
    held: list[socket.socket] = []
    watchdog = Watchdog(seconds, held)
    try:
        with socket.create_connection(address, timeout=min(10.0, seconds)) as plain:
            held.append(plain)
            with watchdog:
                line = ssl.create_default_context().wrap_socket(plain, server_hostname=host) if secure else plain
                held[:] = [line]
                line.settimeout(max(end - time.monotonic(), 0.1))
                connection = http.client.HTTPConnection(host, port)
                connection.sock = line
                connection.request("POST", target, body, {"User-Agent": "faultline", **headers})
                response = connection.getresponse()
                answer = Answer(response.status, response.read(MAX_ANSWER))
                retry_after = response.headers.get("Retry-After")
                connection.close()
    except ssl.SSLCertVerificationError as error:
        raise ChannelError(f"{shown}: its certificate is not trusted: {error.verify_message}") from None
    except (OSError, http.client.HTTPException) as error:
        late = watchdog.fired or isinstance(error, TimeoutError)
        why = f"no answer within {seconds:.0f} s" if late else _words(error)
        raise ChannelError(f"{shown}: {why}") from None
    if not 200 <= answer.status < 300:
        said = " ".join(answer.body[:300].decode("utf-8", "replace").split())[:200]
        raise ChannelError(
            f"{shown} answers {answer.status}{f': {said}' if said else ''}",
            permanent=300 <= answer.status < 500 and answer.status not in _BUSY,
            retry_after=read_retry_after(retry_after),
        )
    return answer


def read_retry_after(value: str | None) -> float | None:
    """Seconds of a Retry-After header, at most an hour; None without one that can be read."""
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, TypeError):
            return None
    return min(max(seconds, 0.0), 3600.0) if seconds == seconds else None


def _address(host: str, port: int, reach: Reach, shown: str) -> tuple[str, int]:
    """The first of the host's addresses that may be connected to. Raises ChannelError."""
    try:
        return reach.addresses(host, port)[0], port
    except OSError:
        raise ChannelError(f"{shown}: the name {host} can not be resolved") from None
    except NotAllowed as refused:
        raise ChannelError(f"{shown}: {refused}", permanent=True) from None


def _words(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "refuses connections: it is down, or the address names a wrong port"
    if isinstance(error, http.client.HTTPException):
        return "does not speak HTTP"
    return (
        f"broke the connection off: {error.strerror}" if isinstance(error, OSError) and error.strerror else "broke off"
    )
