"""Little evidence that would cost much: work and memory grow as the evidence does, never as its square."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Callable
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import dumps, pauses
from engine.blocks import Around
from engine.bundle import BundleError, match_node
from engine.dumps import DumpError, load_dump, read_dump
from engine.hits import Mark
from engine.hostlist import BadHostlist, expand_hostlist
from engine.manifest import parse_attempt
from engine.medians import median_of_others
from engine.model import Attempt, Source, Stream, Workload
from engine.origin import Places
from engine.progress import Step
from engine.series import series_of, slowdown_rule
from engine.skew import _by_ends
from engine.window import Window
from tests.engine.evidence import attempt
from tests.engine.test_hostile import within

STREAM = Stream(name="flight_recorder/x_3", source=Source.FLIGHT_RECORDER, open=None, size=0, rank=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("key", ["schema", "workload", "attempt"])
def test_aliases_of_aliases_in_attempt_yaml_are_not_written_out(key: str) -> None:
    levels = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12))
    known = {"schema": "1", "workload": "{id: '1'}", "attempt": "{}"} | {key: "*a11"}
    content = f"a0: &a0 [x, x]\n{levels}" + "".join(f"{name}: {value}\n" for name, value in known.items())
    with within(1), pytest.raises(BundleError, match=f"{key}: must be"):
        parse_attempt(content.encode())


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"\x80\x04})" + b"\x85" * 500_000 + b"K\x01s.", id="a tuple in a tuple and so on, as a key"),
        pytest.param(b"\x80\x04(" + b")" + b"\x85" * 500_000 + b"K\x01d.", id="the same, as protocol 0 writes it"),
        pytest.param(b"\x80\x04\x8f(" + b")" + b"\x85" * 500_000 + b"\x90.", id="the same, in a set"),
        pytest.param(b"\x80\x04" + b"(" * 500_000 + b"\x91" * 500_000 + b".", id="sets in sets"),
    ],
)
def test_deep_keys_of_a_dump_do_not_end_the_process(content: bytes) -> None:
    with pytest.raises(DumpError):
        load_dump(content)


def test_keys_of_a_dump_cannot_all_have_one_hash() -> None:
    keys = [(n * (2**61 - 1)).to_bytes(12, "little", signed=True) for n in range(20_000)]
    with within(1), pytest.raises(DumpError, match="key"):
        load_dump(b"\x80\x04}(" + b"".join(b"\x8a\x0c" + key + b"N" for key in keys) + b"u.")


@pytest.mark.parametrize("key", [1, "ranks", -(2**63)])
def test_keys_as_dumps_have_them_are_read(key: Any) -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert load_dump(pickle.dumps({key: {key: [1]}, "x": 2}, protocol)) == {key: {key: [1]}, "x": 2}


def test_one_list_that_a_dump_names_again_and_again_counts_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dumps, "MAX_NUMBERS", 10_000)
    numbers, text = list(range(1000)), ", ".join(["7"] * 1000)
    sizes = [numbers[:64]] * 64
    for document in (
        {"entries": [{"input_sizes": sizes}] * 100},
        {"pg_config": {n: {"ranks": numbers} for n in range(100)}},
        {"pg_config": {n: {"ranks": text} for n in range(100)}},
        {"pg_config": {n: {"ranks": "x" * 80_000} for n in range(100)}},
    ):
        with pytest.raises(DumpError, match="more than 10000"):
            read_dump(document, STREAM)
    read_dump({"entries": [{"input_sizes": [[65536]]}] * 1000, "pg_config": {"0": {"ranks": numbers}}}, STREAM)


def entry(seq: int, **fields: Any) -> dict[str, Any]:
    common = {"process_group": ("0", "default_pg"), "profiling_name": "nccl:all_reduce", "collective_seq_id": seq}
    return common | {"is_p2p": False, "state": "completed", "input_sizes": [[65536]]} | fields


def test_full_buffers_of_collectives_are_compared_in_time() -> None:
    issued = [*[entry(seq) for seq in range(4000)], entry(4000, state="started")]

    def of(rank: int) -> bytes:
        return pickle.dumps({"rank": rank, "entries": issued[:-1] if rank == 5 else issued})

    with within(20):
        found = attempt({f"flight_recorder/rank_{rank}": of(rank) for rank in range(16)}).diagnosed()
    assert any("rank=5 never issued seq=4000" in one.text for one in found.evidence)


def test_groups_without_number_are_compared_in_time() -> None:
    entries = [
        entry(n, process_group=(str(n), ""), is_p2p=bool(n % 2), profiling_name="nccl:send 0->1", state="started")
        for n in range(6000)
    ]
    dumped = {f"flight_recorder/rank_{rank}": pickle.dumps({"rank": rank, "entries": entries}) for rank in (0, 1)}
    with within(10):
        attempt(dumped).diagnosed()


def test_states_of_groups_without_number_are_read_in_time() -> None:
    count = 20_000
    document = {
        "pg_config": {str(n): {"name": str(n), "ranks": "[0]"} for n in range(count)},
        "pg_status": {str(n): {"last_enqueued_collective": n} for n in range(count)},
    }
    with within(3):
        assert len(read_dump(json.loads(json.dumps(document)), STREAM).last) == count


STALLED = (
    "[2026-11-03 02:30:00.1: W /h/stall_inspector.cc:107] One or more tensors were submitted to be reduced, gathered "
    "or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 seconds.\n"
)


def test_a_report_of_stalled_ranks_that_has_no_end_is_read_in_time() -> None:
    rows = "".join(f"{rank}: [a{rank}]\n" for rank in range(40_000))
    with within(15):
        attempt({"applog/train.log": f"{STALLED}Stalled ranks:\n{rows}"}).diagnosed()


def test_headings_of_stalled_ranks_without_rows_are_read_in_time() -> None:
    with within(15):
        attempt({"applog/train.log": STALLED + "Stalled ranks:\n" * 200_000}).diagnosed()


def test_sides_of_a_stall_are_ranks_that_share_a_tensor_whatever_is_between_them() -> None:
    rows = "0: [a, b]\n1: [x]\n2: [c, d]\n3: [y, x]\n4: [b, c]\n5: [d]\n"
    found = attempt({"applog/train.log": f"{STALLED}Stalled ranks:\n{rows}"}).diagnosed()
    said = [one.text for one in found.evidence if "collective mismatch" in one.text]
    assert said and "where 4 ranks issued" in said[0] and "rank=1" in said[0]


def test_many_stacks_are_compared_in_time() -> None:
    stacks = [
        f'Process {n}: python train.py\nThread {n} (active): "MainThread"\n    f{n} (train.py:1)\n'
        for n in range(15_000)
    ]
    with within(15):
        attempt({"applog/train.log": "".join(stacks)}).diagnosed()


def test_pauses_without_number_are_compared_in_time() -> None:
    rule, steps = slowdown_rule(), []
    for n in range(90_000):
        mark = Mark(None, n, n, 0, "", {"step": str(n)}, rule, True, Around(), "")
        steps.append(Step(n + 40.0 * (n // 3), "applog/train.log", mark, None, None))
    with within(3):
        assert pauses.lengthened(steps) is None


@given(st.lists(st.floats(-1e9, 1e9), min_size=2, max_size=12), st.data())
def test_the_median_of_the_others_is_their_median(numbers: list[float], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(numbers) - 1))
    others = numbers[:at] + numbers[at + 1 :]
    assert median_of_others(sorted(numbers), numbers[at]) == median(others)


def test_clocks_of_many_nodes_are_compared_in_time() -> None:
    spans = {f"node-{n:05d}": (n % 7.0, 3600.0 + n % 5) for n in range(10_000)} | {"node-x": (300.0, 3901.0)}
    with within(1):
        assert _by_ends(spans, Window(0.0, 3605.0), {}).keys() == {"node-x"}


def test_logs_of_many_nodes_are_told_apart_in_time() -> None:
    nodes = tuple(f"node-{n:05d}.example.com" for n in range(2_000))
    with within(3):
        for n, node in enumerate(nodes):
            assert match_node(f"node-{n:05d}", nodes) == node
            assert match_node(f"node-{n:05d}-1", nodes) is None


def test_logs_named_after_many_pods_are_told_apart_in_time() -> None:
    """For every line it is asked of which node its log is."""
    pods = [
        {"kind": "Pod", "metadata": {"name": f"worker-{n}", "uid": f"u{n}"}, "spec": {"nodeName": f"node-{n}"}}
        for n in range(8_000)
    ]
    log = "".join(f"2026-11-03 02:{n // 10:02d}:{n % 10:02d} iteration {n}/1000 loss 1.0\n" for n in range(300))
    logs = {f"applog/worker-{n}.log": log for n in range(20)}
    files: dict[str, bytes | str] = {"scheduler/pods.json": json.dumps({"items": pods}), **logs}
    with within(15):
        attempt(files, nodes=[f"node-{n}" for n in range(8_000)]).diagnosed()


def test_results_of_a_query_without_labels_are_read_in_time() -> None:
    content = b"[" + b",".join([b'{"value":[1,1]}'] * 100_000) + b"]"
    series = Stream(name="metrics/x.json", source=Source.METRIC, open=lambda: io.BytesIO(content), size=len(content))  # type: ignore[arg-type, return-value]
    with within(5):
        assert len(series_of(series, Places(Attempt(workload=Workload(id="1")), []))) == 100_000


def test_series_of_many_gpus_are_compared_in_time() -> None:
    times = [1793671200 + 60 * minute for minute in range(8)]
    gpus = range(10_000)
    kinds: dict[str, Callable[[int, int], float]] = {
        "DCGM_FI_DEV_GPU_TEMP": lambda gpu, _: 50 + gpu % 7 + (30 if gpu == 5 else 0),
        "DCGM_FI_DEV_SM_CLOCK": lambda gpu, _: 1900 + gpu % 7 - (900 if gpu == 5 else 0),
        "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": lambda gpu, minute: minute * (1 + gpu % 3),
    }
    results = [
        {
            "metric": {"__name__": name, "Hostname": f"node-{gpu // 8}", "gpu": str(gpu % 8)},
            "values": [[at, str(value(gpu, minute))] for minute, at in enumerate(times)],
        }
        for name, value in kinds.items()
        for gpu in gpus
    ]
    evidence = attempt({"metrics/x.json": json.dumps(results)}, nodes=[f"node-{n}" for n in range(1_250)])
    with within(12):
        evidence.diagnosed()


@pytest.mark.parametrize("text", ["x" * 100_000 + "[1-99999]", "[" + "0" * 4000 + "1-99999]", "n[1-2]" * 200])
def test_a_list_of_hosts_holds_no_names_that_no_host_has(text: str) -> None:
    with within(1), pytest.raises(BadHostlist):
        expand_hostlist(text)
