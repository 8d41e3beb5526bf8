"""The scanner's databases (hyperscan): every pattern of every rule, compiled once and kept in the cache."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib import metadata
from typing import Any

import hyperscan

from engine import cache, parts
from engine.blocks import Block
from engine.lines import strip_ansi
from engine.patterns import longest_literal, to_scanner
from engine.ruleset import Ruleset

_COLOUR, _NUL, _PART, _JSON = range(4)
_ODDITIES = (
    (r"\x1b", _COLOUR),
    (r"\x00", _NUL),
    (r"std(?:out|err)\x20P\x20", _PART),
    (r"[\n\x20]\{\x22", _JSON),
    (r"^\{\x22", _JSON),
)
"""What makes a block need cleaning before it is scanned."""

Scanned = bytes | memoryview
"""What the scanner reads: the block's own bytes (a view), or cleaned ones with the same number of lines."""


def scanner_forms(ruleset: Ruleset) -> dict[str, tuple[str, int]]:
    """Pattern -> its form for the scanner and the length of its longest literal; cached, since parsing them is slow."""
    name = f"forms-{ruleset.fingerprint.removeprefix('sha256:')}"
    known = cache.get(name, dict[str, tuple[str, int]])
    wanted = {pattern for matcher in ruleset.line_matchers for pattern in matcher.spec.patterns}
    if known is None or known.keys() != wanted:
        known = {pattern: (to_scanner(pattern), longest_literal(pattern)) for pattern in sorted(wanted)}
        cache.put(name, known)
    return known


def database_of(patterns: Sequence[tuple[str, int]], flags: int = 0) -> Any:
    """A compiled scanner database, from the cache when the same patterns were compiled before."""
    digest = hashlib.sha256(repr((list(patterns), flags, metadata.version("hyperscan"))).encode()).hexdigest()
    stored = cache.get_bytes(f"scan-{digest}.hs")
    if stored is not None:
        try:
            database = hyperscan.loadb(stored, mode=hyperscan.HS_MODE_BLOCK)
            database.scratch = hyperscan.Scratch(database)
            return database
        except (hyperscan.error, ValueError, TypeError):
            pass
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    database.compile(
        expressions=[pattern.encode() for pattern, _ in patterns],
        ids=[number for _, number in patterns],
        flags=[flags] * len(patterns),
    )
    cache.put_bytes(f"scan-{digest}.hs", hyperscan.dumpb(database))
    return database


class Cleaner:
    """Tells whether a block needs cleaning before it is scanned, and cleans it."""

    def __init__(self) -> None:
        self._oddities = database_of(_ODDITIES, hyperscan.HS_FLAG_SINGLEMATCH)

    def scannable(self, block: Block) -> Scanned:
        """The bytes to scan: as they are, or without colours and JSON escapes when there are any."""
        view = memoryview(block.data)[block.start : block.end]
        odd: set[int] = set()
        self._oddities.scan(view, match_event_handler=lambda number, *_: odd.add(number))
        if not odd:
            return view
        data = bytes(view)
        if _COLOUR in odd:
            data = strip_ansi(data)
        if _NUL in odd:
            data = data.replace(b"\x00", b"")
        if _PART in odd and parts.any_part(data):
            data = parts.join(data)
        if _JSON in odd:
            data = b"\n".join(_flat_json(line) if b'{"' in line else line for line in data.split(b"\n"))
        return data


def _flat_json(raw: bytes) -> bytes:
    """A JSON line with its message unescaped, still on one line."""
    if b"\\" not in raw:
        return raw
    return (
        raw.replace(b"\\n", b" ")
        .replace(b'\\"', b'"')
        .replace(b"\\t", b" ")
        .replace(b"\\/", b"/")
        .replace(b"\\u003c", b"<")
        .replace(b"\\u003e", b">")
    )
