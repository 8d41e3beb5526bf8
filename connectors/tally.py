"""What one source gave to a collection so far, and the report of it."""

from __future__ import annotations

import msgspec

from connectors.base import CollectionReport
from engine.model import Source

_NOTES = 12


class Tally(msgspec.Struct):
    """What one source gave so far."""

    notes: list[str] = []
    streams: int = 0
    lines: int = 0
    bytes: int = 0
    failed: int = 0
    """Questions without an answer."""
    partial: bool = False
    missing: int = 0
    """What should be there and is not."""
    unsized: bool = False
    """Whether a stream's size is not known before it is read, as of compressed files."""
    asked: list[str] = []
    seconds: float = 0.0

    def note(self, words: str) -> None:
        if words not in self.notes:
            self.notes.append(words)

    def report(self, source: Source, connector: str) -> CollectionReport:
        if self.streams:
            status = "partial" if self.partial or self.failed or self.missing else "ok"
            status = "empty" if status == "ok" and not (self.bytes or self.unsized) else status
        else:
            status = "error" if self.failed else "missing"
        notes = self.notes[:_NOTES] + ([f"and {len(self.notes) - _NOTES} more"] if len(self.notes) > _NOTES else [])
        return CollectionReport(
            source=source.value,
            status=status,
            note="; ".join(notes),
            streams=self.streams,
            lines=self.lines,
            bytes=self.bytes,
            connector=connector,
            duration_s=round(self.seconds, 3),
            failed=bool(self.failed),
            query="\n".join(self.asked),
        )
