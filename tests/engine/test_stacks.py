"""Stack dumps: the rank that stands somewhere else is the one that the others wait for."""

from __future__ import annotations

import io
from collections.abc import Mapping
from functools import partial

import pytest

from engine.collective import Missing
from engine.facts import Fact
from engine.model import Attempt, Source, Stream, Workload
from engine.origin import Places
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


WORKS = """Thread 0x7FA6 (idle): "MainThread"
    get (queue.py:180)
    _next_data (torch/utils/data/dataloader.py:1329)
    fit (trainer.py:133)
"""
LOCKED = """    acquire (logging/__init__.py:917)
    warning (logging/__init__.py:1489)
    load_clip (data/audio.py:73)
"""
READS = """    read (tarfile.py:690)
    load_clip (data/audio.py:80)
"""
LISTENS = """    get (multiprocessing/queues.py:113)
"""
NOBODY = Missing()


def streams_of(dumps: Mapping[str, str]) -> list[Stream]:
    return [
        Stream(
            name=f"applog/{name}",
            source=Source.APPLOG,
            open=partial(io.BytesIO, dump.encode()),
            size=len(dump),
            rank=int(name[5:].split(".")[0]) if name.startswith("rank-") else None,
            node=name[:2] if name.startswith(("n1", "n2")) else None,
        )
        for name, dump in dumps.items()
    ]


def told(dump: str | Mapping[str, str], missing: Missing = NOBODY) -> list[Fact]:
    streams = streams_of({"dump.txt": dump} if isinstance(dump, str) else dump)
    workload = Workload(id="1", name="x", scheduler="slurm", cluster="c", user="u", queue="q")
    attempt = Attempt(workload=workload, number=1, state="FAILED", nodes=("n1", "n2"), gpus_per_node=4)
    places = Places(attempt, streams)
    places.assume_ranks()
    return elsewhere([Scanner(ruleset()).scan(stream) for stream in streams], missing, places)


def loader(*workers: str) -> str:
    """A rank that waits for its loader, and the loader's workers, each a process of its own."""
    shown = "".join(
        f'Process {900 + n}: python train.py\nThread {900 + n} (idle): "MainThread"\n{frames}'
        "    _worker_loop (torch/utils/data/_utils/worker.py:308)\n    main (train.py:71)\n"
        for n, frames in enumerate(workers)
    )
    return f"Process 800: python train.py\n{WORKS}{shown}"


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


def of_ranks(odd: str, at: int = 5) -> dict[str, str]:
    """A file of each rank, as a script writes that dumps every process."""
    return {f"rank-{n}.txt": odd if n == at else f"Process {500 + n}: python\n{WAITS}" for n in range(8)}


def test_dumps_of_a_file_each_are_compared_and_a_loader_s_workers_speak_for_no_rank() -> None:
    [fact] = told(of_ranks(loader(READS, LISTENS)))
    assert fact.text.startswith("collective silent: rank=5 phase=data last said: main thread in get (queue.py)")
    assert "1 of its 2 workers in read (tarfile.py)" in fact.text
    assert fact.node == "n2"


def test_workers_that_all_stand_before_a_lock_are_a_fault_of_the_code() -> None:
    [fact] = told(of_ranks(loader(LOCKED, LOCKED, LISTENS)))
    assert fact.text.startswith("collective silent: rank=5 phase=code")
    [fact] = told(of_ranks(loader(LOCKED, READS)))
    assert fact.text.startswith("collective silent: rank=5 phase=data")


def processes(*stacks: str) -> str:
    return "".join(f"Process {4410 + n}: python -u train.py\n{stack}" for n, stack in enumerate(stacks))


ITEM = 'Thread 0x1 (active): "MainThread"\n    item (train.py:178)\n    main (train.py:214)\n'
COMPUTES = 'Thread 0x2 (active+gil): "MainThread"\n    sub (re/__init__.py:185)\n    collate (stream.py:131)\n'
TRAINS = 'Thread 0x3 (active): "MainThread"\n    fit (loop.py:91)\n    main (train.py:214)\n'


@pytest.mark.parametrize("others", [ITEM, TRAINS, WAITS])
def test_processes_without_a_rank_are_told_apart_and_the_rank_is_the_one_waited_for(others: str) -> None:
    dump = {"n1.stacks": processes(others, others, COMPUTES, others)}
    [fact] = told(dump, Missing((2,), ("n1",)))
    assert fact.text.startswith("collective silent: rank=2 phase=code last said: main thread in sub (re/__init__.py)")
    [fact] = told(dump)
    assert fact.text.startswith("collective silent: rank=unknown phase=code")


def test_where_nearly_all_load_data_the_one_in_a_collective_is_not_the_odd_one() -> None:
    assert told(processes(LOADS, LOADS, WAITS, LOADS, LOADS)) == []
    assert told(processes(LOADS, LOADS, COMPUTES, LOADS, LOADS)) == []


def handled(*frames: str, header: str = "Timeout (0:30:00)!\n", main: str = "Thread 0x{:016x}") -> str:
    """Dumps that faulthandler wrote, one process after the other, each with a thread besides the main one."""
    other = '  File "/usr/lib/python3.11/threading.py", line 331 in wait\n'
    return "".join(
        f"{header}Thread 0x{0xA000 + n:016x} (most recent call first):\n{other}"
        f"{main.format(0xB000 + n, rank=n)} (most recent call first):\n{shown}"
        for n, shown in enumerate(frames)
    )


WAITS_TOO = (
    '  File "/opt/torch/distributed/distributed_c10d.py", line 4159 in barrier\n'
    '  File "loop.py", line 291 in evaluate\n'
)
LOCKED_TOO = '  File "/opt/filelock/_api.py", line 344 in acquire\n  File "/opt/eval/metrics.py", line 71 in cached\n'


def test_of_dumps_that_faulthandler_wrote_the_last_thread_or_the_current_one_is_the_main_one() -> None:
    dumped = [WAITS_TOO, WAITS_TOO, LOCKED_TOO, *[WAITS_TOO] * 3]
    [fact] = told(handled(*dumped))
    assert fact.text.startswith("collective silent: rank=unknown phase=code last said: main thread in acquire ")
    [fact] = told(handled(*dumped, header="", main="Current thread 0x{:016x}"))
    assert fact.text.startswith("collective silent: rank=unknown phase=code")
    [fact] = told(handled(*dumped, main="Current thread 0x{:016x} (rank {rank}, pid 9)"))
    assert fact.text.startswith("collective silent: rank=2 phase=code")
    assert told(handled(*[WAITS_TOO] * 6)) == []


def test_ranks_of_a_node_that_write_into_one_log_at_once_have_the_ranks_of_its_place() -> None:
    def together(*stacks: str) -> str:
        dumped = [handled(shown).splitlines() for shown in stacks]
        return "".join(f"[default{n}]:{one[line]}\n" for line in range(len(dumped[0])) for n, one in enumerate(dumped))

    waits = [WAITS_TOO, WAITS_TOO]
    [fact] = told({"n1.log": together(*waits, *waits), "n2.log": together(*waits, LOCKED_TOO, WAITS_TOO)})
    assert fact.text.startswith("collective silent: rank=6 phase=code") and fact.node == "n2"
