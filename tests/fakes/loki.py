"""A Loki that answers by its API reference, for tests: https://grafana.com/docs/loki/latest/reference/loki-http-api/

What it holds to:
- `GET|POST /loki/api/v1/query_range`: `start` inclusive, `end` exclusive, both in nanoseconds; `limit` 100 by default,
  over all streams together; `direction` backward by default. Items of `values` are sorted by time, oldest first when
  forward, newest first when backward; entries of one stream at one nanosecond keep the order in which they were
  pushed (backward: reversed). Streams without an entry in the answer are not in it.
- Structured metadata: the third element of a value when `X-Loki-Response-Encoding-Flags: categorize-labels` was sent
  (under `structuredMetadata`), else merged into the stream's labels, which then splits streams.
- `GET|POST /loki/api/v1/series` (`match[]`, stream selectors only), `GET /loki/api/v1/labels`,
  `POST /loki/api/v1/push` (JSON; 204; an entry with time, line and metadata of one that is there is dropped).
- Errors are plain text, as Loki writes them (docs: "Troubleshoot query errors"): 400 `parse error ...`, `max entries
  limit per query exceeded, limit > max_entries_limit_per_query (N > M)`, `the query time range exceeds the limit (query
  length: X, limit: Y)`, `the query would read too many bytes ...`, 401 `no org id`, 429 `too many outstanding
  requests`, 404.
- A selector needs a matcher that doesn't match the empty value; label regular expressions are anchored at both ends;
  line filters are not. Anything of LogQL beyond matchers and line filters is refused, not guessed.

What it can't be: parallel queriers, retention, chunk limits of bytes other than by `faults`.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import threading
import time
import urllib.parse
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from typing import Any, NamedTuple

import msgspec

_MATCHER = re.compile(r'\s*([A-Za-z_]\w*)\s*(=~|!~|!=|=)\s*("(?:[^"\\]|\\.)*"|`[^`]*`)\s*(,|\})')
_FILTER = re.compile(r'\s*(\|=|!=|\|~|!~)\s*("(?:[^"\\]|\\.)*"|`[^`]*`)')


class Refused(Exception):
    def __init__(self, status: int, body: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(body)
        self.status, self.body, self.headers = status, body, dict(headers or {})


class Entry(NamedTuple):
    ns: int
    line: str
    metadata: Mapping[str, str] = {}


class Fault(NamedTuple):
    """Instead of the next answer: an error, or (with status 0) a delay in seconds before the real one."""

    status: int
    body: str = ""
    headers: Mapping[str, str] = {}
    seconds: float = 0.0
    trickle: bool = False
    """Sends the body a byte at a time, a tenth of a second apart."""


class _Stream:
    def __init__(self, labels: Mapping[str, str]) -> None:
        self.labels = dict(labels)
        self.entries: Sequence[Entry] = []
        self.settled = True

    def settle(self) -> Sequence[Entry]:
        if not self.settled:
            ordered, seen, at = [], set(), None
            for entry in sorted(self.entries, key=lambda entry: entry.ns):
                if entry.ns != at:
                    at, seen = entry.ns, set()
                key = (entry.line, tuple(sorted(entry.metadata.items())))
                if key not in seen:
                    seen.add(key)
                    ordered.append(entry)
            self.entries, self.settled = ordered, True
        return self.entries


class FakeLoki:
    """Use as a context; `url` is where it listens."""

    def __init__(
        self,
        *,
        max_entries: int = 5000,
        max_window_ns: int = 721 * 3600 * 10**9,
        tenants: Iterable[str] | None = None,
        basic: tuple[str, str] | None = None,
        bearer: str | None = None,
        max_bytes: int | None = None,
        tls: Any = None,
    ) -> None:
        self.max_entries, self.max_window_ns, self.max_bytes = max_entries, max_window_ns, max_bytes
        self.tenants = None if tenants is None else set(tenants)
        self.basic, self.bearer = basic, bearer
        self.faults: deque[Fault] = deque()
        self.always: Fault | None = None
        self.requests: list[tuple[str, dict[str, str], dict[str, str]]] = []
        """Path, parameters and headers of each request."""
        self._streams: dict[tuple[str, tuple[tuple[str, str], ...]], _Stream] = {}
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self) -> FakeLoki:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def push(self, labels: Mapping[str, str], entries: Iterable[Sequence[Any]], tenant: str = "fake") -> None:
        """Entries as (ns, line) or (ns, line, structured metadata)."""
        with self._lock:
            stream = self._stream(labels, tenant)
            stream.entries = [*stream.entries, *(Entry(*entry) for entry in entries)]
            stream.settled = False

    def hold(self, labels: Mapping[str, str], entries: Sequence[Entry], tenant: str = "fake") -> None:
        """A stream whose entries are made when they are asked for: any sorted sequence."""
        self._stream(labels, tenant).entries = entries

    def _stream(self, labels: Mapping[str, str], tenant: str) -> _Stream:
        return self._streams.setdefault((tenant, tuple(sorted(labels.items()))), _Stream(labels))

    # requests

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                fake._serve(self, b"")

            def do_POST(self) -> None:
                fake._serve(self, self.rfile.read(int(self.headers.get("Content-Length", 0))))

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler

    def _serve(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        parts = urllib.parse.urlsplit(handler.path)
        is_form = handler.headers.get("Content-Type", "").startswith("application/x-www-form-urlencoded")
        pairs = urllib.parse.parse_qsl(parts.query + ("&" + body.decode() if is_form else ""), keep_blank_values=True)
        headers = {name.lower(): value for name, value in handler.headers.items()}
        self.requests.append((parts.path, dict(pairs), headers))
        fault = self.faults.popleft() if self.faults else self.always
        try:
            if fault is not None:
                time.sleep(fault.seconds)
                if fault.status:
                    _send(handler, fault.status, fault.body.encode(), fault.headers, trickle=fault.trickle)
                    return
            tenants = self._admit(headers)
            answer = self._answer(handler.command, parts.path, dict(pairs), body, headers, tenants)
            if answer is None:
                _send(handler, 204, b"", {})
                return
            zipped = "gzip" in headers.get("accept-encoding", "") and len(answer) > 1400
            extra = {"Content-Type": "application/json; charset=UTF-8"}
            if zipped:
                answer, extra["Content-Encoding"] = gzip.compress(answer, 1), "gzip"
            _send(handler, 200, answer, extra)
        except Refused as refused:
            extra = {"Content-Type": "text/plain; charset=utf-8", **refused.headers}
            _send(handler, refused.status, f"{refused.body}\n".encode(), extra)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the client went away

    def _admit(self, headers: Mapping[str, str]) -> set[str]:
        sent = headers.get("authorization", "")
        if self.basic and sent != "Basic " + base64.b64encode(":".join(self.basic).encode()).decode():
            raise Refused(401, "Unauthorized", {"WWW-Authenticate": 'Basic realm="loki"'})
        if self.bearer and sent != f"Bearer {self.bearer}":
            raise Refused(401, "Unauthorized", {"WWW-Authenticate": "Bearer"})
        if self.tenants is None:
            return {"fake"}  # auth_enabled: false has one tenant of this name
        asked = set(filter(None, headers.get("x-scope-orgid", "").split("|")))
        if not asked:
            raise Refused(401, "no org id")
        return asked & self.tenants

    def _answer(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        body: bytes,
        headers: Mapping[str, str],
        tenants: set[str],
    ) -> bytes | None:
        with self._lock:
            if path == "/loki/api/v1/query_range":
                flags = headers.get("x-loki-response-encoding-flags", "").split(",")
                return self._query_range(params, tenants, "categorize-labels" in flags)
            if path == "/loki/api/v1/series":
                return self._series(params, tenants)
            if path == "/loki/api/v1/labels":
                start, end = self._times(params)
                names = {name for stream in self._all(tenants) if _any(stream, start, end) for name in stream.labels}
                return json.dumps({"status": "success", "data": sorted(names)}).encode()
            if path == "/loki/api/v1/push" and method == "POST":
                for pushed in json.loads(body)["streams"]:
                    stream = self._stream(pushed["stream"], next(iter(tenants)))
                    entries = [Entry(int(value[0]), *value[1:]) for value in pushed["values"]]
                    stream.entries, stream.settled = [*stream.entries, *entries], False
                return None
        raise Refused(404, "404 page not found")

    def _all(self, tenants: set[str]) -> list[_Stream]:
        return [stream for (tenant, _), stream in self._streams.items() if tenant in tenants]

    def _times(self, params: Mapping[str, str]) -> tuple[int, int]:
        now = time.time_ns()
        try:
            start, end = int(params.get("start", now - 3600 * 10**9)), int(params.get("end", now))
        except ValueError as error:
            raise Refused(400, f'could not parse "start" or "end": {error}') from None
        if end < start:
            raise Refused(400, "end timestamp must not be before or equal to start time")
        if end - start > self.max_window_ns:
            raise Refused(
                400,
                f"the query time range exceeds the limit (query length: {_go(end - start)}, "
                f"limit: {_go(self.max_window_ns)})",
            )
        return start, end

    def _query_range(self, params: Mapping[str, str], tenants: set[str], categorize: bool) -> bytes:
        select, keeps = parse_logql(params.get("query", ""))
        try:
            limit = int(params.get("limit", "100"))
        except ValueError:
            raise Refused(400, f'strconv.Atoi: parsing "{params["limit"]}": invalid syntax') from None
        direction = params.get("direction", "backward").lower()
        if direction not in ("forward", "backward"):
            raise Refused(400, f"invalid direction '{direction}'")
        if limit <= 0:
            raise Refused(400, "limit must be a positive value")
        if self.max_entries and limit > self.max_entries:
            raise Refused(
                400,
                "max entries limit per query exceeded, limit > max_entries_limit_per_query "
                f"({limit} > {self.max_entries})",
            )
        start, end = self._times(params)
        if end == start:
            raise Refused(400, "end timestamp must not be before or equal to start time")
        chosen = [stream for stream in self._all(tenants) if select(stream.labels)]
        if self.max_bytes is not None:
            size = sum(len(entry.line) for stream in chosen for entry in _between(stream, start, end, True))
            if size > self.max_bytes:
                raise Refused(
                    400,
                    f"the query would read too many bytes (query: {size} B, limit: {self.max_bytes} B); consider "
                    "adding more specific stream selectors or reduce the time range of the query",
                )
        forward = direction == "forward"
        found: dict[tuple[tuple[str, str], ...], list[Any]] = {}
        keys = [tuple(sorted(stream.labels.items())) for stream in chosen]
        heads = [
            (entry.ns if forward else -entry.ns, index, entry)
            for index, stream in enumerate(chosen)
            for entry in islice(filter(keeps, _between(stream, start, end, forward)), limit)
        ]
        heads.sort(key=lambda head: head[:2])  # stable: a stream's entries of one nanosecond stay in their order
        for _, index, entry in heads[:limit]:
            labels = chosen[index].labels
            if categorize:
                extra = {"structuredMetadata": entry.metadata} if entry.metadata else {}
                value: list[Any] = [str(entry.ns), entry.line, extra]
            else:
                labels, value = {**labels, **entry.metadata}, [str(entry.ns), entry.line]
            key = keys[index] if categorize else tuple(sorted(labels.items()))
            found.setdefault(key, []).append(value)
        data: dict[str, Any] = {"resultType": "streams"}
        if categorize:
            data["encodingFlags"] = ["categorize-labels"]
        data["result"] = [{"stream": dict(labels), "values": values} for labels, values in found.items()]
        data["stats"] = {"summary": {"totalEntriesReturned": min(len(heads), limit)}}
        return msgspec.json.encode({"status": "success", "data": data})

    def _series(self, params: Mapping[str, str], tenants: set[str]) -> bytes:
        selector = params.get("match[]", params.get("match", ""))
        select, keeps = parse_logql(selector)
        if keeps is not None:
            raise Refused(400, "only label matchers are supported")
        start, end = self._times(params)
        data = [stream.labels for stream in self._all(tenants) if select(stream.labels) and _any(stream, start, end)]
        return json.dumps({"status": "success", "data": data}).encode()


def _between(stream: _Stream, start: int, end: int, forward: bool) -> Iterator[Entry]:
    entries = stream.settle()
    low = bisect_left(entries, start, key=lambda entry: entry.ns)
    high = bisect_left(entries, end, key=lambda entry: entry.ns)
    return map(entries.__getitem__, range(low, high) if forward else range(high - 1, low - 1, -1))


def _any(stream: _Stream, start: int, end: int) -> bool:
    return next(_between(stream, start, end, True), None) is not None


def parse_logql(query: str) -> tuple[Callable[[Mapping[str, str]], bool], Callable[[Entry], bool] | None]:
    """A selector and line filters as predicates of labels and line. Raises Refused."""
    text = query.strip()
    if not text.startswith("{"):
        raise Refused(400, f"parse error at line 1, col 1: syntax error: unexpected {text[:10] or '$end'}")
    matchers, position = [], 1
    while True:
        found = _MATCHER.match(text, position)
        if not found:
            raise Refused(400, f"parse error at line 1, col {position + 1}: syntax error: unexpected token")
        matchers.append((found[1], found[2], _unquote(found[3])))
        position = found.end()
        if found[4] == "}":
            break
    if not any(_needs_value(operator, value) for _, operator, value in matchers):
        raise Refused(
            400,
            "parse error : queries require at least one regexp or equality matcher that does not have an "
            'empty-compatible value. For instance, app=~".*" does not meet this requirement, but app=~".+" will',
        )
    filters = []
    while text[position:].strip():
        found = _FILTER.match(text, position)
        if not found:
            raise Refused(400, f"parse error at line 1, col {position + 1}: this stage is not known to the fake")
        filters.append((found[1], _unquote(found[2])))
        position = found.end()

    def select(labels: Mapping[str, str]) -> bool:
        return all(_matches(operator, value, labels.get(name, "")) for name, operator, value in matchers)

    def keeps(entry: Entry) -> bool:
        return all(_keeps(operator, value, entry.line) for operator, value in filters)

    return select, keeps if filters else None


def _unquote(text: str) -> str:
    return text[1:-1] if text[0] == "`" else str(json.loads(re.sub(r"\\x([0-9a-f]{2})", r"\\u00\1", text)))


def _regex(value: str) -> re.Pattern[str]:
    try:
        return re.compile(value)
    except re.error as error:
        raise Refused(400, f"error parsing regexp: {error}") from None


def _matches(operator: str, value: str, label: str) -> bool:
    same = label == value if operator in ("=", "!=") else _regex(value).fullmatch(label) is not None
    return same is not operator.startswith("!")


def _needs_value(operator: str, value: str) -> bool:
    return operator in ("=", "=~") and not _matches(operator, value, "")


def _keeps(operator: str, value: str, line: str) -> bool:
    there = value in line if operator in ("|=", "!=") else _regex(value).search(line) is not None
    return there is not operator.startswith("!")


def _go(ns: int) -> str:
    """As Go prints a duration."""
    seconds, rest = divmod(ns, 10**9)
    return f"{seconds // 3600}h{seconds // 60 % 60}m{seconds % 60}{f'.{rest:09d}'.rstrip('0') if rest else ''}s"


def _send(
    handler: BaseHTTPRequestHandler, status: int, body: bytes, headers: Mapping[str, str], *, trickle: bool = False
) -> None:
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    if not trickle:
        handler.wfile.write(body)
        return
    for index in range(len(body)):
        handler.wfile.write(body[index : index + 1])
        handler.wfile.flush()
        time.sleep(0.1)
