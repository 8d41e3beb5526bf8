"""What is found in a log depends on its bytes alone: not on how many are read at once, nor on what stands far away."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from engine import blocks, marks, neighbours, parts, scan
from engine.blocks import blocks as blocks_of
from engine.diagnose import scanner_of
from engine.hits import StreamScan
from engine.model import Source, Stream
from tests.engine.evidence import ruleset

SMALL = {
    "REGION": 8192,
    "BACK": 2048,
    "AHEAD": 8192,
    "NEAR": 2048,
    "TRACEBACK": 4096,
    "MAX_LINE": 32768,
    "CONTEXT_BYTES": 512,
}
"""So small that a log of 100 KB has many borders."""

BOOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB"
CRI = "2026-11-03T04:{:02d}:{:02d}.000000001Z stderr {} {}"


@pytest.fixture(autouse=True)
def small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in SMALL.items():
        monkeypatch.setattr(blocks, name, size)
        for module in (scan, neighbours):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, size)
    monkeypatch.setattr(neighbours, "CELL", 700)
    monkeypatch.setattr(marks, "KEPT", (40, 6, 3, 2))
    monkeypatch.setattr(parts, "GAP", 1500)
    monkeypatch.setattr(parts, "SPAN", 6000)
    monkeypatch.setattr(parts, "LONGEST", 4000)


def a_log(chance: random.Random, size: int) -> bytes:
    """Lines of every kind in any order."""
    out: list[str] = []
    written = 0
    while written < size:
        kind, rank, at = chance.random(), chance.randrange(4), f"04:{len(out) // 60 % 60:02d}:{len(out) % 60:02d}"
        stamp = f"2026-11-03 {at},123 "
        if kind < 0.5:
            lines = [f"[rank{rank}]: {stamp}INFO step {len(out)} loss {chance.random():.3f} lr 1e-4"]
        elif kind < 0.6:
            lines = [f"[rank{rank}]: {BOOM}"]
        elif kind < 0.68:
            frames = [f'  File "/app/part_{n}.py", line {n}, in f' for n in range(chance.randrange(1, 30))]
            said = chance.choice(["ValueError: bad shape", f"RuntimeError: {BOOM}", "KeyError: 'x'"])
            lines = [f"[rank{rank}]: {x}" for x in ["Traceback (most recent call last):", *frames, said]]
            noise = [f"[rank{(rank + 1) % 4}]: {stamp}still here {n}" for n in range(chance.randrange(4))]
            for line in noise:
                lines.insert(chance.randrange(len(lines)), line)
        elif kind < 0.76:
            text = f"{stamp}{BOOM} " + "y" * chance.randrange(2500)
            pieces = [text[n : n + 400] for n in range(0, len(text), 400)]
            flags = "P" * (len(pieces) - 1) + chance.choice("FFFP")
            lines = [
                CRI.format(4, n % 60, flag, piece) for n, (flag, piece) in enumerate(zip(flags, pieces, strict=True))
            ]
            lines.insert(chance.randrange(len(lines) + 1), f"{stamp}between the parts")
        elif kind < 0.82:
            message = f'{stamp}Traceback (most recent call last):\n  File "a.py", line 1, in f\n{BOOM}'
            lines = [json.dumps({"message": message, "rank": rank})]
        elif kind < 0.88:
            lines = [f"\x1b[31m{stamp}\x1b[1m{BOOM}\x1b[0m", "\x1b[32mfine\x1b[0m"]
        elif kind < 0.94:
            bar = "\r".join(f"{n}%|##| {n}/100 [00:10<00:10, 5.00it/s]" for n in range(chance.randrange(300)))
            lines = [f"{bar}\r{BOOM}"]
        elif kind < 0.97:
            lines = ["", "   ", "z" * chance.choice([10, 5000, 40_000, 70_000])]
        else:
            lines = ["z" * chance.randrange(40_000) + BOOM + "z" * chance.randrange(40_000)]
        out += lines
        written += sum(map(len, lines)) + len(lines)
    return "\n".join(out).encode() + chance.choice([b"", b"\n", b"\r\n"])


class Pieces(io.RawIOBase):
    """Gives its bytes in pieces of any size."""

    def __init__(self, content: bytes, chance: random.Random) -> None:
        self._content, self._at, self._chance = content, 0, chance

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = min(self._chance.choice([1, 3, 100, 4097, 1 << 20]), len(buffer))
        piece = self._content[self._at : self._at + size]
        self._at += len(piece)
        buffer[: len(piece)] = piece
        return len(piece)


def stream(content: bytes, chance: random.Random | None = None) -> Stream:
    def opened() -> BinaryIO:
        return cast(BinaryIO, io.BytesIO(content) if chance is None else Pieces(content, chance))

    return Stream(name="applog/train.log", source=Source.APPLOG, open=opened, size=len(content))


def told(found: StreamScan) -> bytes:
    """Everything that a scan found."""
    hits = [
        [msgspec.structs.replace(hit, rule=None), hit.rule.id, hit.around.before, hit.around.after]
        for hit in found.hits
    ]
    marks = [[msgspec.structs.replace(mark, rule=None), mark.rule.id] for mark in found.marks]
    rest = [found.samples, found.ordinary, sorted(found.hosts), found.lines, found.bytes, found.first, found.last]
    return msgspec.json.encode([hits, marks, rest])


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 10**6), size=st.sampled_from([0, 300, 20_000, 90_000]), block=st.integers(64, 24_000))
@example(seed=1, size=90_000, block=64)
@example(seed=2, size=90_000, block=8192)
@example(seed=3, size=90_000, block=8193)
def test_however_many_bytes_are_read_at_once_the_same_is_found(seed: int, size: int, block: int) -> None:
    content = a_log(random.Random(seed), size)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK", 23_000)
        expected = told(scanner_of(ruleset()).scan(stream(content)))
        patch.setattr(blocks, "BLOCK", block)
        assert told(scanner_of(ruleset()).scan(stream(content, random.Random(seed)))) == expected


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 10**6), before=st.integers(0, 30_000))
def test_what_stands_far_before_a_line_changes_nothing_around_it(seed: int, before: int) -> None:
    """The same part of a log, wherever it stands in its file: evidence has the same text, time and surroundings."""
    chance = random.Random(seed)
    apart = b"".join(b"plain line %d\n" % n for n in range(200))
    content = apart + a_log(chance, 6_000) + b"\n" + apart
    filler = b"".join(b"some other line %d\n" % n for n in range(before // 19))

    def shown(content: bytes, shift: int, lines: int) -> list[Any]:
        found = scanner_of(ruleset()).scan(stream(content))
        return [
            (h.rule.id, h.offset - shift, h.line - lines, h.text, h.stamp, h.around.before, h.around.after, h.frames)
            for h in found.hits
        ]

    assert shown(filler + content, len(filler), filler.count(b"\n")) == shown(content, 0, 0)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 10**6), size=st.sampled_from([0, 1, 300, 60_000]), block=st.integers(64, 24_000))
def test_blocks_hold_every_byte_once_and_count_its_lines(seed: int, size: int, block: int) -> None:
    content = a_log(random.Random(seed), size)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK", block)
        taken = list(_taken(content))
    assert b"".join(own for own, *_ in taken) == content
    for own, offset, line, lines, data, base in taken:
        assert content[base : base + len(data)] == data
        assert line == content.count(b"\n", 0, offset) + 1
        assert lines == own.count(b"\n")


def _taken(content: bytes) -> Iterator[tuple[bytes, int, int, int, bytes, int]]:
    for one in blocks_of(stream(content)):
        own = one.data[one.start : one.end]
        yield own, one.base + one.start, one.line, one.lines, one.data, one.base


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 10**6), block=st.integers(64, 24_000))
def test_regions_hold_the_whole_lines_of_their_part_of_the_stream(seed: int, block: int) -> None:
    content = a_log(random.Random(seed), 60_000)
    expected: dict[int, tuple[int, int]] = {}
    end = 0
    for line in _lines(content):
        for at in range(0, len(line), SMALL["MAX_LINE"]):  # a very long line is cut
            begin, end = end, end + len(line[at : at + SMALL["MAX_LINE"]])
            if begin // SMALL["REGION"] == (end - 1) // SMALL["REGION"]:
                first, _ = expected.get(begin // SMALL["REGION"], (begin, end))
                expected[begin // SMALL["REGION"]] = (first, end)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK", block)
        found = {
            region.number: (one.base + region.start, one.base + region.end)
            for one in blocks_of(stream(content))
            for region in one.regions
        }
    assert found == expected


def _lines(content: bytes) -> list[bytes]:
    return [line + b"\n" for line in content.split(b"\n")[:-1]] + [content.rpartition(b"\n")[2]]
