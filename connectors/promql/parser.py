"""Answers of query and query_range: series whose samples stay the bytes that came, with what is told of them.

https://prometheus.io/docs/prometheus/latest/querying/api/#expression-query-result-formats
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec


class Result(msgspec.Struct):
    """One series; its samples stay as they came: `[[<time>,"<value>"],...]`, or one pair."""

    metric: dict[str, str] = {}
    values: msgspec.Raw = msgspec.Raw(b"")
    value: msgspec.Raw = msgspec.Raw(b"")


class _Data(msgspec.Struct):
    resultType: str
    result: list[Result]


class Answer(msgspec.Struct):
    """The answer of query and query_range."""

    status: str
    data: _Data | None = None
    warnings: list[str] | None = None
    infos: list[str] | None = None
    isPartial: bool = False
    """VictoriaMetrics' word for an answer without some of its storage nodes."""


@dataclass(frozen=True, slots=True)
class Samples:
    """One series' samples without the brackets around all of them: `[<time>,"<value>"],...`."""

    inner: bytes
    count: int
    first: float
    last: float
    """Epoch seconds."""


def read_answer(body: bytes) -> Answer:
    """Raises msgspec.DecodeError or RecursionError for what is no such answer."""
    return msgspec.json.decode(body, type=Answer)


def samples_of(result: Result) -> Samples | None:
    """None for a native histogram, which has none of these."""
    content = bytes(result.values) or b"[" + bytes(result.value) + b"]"
    inner = content.strip()[1:-1]
    if not inner:
        return None
    return Samples(inner, inner.count(b"["), _time(inner), _time(inner[inner.rindex(b"[") :]))


def number_of(result: Result) -> int:
    """The value of a series that counts, of one moment."""
    pair = msgspec.json.decode(result.value)
    return int(float(pair[1]))


def _time(pair: bytes) -> float:
    return float(pair[1 : pair.index(b",")])
