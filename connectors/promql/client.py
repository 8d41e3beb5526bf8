"""The Prometheus HTTP API, as Prometheus, Mimir, Thanos and VictoriaMetrics serve it:
https://prometheus.io/docs/prometheus/latest/querying/api/
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from connectors.http import Deadline, HttpClient
from connectors.promql.parser import Answer, Result, number_of, read_answer
from connectors.refusals import HttpError, Kind, not_json, server_words

MAX_ANSWER_BYTES = 32 * 1024**2
LONGEST_URL = 4000
"""Longer queries go as a form in the body, which all of the servers take."""
_TOO_MUCH = re.compile(
    r"maximum resolution|too many samples|too many points|too many .*series|time range exceeds|timed? ?out|too large"
    r"|exceeds? .*limit|exceeded .*limit|-search\.max|limit .*exceed|deadline exceeded",
    re.IGNORECASE,
)


class TooMuch(Exception):
    """The server, or this client, wants a smaller question."""

    def __init__(self, error: HttpError) -> None:
        super().__init__(str(error))
        self.error = error


class PromClient:
    """Typed calls. All raise HttpError and ConnectorError, and TooMuch where less can be asked."""

    def __init__(self, http: HttpClient, deadline: Deadline) -> None:
        self._http = http
        self.deadline = deadline
        self.warnings: list[str] = []
        self.infos: list[str] = []
        self.partial = False

    def query_range(self, query: str, start: float, end: float, step: float) -> list[Result]:
        """Samples at `start`, `start + step`, ... up to and with `end` (epoch seconds)."""
        params = [("query", query), ("start", _time(start)), ("end", _time(end)), ("step", _time(step))]
        return self._ask("/api/v1/query_range", params, "matrix")

    def query(self, query: str, at: float) -> list[Result]:
        """Samples of one moment."""
        return self._ask("/api/v1/query", [("query", query), ("time", _time(at))], "vector")

    def count(self, query: str, at: float) -> int:
        """How many series a selector finds at a moment."""
        for result in self.query(f"count({query})", at):
            return number_of(result)
        return 0

    def _ask(self, path: str, params: Sequence[tuple[str, str]], kind: str) -> list[Result]:
        post = sum(len(value) for _, value in params) > LONGEST_URL
        try:
            body = self._http.get(
                path, params, self.deadline, max_bytes=MAX_ANSWER_BYTES, final=_is_too_much, post=post
            )
        except HttpError as error:
            if _is_too_much(error):
                raise TooMuch(error) from None
            raise
        try:
            answer = read_answer(body)
        except (msgspec.DecodeError, RecursionError):
            raise not_json(self._http.endpoint.what, self._http.endpoint.url, body) from None
        if answer.status != "success" or answer.data is None:
            raise HttpError(Kind.SERVER, f"{self._http.endpoint.what} failed: {server_words(body)}")
        if answer.data.resultType != kind:
            raise HttpError(Kind.REJECTED, f"the query gives a {answer.data.resultType}, not a {kind}")
        self._remember(answer)
        return answer.data.result

    def _remember(self, answer: Answer) -> None:
        self.partial = self.partial or answer.isPartial
        for words in answer.warnings or []:
            if words not in self.warnings:
                self.warnings.append(words)
        for words in answer.infos or []:
            if words not in self.infos:
                self.infos.append(words)


def _is_too_much(error: HttpError) -> bool:
    if error.kind in (Kind.SLOW, Kind.TOO_LARGE):
        return True
    return error.kind in (Kind.REJECTED, Kind.SERVER) and bool(_TOO_MUCH.search(error.detail))


def _time(seconds: float) -> str:
    return f"{seconds:.3f}".rstrip("0").rstrip(".")
