"""Stack dumps of living processes (py-spy, faulthandler): which rank stood somewhere else than the others.

Of a job that hangs, nearly all ranks wait in a collective. The few whose main thread is elsewhere are the ones that the
others wait for, and their frames say in what.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

import msgspec

from engine.blocks import blocks, line_at
from engine.facts import Fact
from engine.hits import StreamScan
from engine.lines import clean, printable
from engine.model import Source, Stream

DUMPED = "python.stack-dump"
MOST_STACKS = 20_000
DEEP = 12
"""Frames of a stack that are looked at, innermost first."""

_MAIN = re.compile(r'^Thread .*"MainThread"|^(?:Current )?[Tt]hread 0x[0-9a-f]+ .*most recent call first')
_OTHER = re.compile(r"^Thread |^Process |^(?:#|=)+ |^.*\bpy-spy dump\b")
_LABEL = re.compile(r"^\[[^\]]{1,80}\] ?(?=(?:Current )?[Tt]hread )")
"""What a tool that has the dumps written puts before each thread: whose it is."""
_WORKER = re.compile(r"(?i)worker")
_RANK = re.compile(r"(?i)\brank[ _=:]{0,2}(\d{1,6})\b")
_FRAME = re.compile(
    r'^\s+(?:(?P<name>\S+) \((?P<file>[^:()]+):\d+\)|File "(?P<path>[^"]+)", line \d+ in (?P<function>\S+))'
)
_COLLECTIVE = re.compile(
    r"(?i)all_?reduce|all_?gather|reduce_?scatter|broadcast|barrier|all_?to_?all|distributed_c10d|nccl|synchronize|horovod|\bmpi"
    r"|_engine_run_backward|autograd/graph\.py"
)
_PHASES = (
    ("checkpoint", re.compile(r"(?i)checkpoint|ckpt|save_|_save|state_dict|torch/serialization|safetensors")),
    (
        "data",
        re.compile(
            r"(?i)dataloader|dataset|iterators?\.py|loader|sampler|prefetch|_next_data|_try_get|webdataset|collat"
        ),
    ),
)


class Stack(msgspec.Struct):
    rank: int
    frames: list[str]
    offset: int
    line: int


def read_stacks(stream: Stream) -> Iterator[Stack]:
    """The main threads of every process dumped in a stream. Ranks that write into one log at once are told apart."""
    rank: int | None = None
    open_stacks: dict[int | None, Stack] = {}
    found = 0
    for block in blocks(stream):
        start, number = block.start, block.line
        while start < block.end and found < MOST_STACKS:
            line = clean(line_at(block, start))
            label = _LABEL.match(line.text)
            text = line.text[label.end() :] if label else line.text
            if _MAIN.match(text):
                if done := open_stacks.pop(line.rank, None):
                    yield done
                said = _RANK.search(label[0]) if label else None
                owner = int(said[1]) if said else line.rank if line.rank is not None else rank
                if owner is not None and not (label and _WORKER.search(label[0])):
                    open_stacks[line.rank] = Stack(owner, [], block.base + start, number)
                found += 1
            elif (current := open_stacks.get(line.rank)) is not None and (frame := _FRAME.match(text)):
                if len(current.frames) < DEEP:
                    current.frames.append(f"{frame['name'] or frame['function']} ({frame['file'] or frame['path']})")
            elif _OTHER.match(text):
                if done := open_stacks.pop(line.rank, None):
                    yield done
                named = _RANK.search(text)
                rank = int(named[1]) if named else rank
            start = block.data.find(b"\n", start) + 1 or block.end
            number += 1
    yield from open_stacks.values()


def elsewhere(scans: Sequence[StreamScan], missing: Collection[int] = ()) -> list[Fact]:
    """Ranks outside the collective in which nearly all others waited, as lines for rules/collective.yaml.

    Of ranks that the others waited for (`missing`) their own dump alone is enough.
    """
    facts = []
    for scan in scans:
        if scan.stream.source is not Source.APPLOG or not any(hit.rule.id == DUMPED for hit in scan.hits):
            continue
        latest = {stack.rank: stack for stack in read_stacks(scan.stream) if stack.frames}
        outside = [stack for stack in latest.values() if not any(_COLLECTIVE.search(f) for f in stack.frames[:6])]
        alone = bool(latest) and all(rank in missing for rank in latest)
        if not outside or not (alone or (len(latest) >= 3 and len(outside) <= len(latest) / 4)):
            continue
        for stack in sorted(outside, key=lambda s: s.rank)[:4]:
            shown = " < ".join(stack.frames[:4])
            phase = next((name for name, words in _PHASES if any(words.search(f) for f in stack.frames)), "code")
            text = f"collective silent: rank={stack.rank} phase={phase} last said: main thread in {shown}"
            facts.append(
                Fact(printable(text), stack.offset, stack.line, None, None, "collective", {"stream": scan.stream.name})
            )
    return facts
