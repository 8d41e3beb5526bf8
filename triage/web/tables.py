"""Tables as CSV, streamed while they are read."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from typing import Any

from django.http import StreamingHttpResponse
from django.utils import timezone

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def harmless(value: Any) -> Any:
    """Text that a spreadsheet would run as a formula gets an apostrophe in front."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def csv_answer(name: str, columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> StreamingHttpResponse:
    """A file to download, `name` with the time of now."""
    return download(csv_lines(columns, rows), "text/csv; charset=utf-8", name, "csv")


def download(parts: Iterable[str], content_type: str, name: str, kind: str) -> StreamingHttpResponse:
    answer = StreamingHttpResponse(parts, content_type=content_type)
    answer.headers["Content-Disposition"] = f'attachment; filename="{name}-{timezone.now():%Y%m%d-%H%M}.{kind}"'
    answer.headers["X-Accel-Buffering"] = "no"
    return answer


def csv_lines(columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> Iterator[str]:
    writer = csv.writer(_Line())
    yield writer.writerow(columns)
    for row in rows:
        yield writer.writerow([harmless(value) for value in row])


class _Line:
    """What csv writes to; each row is taken out as soon as it is there."""

    def write(self, text: str) -> str:
        return text
