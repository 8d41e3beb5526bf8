"""Loki's HTTP API: https://grafana.com/docs/loki/latest/reference/loki-http-api/ (query_range, series, labels)."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from connectors.http import Deadline, HttpClient
from connectors.loki.parser import LokiStream, parse_streams
from connectors.refusals import HttpError, Kind, not_json, server_words

FORWARD, BACKWARD = "forward", "backward"
MAX_PAGE_BYTES = 16 * 1024**2
"""Of one answer, decompressed. A larger one is asked for again in smaller pages."""
CATEGORIZE = {"X-Loki-Response-Encoding-Flags": "categorize-labels"}
"""Keeps structured metadata apart from the labels; a Loki before 3.0 ignores it."""

_TOO_LONG = re.compile(r"time range exceeds the limit \(query length: [^,]*, limit: ([^)]+)\)")
_TOO_MANY = re.compile(r"max entries limit[^(]*\((\d+) ?> ?(\d+)\)")
_TOO_BIG = re.compile(
    r"too many bytes|too large to execute|message larger than max|max number of chunks|too many chunks"
    r"|number of series|context deadline exceeded|request timed out|query timed out|timeout"
)
_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_UNITS |= {"d": 24 * _UNITS["h"], "w": 7 * 24 * _UNITS["h"], "y": 365 * 24 * _UNITS["h"]}


class WindowTooLong(Exception):
    """The server wants a shorter window; `limit_ns` is the longest it takes, when it says so."""

    def __init__(self, error: HttpError, limit_ns: int | None = None) -> None:
        super().__init__(str(error))
        self.error, self.limit_ns = error, limit_ns


class TooManyEntries(Exception):
    """The server gives fewer entries at once; `limit` is the most, when it says so."""

    def __init__(self, error: HttpError, limit: int | None = None) -> None:
        super().__init__(str(error))
        self.error, self.limit = error, limit


class _Names(msgspec.Struct):
    data: list[str] | None = None


class _Series(msgspec.Struct):
    data: list[dict[str, str]] | None = None


class LokiClient:
    """Typed calls. All raise HttpError and ConnectorError."""

    def __init__(self, http: HttpClient, deadline: Deadline) -> None:
        self._http = http
        self.deadline = deadline
        self.warnings: list[str] = []

    def query_range(self, query: str, start: int, end: int, limit: int, direction: str) -> list[LokiStream]:
        """Up to `limit` entries from `start` (inclusive) to `end` (exclusive), in ns. Raises WindowTooLong and
        TooManyEntries besides.
        """
        params = {"query": query, "start": start, "end": end, "limit": limit, "direction": direction}
        try:
            body = self._get("/loki/api/v1/query_range", params, MAX_PAGE_BYTES)
        except HttpError as error:
            raise _as_limit(error) from None
        try:
            answer = parse_streams(body)
        except (msgspec.DecodeError, RecursionError):
            raise not_json("Loki", self._http.endpoint.url, body) from None
        if answer.status != "success":
            raise HttpError(Kind.SERVER, f"Loki failed: {server_words(body)}")
        for warning in answer.warnings or []:
            if warning not in self.warnings:
                self.warnings.append(warning)
        return answer.data.result

    def series(self, selector: str, start: int, end: int) -> list[dict[str, str]]:
        """The label sets of the streams that a selector finds."""
        body = self._get("/loki/api/v1/series", {"match[]": selector, "start": start, "end": end}, MAX_PAGE_BYTES)
        try:
            return msgspec.json.decode(body, type=_Series).data or []
        except (msgspec.DecodeError, RecursionError):
            raise not_json("Loki", self._http.endpoint.url, body) from None

    def labels(self, start: int, end: int) -> list[str]:
        """The names of the labels that the tenant has."""
        body = self._get("/loki/api/v1/labels", {"start": start, "end": end}, MAX_PAGE_BYTES)
        try:
            return msgspec.json.decode(body, type=_Names).data or []
        except (msgspec.DecodeError, RecursionError):
            raise not_json("Loki", self._http.endpoint.url, body) from None

    def _get(self, path: str, params: Mapping[str, object], max_bytes: int) -> bytes:
        pairs = [(key, str(value)) for key, value in params.items()]
        return self._http.get(path, pairs, self.deadline, headers=CATEGORIZE, max_bytes=max_bytes, final=_is_limit)


def _is_limit(error: HttpError) -> bool:
    """Errors that asking the same again won't cure, but asking for less may."""
    return not isinstance(_as_limit(error), HttpError)


def _as_limit(error: HttpError) -> Exception:
    found = _TOO_MANY.search(error.detail)
    if found:
        return TooManyEntries(error, int(found[2]))
    if error.kind is Kind.TOO_LARGE or "message larger than max" in error.detail:
        return TooManyEntries(error)
    found = _TOO_LONG.search(error.detail)
    if found:
        return WindowTooLong(error, duration_ns(found[1]))
    if error.kind is Kind.SLOW or (error.kind in (Kind.REJECTED, Kind.SERVER) and _TOO_BIG.search(error.detail)):
        return WindowTooLong(error)
    return error


def duration_ns(text: str) -> int | None:
    """Go's and Prometheus' durations (721h0m0s, 30d1h) in nanoseconds; None for anything else."""
    total, position = 0.0, 0
    for part in re.finditer(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h|d|w|y)", text):
        if part.start() != position:
            return None
        total, position = total + float(part[1]) * _UNITS[part[2]], part.end()
    return int(total) if position == len(text) and total > 0 else None
