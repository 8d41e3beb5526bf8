"""The scanner's databases (hyperscan): every pattern of every rule, compiled once and kept in the cache."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from functools import cache as once
from importlib import metadata
from pathlib import Path
from typing import Any

import hyperscan

from engine import cache, ordinary, triggers
from engine.patterns import longest_literal, to_scanner
from engine.ruleset import Ruleset

Bytes = bytes | memoryview
OnMatch = Callable[[int, int, int, int, Any], bool | None]
"""Called with a pattern's number, 0, where the match ends, 0 and None; True ends the scan."""


class Database:
    """Patterns compiled for one scan over many bytes; may be used by several threads at once."""

    def __init__(self, patterns: Sequence[tuple[str, int]], *, once_each: bool = False, kept: bool = True) -> None:
        """Patterns in the scanner's form with the numbers that are told of their matches. `once_each`: a number is told
        once a scan, which is faster. `kept`: in the cache, for the next process.
        """
        flags = hyperscan.HS_FLAG_SINGLEMATCH if once_each else 0
        self._database = _known(patterns, flags) if kept else _compiled(patterns, flags)
        self._scratch = threading.local()

    def scan(self, data: Bytes, on_match: OnMatch) -> None:
        scratch = getattr(self._scratch, "own", None)
        if scratch is None:
            scratch = self._scratch.own = hyperscan.Scratch(self._database)
        try:  # noqa: SIM105  # suppress() takes as long as a short scan
            self._database.scan(data, match_event_handler=on_match, scratch=scratch)
        except hyperscan.ScanTerminated:
            pass

    def found_in(self, data: Bytes) -> set[int]:
        """Numbers of the patterns that match somewhere."""
        found: set[int] = set()
        self.scan(data, lambda number, *_: found.add(number))
        return found


def _known(patterns: Sequence[tuple[str, int]], flags: int) -> Any:
    digest = hashlib.sha256(repr((list(patterns), flags, metadata.version("hyperscan"))).encode()).hexdigest()
    stored = cache.get_bytes(f"scan-{digest}.hs")
    if stored is not None:
        try:
            database = hyperscan.loadb(stored, mode=hyperscan.HS_MODE_BLOCK)
            database.scratch = hyperscan.Scratch(database)
            return database
        except (hyperscan.error, ValueError, TypeError):
            pass
    database = _compiled(patterns, flags)
    cache.put_bytes(f"scan-{digest}.hs", hyperscan.dumpb(database))
    return database


def _compiled(patterns: Sequence[tuple[str, int]], flags: int) -> Any:
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    database.compile(
        expressions=[pattern.encode() for pattern, _ in patterns],
        ids=[number for _, number in patterns],
        flags=[flags] * len(patterns),
    )
    return database


def scanner_forms(ruleset: Ruleset) -> dict[str, tuple[str, int]]:
    """Pattern -> its form for the scanner and the length of its longest literal; cached, since parsing them is slow."""
    name = f"forms-{ruleset.fingerprint.removeprefix('sha256:')}"
    known = cache.get(name, dict[str, tuple[str, int]])
    wanted = {pattern for matcher in ruleset.line_matchers for pattern in matcher.spec.patterns}
    if known is None or known.keys() != wanted:
        known = {pattern: (to_scanner(pattern), longest_literal(pattern)) for pattern in sorted(wanted)}
        cache.put(name, known)
    return known


def trigger_forms(patterns: Sequence[str], all_of_them: Database) -> list[str]:
    """Forms for the scanner of which one matches wherever one of `patterns` does, and few in ordinary lines; cached."""
    lines = ordinary.PATH.read_bytes()
    digest = hashlib.sha256(repr((sorted(patterns), _code())).encode() + lines).hexdigest()
    known = cache.get(f"triggers-{digest}", list[str])
    if known is None:
        # A rule that is meant to match ordinary lines makes their words no less rare.
        plain = [line for line in lines.splitlines() if not all_of_them.found_in(line)]
        chosen, without = triggers.choose(patterns, [line.decode("utf-8", "replace") for line in plain])
        known = [*(trigger.pattern for trigger in chosen), *(to_scanner(pattern) for pattern in without)]
        cache.put(f"triggers-{digest}", known)
    return known


@once
def _code() -> str:
    return hashlib.sha256(b"".join(Path(module.__file__ or "").read_bytes() for module in (triggers,))).hexdigest()
