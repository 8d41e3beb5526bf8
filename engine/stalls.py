"""Horovod's reports of stalled ranks: which rank lacks which tensors, and whether two sides wait for each other.

The report names, below its heading, every rank with the tensors that it has not submitted and that others wait in:

    Stalled ranks:
    3: [allreduce.layer1, allreduce.layer2 ...]
    5!: [allreduce.layer1]
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from engine.blocks import Block, blocks, line_at, line_ends
from engine.clock import Stamp
from engine.facts import Fact
from engine.findings import elapsed_of
from engine.hits import Hit, StreamScan
from engine.lines import printable, whole
from engine.model import Source

STALLED = "horovod.stalled"
MOST_RANKS = 65_536

_HEADING = re.compile(rb"(?:Stalled|Missing) ranks:[ \t\r]*\n")
_RANK = re.compile(rb"(?:^|[\s:>\]])(\d{1,6})!?: \[([^\[\]]{1,2000})\]?\s*$")


class Report(msgspec.Struct):
    """A report, its heading's place, and for how many seconds it says that they had waited."""

    stream: str
    offset: int
    line: int
    stamp: Stamp | None
    waited: float
    lacks: dict[int, frozenset[str]] = {}
    """Rank -> the tensors that it has not submitted."""


def read_reports(scans: Sequence[StreamScan]) -> list[tuple[Report, Report]]:
    """The first and the last report of every log that holds some."""
    found = []
    for scan in scans:
        said = [hit for hit in scan.hits if hit.rule.id == STALLED]
        if scan.stream.source is Source.APPLOG and said:
            reports = _first_and_last(scan, said)
            found += [reports] if reports is not None else []
    return found


def _first_and_last(scan: StreamScan, said: Sequence[Hit]) -> tuple[Report, Report] | None:
    first: Report | None = None
    last: Report | None = None
    headed = {hit.line: hit for hit in said}
    for block in blocks(scan.stream):
        number, counted = block.line, block.start
        for heading in _HEADING.finditer(block.data, block.start, block.end):
            number, counted = number + line_ends(block.data, counted, heading.start()), heading.start()
            hit = headed.get(number - 1) or headed.get(number)
            waited = elapsed_of(hit.captures) if hit else 0.0
            place = block.data.rfind(b"\n", block.start, heading.start()) + 1 or block.start
            stamp = hit.stamp if hit else None
            report = Report(scan.stream.name, block.base + place, number, stamp, waited, _lacks(block, heading.end()))
            if report.lacks:
                first, last = first or report, report
    return (first, last) if first is not None and last is not None else None


def _lacks(block: Block, start: int) -> dict[int, frozenset[str]]:
    """The rows below a heading, as far as they go on in the same block."""
    lacks: dict[int, frozenset[str]] = {}
    while start < block.end and len(lacks) < MOST_RANKS and (row := _RANK.search(line_at(block, start))):
        rank = whole(row[1].decode())
        if rank is not None:
            lacks[rank] = frozenset(row[2].decode("utf-8", "replace").removesuffix(" ...").split(", "))
        start = block.data.find(b"\n", start) + 1 or block.end
    return lacks


def _sides(report: Report) -> list[tuple[set[int], set[str]]]:
    """Ranks that lack the same tensors, or overlapping ones: the fewest first."""
    first: dict[str, int] = {}
    """Tensor -> the first rank that lacks it."""
    leader = {rank: rank for rank in report.lacks}

    def led(rank: int) -> int:
        while leader[rank] != rank:
            leader[rank] = rank = leader[leader[rank]]
        return rank

    for rank, names in report.lacks.items():
        for name in names:
            leader[led(rank)] = led(first.setdefault(name, rank))
    sides: dict[int, tuple[set[int], set[str]]] = {}
    for rank, names in report.lacks.items():
        ranks, lacked = sides.setdefault(led(rank), (set(), set()))
        ranks.add(rank)
        lacked |= names
    return sorted(sides.values(), key=lambda side: (len(side[0]), min(side[0])))


def cross_waits(reports: Sequence[tuple[Report, Report]]) -> list[Fact]:
    """Ranks that wait in other operations than the rest, while each side lacks what the other has submitted."""
    facts = []
    for first, last in reports:
        sides = _sides(last)
        if len(sides) != 2:
            continue
        few, many = sides
        report = first if len(_sides(first)) == 2 else last
        # What one side lacks is what the other has submitted.
        issued, rest = min(many[1]), min(few[1])
        for rank in sorted(few[0])[:4]:
            text = (
                f"collective mismatch: pg=horovod seq=0 rank={rank} issued {issued} [] "
                f"where {len(many[0])} ranks issued {rest} [], and each side waits for the other"
                f" elapsed_ms={report.waited * 1000:.0f}"
            )
            place = {"stream": report.stream}
            facts.append(Fact(printable(text), report.offset, report.line, report.stamp, None, "collective", place))
    return facts


def lagging(reports: Sequence[tuple[Report, Report]]) -> set[int]:
    """Ranks that lack what the others have submitted, where these lack nothing themselves."""
    return {rank for _, report in reports for rank in report.lacks} if not cross_waits(reports) else set()
