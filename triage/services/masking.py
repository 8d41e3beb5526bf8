"""Secrets are hidden before a stream is stored: each byte of a secret becomes an asterisk.

Lengths and line ends stay, so byte offsets and line numbers of the original hold. Two steps: one linear pass over a
piece finds the few lines that could hold a secret (hyperscan), then bounded regexes look at those lines alone.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator
from functools import cache

import hyperscan

from triage.services.secret_shapes import PRIVATE_KEY, PRIVATE_KEY_TRIGGER, SHAPES

MIN_NAME = 3
SYSTEM_NAMES = frozenset({
    "root", "admin", "administrator", "daemon", "nobody", "user", "users", "ubuntu", "debian", "centos", "rocky",
    "ec2-user", "slurm", "munge", "mpi", "nvidia", "cuda", "docker", "kube", "system", "service", "job", "jobs",
    "batch", "train", "training", "test", "host", "node", "rank", "error", "none", "null",
})  # fmt: skip
"""Accounts that name nobody, and words that logs are full of."""


class SecretMask:
    """Hides secrets in one stream, piece after piece in order; pieces end at line ends where they can.

    Holds state: a private key spans lines. `masked` counts what was hidden.
    """

    def __init__(self) -> None:
        self.masked = 0
        self._in_key = False

    def __call__(self, piece: bytes) -> bytes:
        suspects = _suspect_lines(piece)
        if not suspects and not self._in_key:
            return piece
        hidden = bytearray(piece)
        marks: list[tuple[int, int]] = []
        for start, end in suspects:
            marks += self._in_line(piece, start, end)
        for start, end in _merged(marks):
            hidden[start:end] = b"*" * (end - start)
            self.masked += 1
        self._hide_keys(hidden)
        return bytes(hidden)

    def _in_line(self, piece: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
        for shape in SHAPES:
            for found in shape.hides.finditer(piece, start, end):
                group = found.lastindex or 0
                if found[group].strip(b"*"):
                    yield found.span(group)

    def _hide_keys(self, hidden: bytearray) -> None:
        """What stands between the first and the last line of a private key."""
        at = 0
        for found in [*PRIVATE_KEY.finditer(bytes(hidden)), None]:
            if self._in_key:
                stop = len(hidden) if found is None else found.start()
                hidden[at:stop] = re.sub(rb"[^\s]", b"*", bytes(hidden[at:stop]))
            if found is not None:
                begins = found[1] == b"BEGIN"
                self.masked += begins and not self._in_key
                self._in_key, at = begins, found.end()


class NameMask:
    """Hides names of people in pieces of a stream, wherever they stand as a word: in paths, in prompts. Lengths stay.

    Names that are words of every log (`root`), or too short to be told from one, are left alone.
    """

    def __init__(self, names: Iterable[str]) -> None:
        known = {name for name in names if len(name) >= MIN_NAME and name.lower() not in SYSTEM_NAMES}
        forms = sorted((re.escape(name.encode("utf-8", "surrogateescape")) for name in known), key=len, reverse=True)
        self._names = (
            re.compile(rb"(?i)(?<![A-Za-z0-9])(?:" + b"|".join(forms) + rb")(?![A-Za-z0-9])") if forms else None
        )

    @property
    def hides(self) -> bool:
        """Whether there is a name to hide."""
        return self._names is not None

    def __call__(self, piece: bytes) -> bytes:
        return self._names.sub(lambda found: b"*" * len(found[0]), piece) if self._names else piece


def mask_piece(piece: bytes) -> bytes:
    """A piece of a stream with its secrets hidden, taken by itself. Length and line ends stay."""
    return SecretMask()(piece)


def mask_text(text: str) -> str:
    """A short text (a name, a scheduler's reason, a line for a notification) with its secrets hidden."""
    return SecretMask()(text.encode("utf-8", "surrogateescape")).decode("utf-8", "replace")


def _suspect_lines(piece: bytes) -> list[tuple[int, int]]:
    """Spans of the lines that could hold a secret, in order."""
    ends: list[int] = []

    def seen(number: int, start: int, end: int, flags: int, context: object) -> None:
        ends.append(end)

    database = _triggers()
    if not hasattr(_thread, "scratch"):
        _thread.scratch = hyperscan.Scratch(database)
    database.scan(piece, match_event_handler=seen, scratch=_thread.scratch)
    spans: list[tuple[int, int]] = []
    for end in sorted(ends):
        if spans and end <= spans[-1][1]:
            continue
        start = piece.rfind(b"\n", 0, end - 1) + 1
        stop = piece.find(b"\n", end - 1)
        spans.append((start, len(piece) if stop < 0 else stop))
    return spans


@cache
def _triggers() -> hyperscan.Database:
    patterns = [shape.trigger for shape in SHAPES] + [PRIVATE_KEY_TRIGGER]
    flags = [hyperscan.HS_FLAG_CASELESS if shape.caseless else 0 for shape in SHAPES] + [0]
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    database.compile(expressions=patterns, ids=list(range(len(patterns))), elements=len(patterns), flags=flags)
    return database


_thread = threading.local()
"""Holds the scratch space of each thread: hyperscan refuses one that another thread is using."""


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
