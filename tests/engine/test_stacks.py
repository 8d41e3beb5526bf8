"""Stack dumps: the rank that stands somewhere else is the one that the others wait for."""

from __future__ import annotations

import io

from engine.facts import Fact
from engine.model import Source, Stream
from engine.scan import Scanner
from engine.stacks import elsewhere
from tests.engine.evidence import ruleset

WAITS = """Thread 0x7F36 (active): "MainThread"
    all_reduce (torch/distributed/distributed_c10d.py:1436)
    train_step (trainer.py:1022)
"""
LOADS = """Thread 0x7FA6 (idle): "MainThread"
    get (queue.py:170)
    _next_data (torch/utils/data/dataloader.py:757)
    train (train.py:274)
Thread 0x7FA7 (idle): "pin_memory"
    all_reduce (made_up.py:1)
"""


def told(dump: str) -> list[Fact]:
    content = dump.encode()
    stream = Stream(name="applog/dump.txt", source=Source.APPLOG, open=lambda: io.BytesIO(content), size=len(content))
    return elsewhere([Scanner(ruleset()).scan(stream)])


def dump_of(*stacks: str) -> str:
    return "".join(f"== rank {rank} (n1) pid {4410 + rank}\n{stack}" for rank, stack in enumerate(stacks))


def test_the_one_rank_outside_the_collective_is_named_with_what_it_does() -> None:
    [fact] = told(dump_of(WAITS, WAITS, LOADS, WAITS, WAITS))
    assert fact.text.startswith("collective silent: rank=2 phase=data last said: main thread in get (queue.py)")
    assert fact.line == 1 + 2 * 4 + 1


def test_when_all_wait_in_the_collective_nobody_is_named() -> None:
    assert told(dump_of(WAITS, WAITS, WAITS, WAITS)) == []


def test_when_many_stand_elsewhere_it_says_nothing() -> None:
    assert told(dump_of(WAITS, LOADS, LOADS, WAITS)) == []
    assert told(dump_of(LOADS, LOADS)) == []
