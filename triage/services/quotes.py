"""Lines of a stream quoted into a comment or a verdict, read from the stream itself and never from the request."""

from __future__ import annotations

import hashlib
import re
from typing import Any, TypedDict

from triage.models import Stream
from triage.selectors.streams import StreamGone, get_stream, stream_lines
from triage.services.facts import keepable

MAX_LINES = 30
MAX_CHARACTERS = 600
"""Of each line; the rest stands in the stream."""
_FORM = re.compile(r"(?:(?P<attempt>\d{1,15}):)?(?P<stream>.{1,1024}):L?(?P<first>\d{1,12})(?:-L?(?P<last>\d{1,12}))?")


class QuoteRefused(ValueError):
    """These lines can't be quoted; one sentence that says why."""


class Quote(TypedDict):
    """Quoted lines as they are kept."""

    attempt: int
    stream: str
    first: int
    last: int
    lines: list[str]
    sha256: str
    """Of the quoted lines, joined by line feeds: shows later whether the stream still says so."""


def read_quote(form: str, attempt_id: int | None = None) -> Quote:
    """The lines that `syslog/node-02.log:125-131` names; with `48:` before it those of attempt 48.

    Raises QuoteRefused.
    """
    match = _FORM.fullmatch(form.strip())
    if match is None:
        raise QuoteRefused(f"“{form[:80]}” names no lines. Write stream:line or stream:from-to.")
    return read_lines(attempt_id, match)


def read_lines(attempt_id: int | None, match: re.Match[str]) -> Quote:
    """The lines of a matched form."""
    first = int(match["first"])
    last = int(match["last"] or first)
    if not 0 < first <= last:
        raise QuoteRefused("Line numbers begin at 1, the first before the last.")
    if last - first >= MAX_LINES:
        raise QuoteRefused(f"At most {MAX_LINES} lines can be quoted at once.")
    stream = _stream(attempt_id, match)
    if last > stream.lines:
        raise QuoteRefused(f"{stream.name} has {stream.lines:,} lines.")
    try:
        window = stream_lines(stream, first, last - first + 1)
    except StreamGone:
        raise QuoteRefused(f"{stream.name} is no longer kept.") from None
    lines = [keepable(_cut(line.text)) for line in window.lines]
    digest = hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()
    return Quote(
        attempt=stream.attempt_id, stream=stream.name, first=window.first, last=window.last, lines=lines, sha256=digest
    )


def _stream(attempt_id: int | None, match: re.Match[str]) -> Stream:
    name, prefix = match["stream"], match["attempt"]
    tries: list[tuple[int, str]] = []
    if prefix is not None:
        tries.append((int(prefix), name))
    if attempt_id is not None:
        tries.append((attempt_id, f"{prefix}:{name}" if prefix is not None else name))
    for pk, wanted in tries:
        try:
            return get_stream(pk, wanted)
        except (Stream.DoesNotExist, OverflowError, ValueError):
            continue
    raise QuoteRefused(f"There is no stream “{name[:80]}” here.")


def _cut(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else text[:MAX_CHARACTERS] + "…"


def quote_form(quote: dict[str, Any] | Quote) -> str:
    """The form that `read_quote` reads back."""
    span = f"{quote['first']}" if quote["first"] == quote["last"] else f"{quote['first']}-{quote['last']}"
    return f"{quote['attempt']}:{quote['stream']}:{span}"
