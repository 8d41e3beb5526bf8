"""Receiving a body as it comes: decoded, counted, hashed, into a file; never whole in memory."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard
from django.conf import settings
from django.http import UnreadablePostError
from rest_framework.request import Request

from triage.api.problems import Invalid, Problem
from triage.services import spool

_BLOCK = 1 << 20
_DIGEST = re.compile(r"sha-256=:([A-Za-z0-9+/=]+):")
ENCODINGS = ("identity", "gzip", "zstd")


@dataclass(frozen=True)
class Received:
    """A body in a file that goes when the request is answered."""

    path: Path
    size: int
    sha256: str
    """Of the decoded bytes, hexadecimal."""

    @property
    def head(self) -> bytes:
        """The first 64 KiB."""
        with self.path.open("rb") as content:
            return content.read(64 << 10)


@contextmanager
def received(request: Request, suffix: str = ".part") -> Iterator[Received]:
    """The request's body, decoded by its Content-Encoding and checked. Raises Problem.

    `X-Content-SHA256` is checked against the decoded bytes, `Content-Digest` (RFC 9530) against what was sent.
    """
    raw = _Body(request)
    with spool.draft(suffix) as draft:
        digest, size = hashlib.sha256(), 0
        try:
            with draft.open("wb") as out:
                source = _decoded(raw, request.headers.get("Content-Encoding", "identity").strip().lower())
                while block := source.read(_BLOCK):
                    size += len(block)
                    if size > settings.FAULTLINE_MAX_UPLOAD_BYTES:
                        raise too_large()
                    digest.update(block)
                    out.write(block)
        except (gzip.BadGzipFile, zlib.error, EOFError, zstandard.ZstdError) as error:
            raise Problem(
                400, f"body: is no valid {request.headers.get('Content-Encoding')}: {error}", {"body": "damaged"}
            ) from None
        raw.check_end()
        _check_digests(request, raw, digest.hexdigest())
        yield Received(draft, size, digest.hexdigest())


def too_large() -> Problem:
    """413 with the limit."""
    limit = settings.FAULTLINE_MAX_UPLOAD_BYTES
    return Problem(413, f"body: larger than {limit} bytes; send it in parts", {"body": "too large"}, limit_bytes=limit)


class _Body:
    """The bytes as they were sent."""

    def __init__(self, request: Request) -> None:
        self._request = request._request
        length = self._request.META.get("CONTENT_LENGTH") or "0"
        self._length = int(length) if length.isascii() and length.isdigit() else 0
        self._source: Any = self._request
        if self._request.META.get("HTTP_TRANSFER_ENCODING", "").lower() == "chunked":
            if not self._request.META.get("wsgi.input_terminated"):
                raise Problem(411, "This server can't take a body of unknown length.", {"Content-Length": "is needed"})
            self._source = self._request.META["wsgi.input"]  # Django reads nothing without a length
        self._read = 0
        self.digest = hashlib.sha256()

    def read(self, size: int = _BLOCK) -> bytes:
        try:
            block: bytes = self._source.read(size if size >= 0 else _BLOCK)
        except (UnreadablePostError, OSError):
            raise Problem(400, "body: the connection broke off", {"body": "incomplete"}) from None
        self._read += len(block)
        self.digest.update(block)
        return block

    def check_end(self) -> None:
        """Raises Problem when less came than was announced."""
        while self.read():
            pass
        if self._read < self._length:
            raise Problem(400, f"body: only {self._read} of {self._length} bytes came", {"body": "incomplete"})


def _decoded(raw: _Body, encoding: str) -> Any:
    if encoding in ("", "identity"):
        return raw
    if encoding in ("gzip", "x-gzip"):
        return gzip.GzipFile(fileobj=raw, mode="rb")  # type: ignore[call-overload]
    if encoding == "zstd":
        return zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(raw, read_across_frames=True)  # type: ignore[arg-type]
    names = ", ".join(ENCODINGS)
    raise Problem(
        415,
        f"Content-Encoding: {encoding!r} is not one of {names}",
        {"Content-Encoding": f"one of {names}"},
        {"Accept-Encoding": "gzip, zstd"},
    )


def _check_digests(request: Request, raw: _Body, decoded: str) -> None:
    wanted = request.headers.get("X-Content-SHA256", "").strip().lower()
    if wanted and wanted != decoded:
        raise Invalid(**{"X-Content-SHA256": f"the bytes that came have {decoded}"})
    digest = request.headers.get("Content-Digest", "")
    match = _DIGEST.search(digest)
    if match:
        sent = base64.b64encode(raw.digest.digest()).decode()
        if match[1] != sent:
            raise Invalid(**{"Content-Digest": f"the bytes that came have sha-256=:{sent}:"})
