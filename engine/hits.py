"""What a scan of one stream gives: matched lines, lines of progress, samples for the clock."""

from __future__ import annotations

import msgspec

from engine.blocks import Around
from engine.clock import Stamp
from engine.lines import Line, whole
from engine.model import Source, Stream
from engine.rule import Rule


class Hit(msgspec.Struct, gc=False):
    """One line that a rule matched, as the scan saw it."""

    rule: Rule
    captures: dict[str, str]
    stream: str
    source: Source
    offset: int
    line: int
    text: str
    cleaned: Line
    stamp: Stamp | None
    inherited: str | None = None
    """None: the line's own stamp. Else in words where the stamp was taken from."""
    count: int = 1
    around: Around = Around()
    sha256: str = ""
    frames: str = ""
    bare: bool = False
    earliest_unknown: bool = False
    """No line before it has a time: it may be much older than its stamp says."""


class Mark(msgspec.Struct, frozen=True, gc=False):
    """One line of progress."""

    stamp: Stamp | None
    offset: int
    line: int
    rank: int | None
    text: str
    captures: dict[str, str]
    rule: Rule
    exact: bool
    """The line has a time of its own; else `stamp` only says "not before"."""
    around: Around
    sha256: str
    skipped: bool = False
    """Between the one before in the stream and this one there may be others, which were not read."""

    @property
    def number(self) -> int | None:
        """Of the iteration; None where the line tells none."""
        return whole(self.captures.get("step", "").replace(",", ""))


class StreamScan(msgspec.Struct):
    """What one stream gave."""

    stream: Stream
    hits: list[Hit] = []
    marks: list[Mark] = []
    samples: list[tuple[Stamp, str]] = []
    ordinary: list[Stamp] = []
    """Times of sampled lines that no rule matched: the job at work, where its progress is not understood."""
    head: list[str] = []
    """The first lines of a log of the system: a header may tell when the node booted."""
    hosts: set[str] = set()
    """Hosts that sampled lines name."""
    heard: dict[tuple[object, ...], tuple[Line, Stamp]] = {}
    """Who was heard last, of the sampled lines of a job's log: lane and host -> a line and its time."""
    lines: int = 0
    bytes: int = 0
    first: Stamp | None = None
    last: Stamp | None = None
