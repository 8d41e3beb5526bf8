"""Stack dumps of living processes (py-spy, faulthandler): which rank stood somewhere else than the others.

Of a job that hangs, nearly all ranks wait in a collective. The few whose main thread is elsewhere are the ones that the
others wait for, and their frames say in what.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from engine.blocks import blocks, line_at
from engine.collective import Missing
from engine.facts import Fact
from engine.hits import StreamScan
from engine.lines import clean, printable
from engine.model import Source, Stream
from engine.origin import Places

DUMPED = "python.stack-dump"
MOST_STACKS = 20_000
DEEP = 12
"""Frames of a stack that are looked at, innermost first."""

_MAIN = re.compile(r'^Thread .*"MainThread"|^(?:Current )?[Tt]hread 0x[0-9a-f]+ .*most recent call first')
_PROCESS = re.compile(r"^Process (\d+)\b")
_OTHER = re.compile(r"^Thread |^Process |^(?:#|=)+ |^.*\bpy-spy dump\b")
_BEGINS = re.compile(r"^Timeout \(\d+:\d\d:\d\d\)!|^Fatal Python error")
"""What a process's own dump of its threads begins with."""
_THREAD = re.compile(r"^(Current )?[Tt]hread (0x[0-9a-f]+)")
_LABEL = re.compile(r"^\[[^\]]{1,80}\] ?(?=(?:Current )?[Tt]hread )")
"""What a tool that has the dumps written puts before each thread: whose it is."""
_WORKER = re.compile(r"(?i)worker")
_CHILD = re.compile(r"^_worker_loop |^_process_worker |^worker \(multiprocessing/pool")
"""What only the processes run that a rank starts to help it: loaders, pools."""
_IDLE = re.compile(r"^(?:get|recv|recv_bytes|_recv_bytes) \(multiprocessing/|^_wait_for_work|^get \(queue\.py")
"""A helper that has nothing to do."""
_LOCKED = re.compile(r"(?i)^(?:acquire|_acquire_?lock|__enter__ \(threading|lock|flock|_lock)\b")
_RANK = re.compile(r"(?i)\brank[ _=:]{0,2}(\d{1,6})\b")
_FRAME = re.compile(
    r'^\s+(?:(?P<name>\S+) \((?P<file>[^:()]+):\d+\)|File "(?P<path>[^"]+)", line \d+ in (?P<function>\S+))'
)
_COLLECTIVE = re.compile(
    r"(?i)all_?reduce|all_?gather|reduce_?scatter|broadcast|barrier|all_?to_?all|distributed_c10d|nccl|synchronize|horovod|\bmpi"
    r"|_engine_run_backward|autograd/graph\.py"
)
_FOR_THE_GPU = re.compile(r"^(?:item|tolist|cpu|nonzero|synchronize) \(")
"""Innermost frames of a process that waits for its GPU, which waits in a collective."""
_PHASES = (
    ("checkpoint", re.compile(r"(?i)checkpoint|ckpt|save_|_save|state_dict|torch/serialization|safetensors")),
    (
        "data",
        re.compile(
            r"(?i)dataloader|dataset|iterators?\.py|loader|sampler|prefetch|_next_data|_try_get|webdataset|collat"
        ),
    ),
)
NOBODY = "unknown"
LEAST, MANY = 3, 0.75
"""So many, and such a part of the processes must stand at one place, for it to be where they wait."""


class Stack(msgspec.Struct):
    """A process's main thread."""

    rank: int | None
    frames: list[str]
    offset: int
    line: int
    stream: Stream
    process: str = ""
    """Its number, where the dump tells it."""
    runs_python: bool = False
    """Does it hold the interpreter's lock? Then it computes, and waits for nothing."""
    passing: bool = False
    """Is it the main thread only if no other thread of the same dump follows?"""
    helps: bool = False
    """Is it a process that a rank started to help it, as a data loader's worker?"""

    @property
    def owner(self) -> tuple[int, str]:
        return (self.rank if self.rank is not None else -1, self.process if self.rank is None else "")


def read_stacks(stream: Stream, places: Places) -> Iterator[Stack]:
    """The main threads of every process dumped in a stream. Ranks that write into one log at once are told apart.

    faulthandler names no process, and its main thread last: that one's number tells processes apart then.
    """
    rank, process = stream.rank, ""
    open_stacks: dict[tuple[int | None, int | None], Stack] = {}
    found = 0
    for block in blocks(stream):
        start, number = block.start, block.line
        while start < block.end and found < MOST_STACKS:
            line = clean(line_at(block, start))
            label = _LABEL.match(line.text)
            text = line.text[label.end() :] if label else line.text
            source = (line.rank, line.local_rank)
            if _MAIN.match(text):
                said = _RANK.search(label[0]) if label else _RANK.search(text)
                owner = int(said[1]) if said else rank
                if owner is None or (line.rank is not None and not said):
                    owner = places.rank_of(line, stream, {})
                thread = _THREAD.match(text)
                name = process or (thread[2] if thread and owner is None else "")
                if (done := open_stacks.pop(source, None)) and not done.passing:
                    yield done
                helps = bool(label and _WORKER.search(label[0]))
                place = block.base + start
                passing = thread is not None and not thread[1] and thread[2] == name
                stack = Stack(owner, [], place, number, stream, name, "+gil" in text[:80], passing, helps)
                open_stacks[source] = stack
                found += 1
            elif (current := open_stacks.get(source)) is not None and (frame := _FRAME.match(text)):
                shown = f"{frame['name'] or frame['function']} ({frame['file'] or frame['path']})"
                current.helps = current.helps or bool(_CHILD.match(shown))
                if len(current.frames) < DEEP:
                    current.frames.append(shown)
            elif _OTHER.match(text) or _BEGINS.match(text):
                if done := open_stacks.pop(source, None):
                    yield done
                named, numbered = _RANK.search(text), _PROCESS.match(text)
                rank = int(named[1]) if named else rank
                process = numbered[1] if numbered else process
            start = block.data.find(b"\n", start) + 1 or block.end
            number += 1
    yield from open_stacks.values()


def elsewhere(scans: Sequence[StreamScan], missing: Missing, places: Places) -> list[Fact]:
    """Ranks outside the collective in which nearly all others waited, as lines for rules/collective.yaml.

    Of ranks that the others waited for (`missing`) their own dump alone is enough.
    """
    latest: dict[tuple[int, str], Stack] = {}
    helpers: dict[tuple[int, str], list[Stack]] = {}
    for scan in scans:
        if scan.stream.source is not Source.APPLOG or not any(hit.rule.id == DUMPED for hit in scan.hits):
            continue
        for stack in read_stacks(scan.stream, places):
            if stack.helps:
                helpers.setdefault(stack.owner, []).append(stack)
            elif stack.frames and (stack.rank is not None or stack.process):
                latest[stack.owner] = stack
    standing = Counter(_innermost(stack) for stack in latest.values())
    outside = [stack for stack in latest.values() if not _waits(stack, standing[_innermost(stack)], len(latest))]
    alone = bool(latest) and all(stack.rank in missing.ranks for stack in latest.values())
    if not outside or not (alone or (len(latest) >= 3 and len(outside) <= len(latest) / 4)):
        return []
    in_order = sorted(outside, key=lambda s: (s.owner, s.stream.name, s.offset))
    return [_fact(stack, helpers.get(stack.owner, []), missing, places) for stack in in_order[:4]]


def _innermost(stack: Stack) -> tuple[str, ...]:
    """The place at which a process stands."""
    return tuple(stack.frames[:3])


def _waits(stack: Stack, alike: int, everyone: int) -> bool:
    """Does the process wait in a collective, or for its GPU? Where frames of C don't show, most stand at one place.

    `alike`: so many of `everyone` stand where it does.
    """
    if any(_COLLECTIVE.search(frame) for frame in stack.frames[:6]) or _FOR_THE_GPU.match(stack.frames[0]):
        return True
    return alike >= LEAST and alike >= MANY * everyone and _phase(stack) == "code"


def _fact(stack: Stack, helpers: Sequence[Stack], missing: Missing, places: Places) -> Fact:
    rank = stack.rank
    if rank is None:
        here = places.stream_node(stack.stream)
        waited_for = [one for one in missing.ranks if places.ranks.get(one) == here]
        rank = waited_for[0] if len(waited_for) == 1 else None
    shown = " < ".join(stack.frames[:4])
    busy = [one for one in helpers if one.frames and not any(_IDLE.match(f) for f in one.frames[:6])]
    if busy:
        shown += f"; {len(busy)} of its {len(helpers)} workers in {' < '.join(busy[0].frames[:4])}"
    phase = "code" if stack.runs_python or _wait_for_a_lock(busy) else _phase(stack)
    who = NOBODY if rank is None else str(rank)
    text = f"collective silent: rank={who} phase={phase} last said: main thread in {shown}"
    node = places.ranks.get(rank) if rank is not None else places.stream_node(stack.stream)
    return Fact(printable(text), stack.offset, stack.line, None, node, "collective", {"stream": stack.stream.name})


def _wait_for_a_lock(workers: Iterable[Stack]) -> bool:
    """Do all workers that have something to do stand before a lock? Then no data is slow."""
    first = [one.frames[0] for one in workers]
    return bool(first) and all(_LOCKED.match(frame) for frame in first)


def _phase(stack: Stack) -> str:
    return next((name for name, words in _PHASES if any(words.search(f) for f in stack.frames)), "code")
