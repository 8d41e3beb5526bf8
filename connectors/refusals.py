"""Every way in which asking a server goes wrong, in words that an operator can act on."""

from __future__ import annotations

import base64
import contextlib
import email.utils
import re
import ssl
import time
import urllib.parse
from collections.abc import Mapping
from enum import StrEnum

import msgspec
import urllib3
from urllib3.exceptions import NameResolutionError, NewConnectionError, SSLError, TimeoutError

from connectors.base import ConnectorError
from connectors.endpoint import Endpoint

_TITLE = re.compile(r"<title[^>]*>\s*([^<]{1,80})", re.IGNORECASE)


class Kind(StrEnum):
    """What went wrong with a request."""

    DOWN = "down"
    TLS = "tls"
    SLOW = "slow"
    """No whole answer within the time of one request."""
    OVER = "over"
    """The time limit of the whole collection is reached."""
    STOPPED = "stopped"
    DENIED = "denied"
    BUSY = "busy"
    SERVER = "server"
    REJECTED = "rejected"
    """The request itself is wrong, or beyond a limit of the server."""
    ELSEWHERE = "elsewhere"
    """A redirect, a page that isn't there: not the server that was meant."""
    GARBAGE = "garbage"
    TOO_LARGE = "too_large"
    """The answer is larger than this client takes at once."""


_TEMPORARY = {Kind.DOWN, Kind.SLOW, Kind.BUSY, Kind.SERVER}


class HttpError(ConnectorError):
    """A request failed for good. The message says what to change; `detail` is the server's own words."""

    def __init__(
        self, kind: Kind, message: str, *, status: int = 0, detail: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(message, temporary=kind in _TEMPORARY)
        self.kind, self.status, self.detail, self.retry_after = kind, status, detail, retry_after


def unreachable(what: str, url: str, error: BaseException) -> HttpError:
    """Why no answer came, in words."""
    if isinstance(error, SSLError | ssl.SSLError):
        return _untrusted(what, url, error)
    if isinstance(error, NameResolutionError):
        host = urllib.parse.urlsplit(url).hostname
        return HttpError(Kind.DOWN, f"{what}: the name {host} can not be resolved: check url, and this machine's DNS")
    words = str(error).lower()
    if "connection refused" in words:
        why = "refuses connections: it is down, or url names a wrong port"
    elif isinstance(error, NewConnectionError | TimeoutError):
        why = "can not be reached: it is down, or a firewall is in between"
    else:
        why = "broke the connection off in the middle of an answer"
        if url.startswith("https:"):
            why += ", or wants another client certificate (client_cert, client_key)"
    return HttpError(Kind.DOWN, f"{what} at {url} {why}")


def _untrusted(what: str, url: str, error: BaseException) -> HttpError:
    words = str(error)
    if "CERTIFICATE_VERIFY_FAILED" in words:
        why = re.search(r"certificate verify failed: ([^(\]]+)", words)
        reason = why[1].strip() if why else "unknown authority"
        return HttpError(
            Kind.TLS, f"{what} at {url}: its certificate is not trusted ({reason}): set ca_file to the authority's"
        )
    if "ALERT" in words.upper() or "EOF occurred" in words:  # which of both a refused client sees is a matter of luck
        return HttpError(Kind.TLS, f"{what} at {url} refuses this client: check client_cert and client_key")
    if "WRONG_VERSION_NUMBER" in words or "HTTP_REQUEST" in words:
        return HttpError(Kind.TLS, f"{what} at {url} does not speak TLS: use http:// in url, or the TLS port")
    return HttpError(Kind.TLS, f"{what} at {url}: no secure connection: {words.splitlines()[0][:160]}")


def refusal(
    endpoint: Endpoint, target: str, response: urllib3.BaseHTTPResponse, body: bytes, sent: Mapping[str, str]
) -> HttpError:
    """An answer other than 200, in words."""
    status, what, path = response.status, endpoint.what, target.split("?", 1)[0]
    detail = server_words(body, sent)
    said = f"{status}: {detail}" if detail else str(status)
    if status in (401, 407) and endpoint.token is None and endpoint.password is None:
        hint = "set username and password, or token" if "org id" not in detail else "set tenant"
        return HttpError(Kind.DENIED, f"{what} wants a login (HTTP {said}): {hint}", status=status, detail=detail)
    if status in (401, 407):
        which = f"token ({endpoint.token})" if endpoint.token else f"username and password ({endpoint.password})"
        return HttpError(
            Kind.DENIED, f"{what} does not accept the login (HTTP {said}): check {which}", status=status, detail=detail
        )
    if status == 403:
        return HttpError(
            Kind.DENIED,
            f"{what} denies access (HTTP {said}): give this account the right to read, or check tenant",
            status=status,
            detail=detail,
        )
    if 300 <= status < 400:
        place = urllib.parse.urlsplit(response.headers.get("Location", ""))
        to = f"{place.scheme}://{place.netloc}{place.path}" if place.netloc else place.path
        return HttpError(
            Kind.ELSEWHERE,
            f"{what} redirects to {to or 'another address'} (HTTP {status}): set url to {what} itself, "
            "not to a login page or a proxy in front of it",
            status=status,
        )
    if status in (404, 405):
        return HttpError(
            Kind.ELSEWHERE,
            f"{path} is not known at {endpoint.url} (HTTP {status}): check that url is the address of {what}",
            status=status,
            detail=detail,
        )
    wait = _retry_after(response.headers.get("Retry-After"))
    if status == 429:
        return HttpError(
            Kind.BUSY, f"{what} has too many requests (HTTP {said})", status=status, detail=detail, retry_after=wait
        )
    if status >= 500:
        return HttpError(Kind.SERVER, f"{what} failed (HTTP {said})", status=status, detail=detail, retry_after=wait)
    return HttpError(Kind.REJECTED, f"{what} rejects the request (HTTP {said})", status=status, detail=detail)


def server_words(body: bytes, sent: Mapping[str, str] | None = None) -> str:
    """What a server says in an error body, on one line of at most 300 characters, without what was secret in `sent`."""
    words = body.decode("utf-8", "replace")
    try:
        fields = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        fields = None
    if isinstance(fields, dict):
        words = next((str(fields[key]) for key in ("error", "message", "msg") if fields.get(key)), words)
    elif words.lstrip()[:1] == "<":
        title = _TITLE.search(words)
        words = f'a web page, "{title[1].strip()}"' if title else "a web page"
    secret = (sent or {}).get("Authorization", "").partition(" ")[2]
    if secret:
        words = words.replace(secret, "***")
        with contextlib.suppress(ValueError):  # a token is no base64 of user and password
            words = words.replace(base64.b64decode(secret, validate=True).decode().partition(":")[2] or "\0", "***")
    words = " ".join("".join(letter if letter.isprintable() else " " for letter in words).split())
    return words if len(words) <= 300 else words[:300] + "..."


def not_json(what: str, url: str, body: bytes) -> HttpError:
    """For a 200 answer that isn't what was asked for."""
    if body.lstrip()[:1] == b"<":
        return HttpError(
            Kind.GARBAGE,
            f"{url} answers with {server_words(body)} instead of JSON: it leads to a login page or another service; "
            f"set url to {what} itself",
        )
    start = server_words(body[:200])[:60] or "nothing"
    return HttpError(
        Kind.GARBAGE, f"{url} does not answer like {what} (it says: {start}): check that url is the address of {what}"
    )


def _retry_after(value: str | None) -> float | None:
    """Seconds of a Retry-After header, which may be a date."""
    if not value:
        return None
    if value.strip().isdigit():
        return float(value)
    try:
        at = email.utils.parsedate_to_datetime(value)
    except (TypeError, ValueError):
        return None
    return max(at.timestamp() - time.time(), 0.0)
