"""A line without a time takes that of a line near it: what is skipped on the way there changes nothing."""

from __future__ import annotations

import random
from typing import Any

import pytest

from engine import blocks, neighbours
from engine.blocks import Block, line_at, line_before, line_end, lines_after
from engine.clock import Stamp
from engine.lines import clean
from engine.neighbours import LINES_AHEAD, LINES_BACK, Neighbours
from tests.engine.evidence import case, labels

LINES = [
    "[rank{rank}]: 2026-11-03 04:{minute:02d}:{second:02d},123 INFO step 7 loss 2.1",
    "[rank{rank}]: frame #6: <unknown function> + 0x94ac3 (0x7f8387b59683 in libc.so.6)",
    "node-0{rank}:218238:218697 [4] NCCL INFO comm 0x5e3c0684a1e2 rank {rank} busId 41000",
    " 1{rank}: 20%|██ | 414/2111 [02:09:26<47:43:39, 4.11s/it]",
    "{rank}: [2026-11-03 04:{minute:02d}:{second:02d}.571830] iteration 62/ 20000 | 1{rank} samples",
    "(Worker pid=40{rank}, ip=10.0.0.{rank}) loading",
    "(Worker pid=40{rank}, ip=10.0.0.{rank}) 2026-11-03T04:{minute:02d}:{second:02d}Z loaded",
    '{{"rank": {rank}, "ts": 1.79e9, "msg": "resumed"}}',
    '{{"rank": {rank}, "ts": 1793671{minute:02d}1.5, "msg": "resumed"}}',
    "\x1b[1m[rank\x1b[0m{rank}]: 2026-11-03 04:{minute:02d}:{second:02d} INFO in colours",
    "__REALTIME_TIMESTAMP=1793671{minute:02d}1000000",
    "Nov  3 04:{minute:02d}:{second:02d} node-0{rank} kernel: eth0 up",
    "[ {second:4d}.123456] mlx5_{rank}: port up",
    "",
    "x" * 900,
]


def a_block(chance: random.Random, base: int) -> Block:
    lines, kinds = list[str](), chance.sample(LINES, chance.randint(2, len(LINES)))
    for _ in range(chance.randint(1, 160)):
        text = chance.choice(kinds)
        lines.append(
            text.format(rank=chance.randrange(4), minute=chance.randrange(60), second=chance.randrange(60))
            if text[:1] != "x"
            else text
        )
    data = "\n".join(lines).encode() + chance.choice([b"", b"\n"])
    return Block(data, 0, len(data), base, 1, data.count(b"\n"), chance.random() < 0.7, [])


def looked_at_one_by_one(block: Block, start: int, number: int, lane: tuple[Any, ...]) -> tuple[Stamp | None, Any]:
    """What stands in the documentation of Neighbours.stamp, done for every line in turn."""
    other, position = None, start
    for at in range(number - 1, number - 1 - LINES_BACK, -1):
        before = line_before(block, position, start - neighbours.BACK)
        if before is None:
            break
        position = before
        line = clean(line_at(block, position))
        if line.stamp is not None:
            if line.lane == lane or not any(part is not None for part in lane):
                return line.stamp, f"line {at}"
            other = other or (line.stamp, f"line {at} of another rank")
    if other is not None:
        return other
    following = list(lines_after(block, line_end(block, start), neighbours.NEAR))[:LINES_AHEAD]
    for at, (position, _) in enumerate(following, number + 1):
        stamp = clean(line_at(block, position)).stamp
        if stamp is not None:
            return stamp, f"line {at}, which comes after it"
    return None, None


@pytest.mark.parametrize("reach", [128 << 10, 700])
def test_the_same_neighbour_is_found_as_when_every_line_is_read(reach: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "BACK", reach)
    monkeypatch.setattr(neighbours, "NEAR", reach)
    chance, found = random.Random(4), set[str]()
    for _ in range(100):
        monkeypatch.setattr(neighbours, "CELL", chance.choice([64, 300, 2048]))
        block = a_block(chance, chance.choice([0, 0, 5000]))
        near = Neighbours(block, clean)
        for number, start in enumerate(blocks.starts_of(block.data, 0, len(block.data)), 1):
            if start < len(block.data) and chance.random() < 0.3:
                lane = clean(line_at(block, start)).lane
                expected = looked_at_one_by_one(block, start, number, lane)
                assert near.stamp(start, number, lane) == expected
                found.add(str(expected[1]).partition(",")[2] or str(expected[1]).rpartition(" of ")[2])
    assert {"None", " which comes after it", "another rank"} < found


@pytest.mark.parametrize("name", sorted(labels()))
def test_a_line_with_a_time_stamp_is_never_skipped(name: str) -> None:
    lines = {line for content in case(name).files.values() for line in content.split(b"\n")[:700]}
    assert [line for line in lines if clean(line).stamps and not neighbours.may_tell_time(line)] == []


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 100_000])
def test_line_ends_are_counted_in_short_and_long_parts(size: int) -> None:
    data = b"".join(b"x" * (n % 97) + b"\n" for n in range(4000))
    assert blocks.line_ends(data, 17, 17 + size) == data.count(b"\n", 17, 17 + size)
