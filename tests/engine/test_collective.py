"""Flight-recorder dumps of every version, and what they say about who was missing."""

from __future__ import annotations

import json
import os
import pickle
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from engine.dumps import DumpError, load_dump, read_dump
from engine.model import Diagnosis, Source, Stream
from tests.engine.evidence import Evidence, attempt

AT = int(datetime(2026, 11, 3, 2, 50, tzinfo=UTC).timestamp() * 1e9)
RANKS = range(8)


def entry(seq: int, op: str = "all_reduce", state: str = "completed", **fields: Any) -> dict[str, Any]:
    return {
        "pg_id": 0,
        "process_group": ["0", "default_pg"],
        "collective_seq_id": seq,
        "p2p_seq_id": 0,
        "profiling_name": f"nccl:{op}",
        "time_created_ns": AT + seq,
        "input_sizes": [[65536]],
        "state": state,
        "is_p2p": False,
        "frames": [],
    } | fields


def dump(entries: list[dict[str, Any]], ranks: Any = "[0, 1, 2, 3, 4, 5, 6, 7]", **fields: Any) -> dict[str, Any]:
    return {
        "version": "2.9",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}},
        "entries": entries,
    } | fields


def waiting(last: int) -> list[dict[str, Any]]:
    """Collectives up to `last`, in which the rank still is."""
    return [*[entry(seq) for seq in range(last - 5, last)], entry(last, state="started")]


Write = Callable[[Any], bytes]
LOG = "2026-11-03 02:49:00 iteration 99/1000 loss 2.0\n"


def diagnosed(dumps: dict[int, Any], write: Write = pickle.dumps, name: str = "nccl_trace_rank_{}") -> Diagnosis:
    files: dict[str, bytes | str] = {f"flight_recorder/{name.format(rank)}": write(d) for rank, d in dumps.items()}
    return attempt({"applog/train.log": LOG, **files}, state="TIMEOUT").diagnosed()


def told(found: Diagnosis) -> list[str]:
    """What was concluded from the dumps."""
    return [e.text for e in found.evidence if e.text.startswith("collective ")]


def as_json(document: Any) -> bytes:
    return json.dumps(document).encode()


@pytest.mark.parametrize("write", [pickle.dumps, lambda d: pickle.dumps(d, protocol=2), as_json])
@pytest.mark.parametrize("name", ["nccl_trace_rank_{}", "comm_lib_trace_rank_{}", "dump-{}", "trace_{}.json"])
def test_a_rank_that_never_issued_what_the_others_wait_in_is_named(write: Write, name: str) -> None:
    dumps = {rank: dump(waiting(100 if rank != 5 else 99)) for rank in RANKS}
    said = told(diagnosed(dumps, write, name))
    assert any("rank=5 never issued seq=100 nccl:all_reduce that 7 ranks wait in; its last is 99" in s for s in said)


def test_a_rank_that_issued_something_else_is_named() -> None:
    dumps = {rank: dump(waiting(100)) for rank in RANKS}
    dumps[3]["entries"][-1] = entry(100, "broadcast", "started")
    said = told(diagnosed(dumps))
    assert any("seq=100 rank=3 issued nccl:broadcast" in s and "7 ranks issued nccl:all_reduce" in s for s in said)


def test_a_rank_that_comes_late_to_something_else_is_no_less_the_reason() -> None:
    dumps = {rank: dump(waiting(100)) for rank in RANKS}
    dumps[3]["entries"][-1] = entry(100, "broadcast", "started", time_created_ns=AT + 90 * 10**9)
    gave_up = "".join(
        f"2026-11-03 {'02:59:30' if rank == 3 else '02:58:00'} [rank{rank}]: Watchdog caught collective operation "
        f"timeout: WorkNCCL(SeqNum=100, OpType={'BROADCAST' if rank == 3 else 'ALLREDUCE'}, Timeout(ms)=480000) "
        "ran for 480017 milliseconds before timing out.\n"
        for rank in RANKS
    )
    files = {f"flight_recorder/trace_{rank}": pickle.dumps(d) for rank, d in dumps.items()}
    found = attempt({"applog/train.log": LOG + gave_up, **files}, state="FAILED").diagnosed()
    assert (found.domain, found.sub_domain) == ("software", "collective_mismatch")


def test_a_rank_with_another_tensor_size_is_named_only_where_sizes_must_be_equal() -> None:
    def sized(op: str) -> list[str]:
        dumps = {rank: dump([*waiting(99)[:-1], entry(100, op, "started")]) for rank in RANKS}
        dumps[3]["entries"][-1]["input_sizes"] = [[1]]
        return [said for said in told(diagnosed(dumps)) if "mismatch" in said]

    assert len(sized("all_reduce")) == 1
    assert sized("all_to_all") == []


def test_a_rank_without_a_dump_is_named() -> None:
    said = told(diagnosed({rank: dump(waiting(100)) for rank in RANKS if rank != 6}))
    assert any("rank=6 never issued seq=100" in s and "it left no dump" in s for s in said)


def test_a_rank_whose_dump_of_running_collectives_is_empty_is_named() -> None:
    dumps = {rank: dump([entry(100, state="started")] if rank != 2 else []) for rank in RANKS}
    said = told(diagnosed(dumps))
    assert any("rank=2 never issued seq=100" in s and "has no record of the group" in s for s in said)


def test_ranks_that_are_all_alike_are_not_named() -> None:
    assert told(diagnosed({rank: dump(waiting(100)) for rank in RANKS})) == []


def test_groups_of_one_name_and_other_ranks_are_not_compared() -> None:
    rows = {rank: "[0, 1, 2, 3]" if rank < 4 else "[4, 5, 6, 7]" for rank in RANKS}
    dumps = {rank: dump(waiting(100 if rank < 4 else 50), ranks) for rank, ranks in rows.items()}
    assert told(diagnosed(dumps)) == []
    dumps[6] = dump(waiting(49), rows[6])
    assert ["rank=6 never issued seq=50" in s for s in told(diagnosed(dumps)) if "lagging" in s] == [True]


def test_the_first_version_s_names_are_understood() -> None:
    old = [
        {k: v for k, v in e.items() if k not in ("collective_seq_id", "process_group")}
        | {"seq_id": e["collective_seq_id"]}
        for e in waiting(100)
    ]
    dumps: dict[int, Any] = {rank: old if rank != 5 else old[:-1] for rank in RANKS}
    assert any("rank=5 never issued seq=100" in s for s in told(diagnosed(dumps)))


def test_the_status_of_a_group_tells_where_the_entries_were_overwritten() -> None:
    config = {"pg_status": {"0": {"last_enqueued_collective": 100}}}
    dumps = {rank: dump(waiting(100), **config) for rank in RANKS}
    dumps[4] = dump(waiting(90), pg_status={"0": {"last_enqueued_collective": 90}})
    assert any("rank=4 never issued seq=100" in s for s in told(diagnosed(dumps)))


def test_two_ranks_that_both_send_are_named() -> None:
    def pair(me: int, peer: int) -> dict[str, Any]:
        return dump([*waiting(99)[:-1], entry(0, f"send {me}->{peer}", "started", is_p2p=True, p2p_seq_id=7)])

    said = told(diagnosed({0: pair(0, 1), 1: pair(1, 0), 2: dump(waiting(98)[:-1]), 3: dump(waiting(98)[:-1])}))
    assert any("neither posted the recv" in s for s in said)


class Runs:
    def __reduce__(self) -> Any:
        return os.system, ("touch /tmp/faultline-must-not-exist",)


MALICIOUS = {
    "a call": pickle.dumps(Runs()),
    "a call inside an entry": pickle.dumps({"entries": [Runs()]}),
    "a class": pickle.dumps(datetime.now(UTC)),
    "a reference to something outside": b"Pgone\n.",
    "an extension": b"\x80\x02\x82\x01.",
    "a global by protocol 0": b"cos\nsystem\n(S'true'\ntR.",
}


@pytest.mark.parametrize("what", MALICIOUS)
def test_a_pickle_that_holds_more_than_plain_containers_is_refused(what: str) -> None:
    with pytest.raises(DumpError):
        load_dump(MALICIOUS[what])
    assert not os.path.exists("/tmp/faultline-must-not-exist")


def test_a_refused_dump_is_told_in_the_coverage_and_the_others_are_read() -> None:
    dumps: dict[int, Any] = {rank: dump(waiting(100 if rank != 5 else 99)) for rank in RANKS}
    dumps[7] = Runs()
    found = diagnosed(dumps)
    assert any("rank=5" in said for said in told(found))
    assert any("nccl_trace_rank_7" in r.note and "not a plain container" in r.note for r in found.coverage)


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


def ladder(steps: int) -> Any:
    """A small pickle whose printed form would never end."""
    value: Any = [1]
    for _ in range(steps):
        value = [value, value]
    return value


def circle() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


STREAM = Stream(name="flight_recorder/x_3", source=Source.FLIGHT_RECORDER, open=lambda: None, size=0, rank=3)  # type: ignore[arg-type, return-value]


ODD: dict[str, Callable[[], Any]] = {
    "deep": lambda: nested(100_000),
    "endless when printed": lambda: ladder(60),
    "holds itself": circle,
    "huge number": lambda: 10**5000,
    "negative": lambda: -1,
    "nothing": lambda: None,
    "long": lambda: "x" * 10**6,
    "true": lambda: True,
    "fraction": lambda: 1.5,
    "bytes": lambda: b"x",
}


@pytest.mark.parametrize("name", ODD)
def test_odd_values_anywhere_in_a_dump_are_bounded_and_harmless(name: str) -> None:
    odd = ODD[name]()
    began = time.process_time()
    for key in entry(1):
        made = read_dump(dump([entry(1), entry(2, state="started") | {key: odd}]), STREAM)
        assert len(msgspec.json.encode(made.entries)) < 5000
    for whole in (dump([], odd), dump([]) | {"pg_config": odd}, dump([]) | {"pg_status": odd}, dump(odd)):
        assert read_dump(whole, STREAM).rank == 3
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1", b"nonsense", b"\x80\x05", b"[" * 200_000, b"{}", b"[]", b"null", b"N."]
)
def test_a_damaged_dump_says_so_or_says_nothing(content: bytes) -> None:
    evidence: Evidence = attempt({"applog/train.log": LOG, "flight_recorder/rank_0": content})
    assert evidence.diagnosed().domain == "unattributed"
