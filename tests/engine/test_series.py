"""Metric series -> signals: detectors with stated thresholds, and what is no metric at all."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from engine.model import Diagnosis
from tests.engine.evidence import attempt

START = datetime(2026, 11, 3, 2, tzinfo=UTC).timestamp()
NODES = [f"node-{n:02d}" for n in range(1, 9)]
Values = Callable[[int], float]


def series(name: str, node: str, values: list[float], **labels: str) -> dict[str, Any]:
    pairs = [[START + 15 * n, str(value)] for n, value in enumerate(values)]
    return {"metric": {"__name__": name, "Hostname": node, **labels}, "values": pairs}


def answer(*results: dict[str, Any]) -> str:
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": list(results)}})


def diagnosed(content: str | bytes, **fields: Any) -> Diagnosis:
    log = "".join(f"2026-11-03 02:{m:02d}:00 iteration {m}/1000 loss 2.0\n" for m in range(60))
    return attempt({"metrics/x.json": content, "applog/train.log": log}, nodes=NODES, **fields).diagnosed()


def measured(content: str | bytes) -> list[tuple[str, str | None, str]]:
    """Rule, node and sentence of each signal that a metric gave."""
    return [(e.rule, e.node, e.text) for e in diagnosed(content).evidence if e.source == "metric"]


THROTTLE = "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS"


def test_bits_that_are_set_in_several_samples_are_a_signal_with_its_sentence() -> None:
    found = measured(answer(series(THROTTLE, "node-02", [0.0] * 50 + [64.0] * 20, gpu="3")))
    assert found[0][:2] == ("metric.thermal-slowdown", "node-02")
    assert found[0][2] == f"{THROTTLE} of node-02 3 is 0x40 (bits of 0x40) in 20 of 70 samples"


def test_one_sample_is_no_signal() -> None:
    assert measured(answer(series(THROTTLE, "node-02", [0.0] * 50 + [64.0] + [0.0] * 20))) == []


def test_other_bits_are_no_signal() -> None:
    assert measured(answer(series(THROTTLE, "node-02", [1.0, 4.0] * 30))) == []


def test_samples_outside_the_attempt_are_not_looked_at() -> None:
    late = series(THROTTLE, "node-02", [64.0] * 20)
    late["values"] = [[at + 7200, value] for at, value in late["values"]]
    assert measured(answer(late)) == []


def test_one_odd_value_among_peers_is_an_outlier_and_all_alike_are_none() -> None:
    clock = "DCGM_FI_DEV_SM_CLOCK"
    odd = [series(clock, node, [1980.0 if node != "node-05" else 900.0] * 40) for node in NODES]
    assert [(rule, node) for rule, node, _ in measured(answer(*odd))] == [("metric.clock-low", "node-05")]
    alike = [series(clock, node, [900.0] * 40) for node in NODES]
    assert measured(answer(*alike)) == []
    assert measured(answer(*odd[4:6])) == []


def test_a_counter_that_grew_is_a_signal_and_one_that_was_high_all_along_is_none() -> None:
    name = "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"
    grown = measured(answer(series(name, "node-02", [3.0] * 20 + [5.0] * 20)))
    assert [(rule, said.endswith("grows by 2")) for rule, _, said in grown] == [("metric.ecc-uncorrectable", True)]
    assert measured(answer(series(name, "node-02", [3.0] * 40))) == []


def test_a_node_is_known_by_any_of_the_usual_labels_with_port_and_domain() -> None:
    for labels in ({"instance": "node-02:9400"}, {"node": "node-02.example.com"}, {"kubernetes_node": "node-02"}):
        one = series(THROTTLE, "x", [64.0] * 20)
        one["metric"] = {"__name__": THROTTLE, **labels}
        assert [node for _, node, _ in measured(answer(one))] == ["node-02"]


def test_a_node_of_another_job_is_not_blamed() -> None:
    found = diagnosed(answer(series(THROTTLE, "node-77", [64.0] * 60)), state="RUNNING")
    assert found.root_cause is None or "node-77" not in found.root_cause.nodes


def test_samples_in_any_order_give_the_same_signal() -> None:
    one = series(THROTTLE, "node-02", [0.0] * 30 + [64.0] * 20)
    turned = json.loads(json.dumps(one))
    turned["values"].reverse()
    assert measured(answer(one)) == measured(answer(turned))


def test_a_vector_is_read_like_a_matrix_of_one_sample() -> None:
    one = {"metric": {"__name__": THROTTLE, "Hostname": "node-02"}, "value": [START + 60, "64"]}
    assert any(r.source == "metric" and r.lines == 1 for r in diagnosed(answer(one)).coverage)


GARBAGE = [
    "",
    "{",
    "null",
    "3",
    '"x"',
    "[]",
    "[3]",
    "{}",
    '{"data":3}',
    '{"data":{"result":3}}',
    '{"data":{"result":[3,null,{"metric":[1]},{"metric":3,"values":[]}]}}',
    '{"data":{"result":[{"metric":{"__name__":{"a":1},"Hostname":[]},"values":{"a":1}}]}}',
    '{"data":{"result":[{"metric":{"__name__":"x"},"values":[3,[],[1],["a","b"],[1,{}],[null,null],{"a":1}]}]}}',
    '{"status":"error","error":"query timed out"}',
    "[" * 100_000,
    "\x00\xff",
]


@pytest.mark.parametrize("content", GARBAGE)
def test_what_is_no_answer_of_a_query_is_harmless(content: str) -> None:
    assert measured(content) == []


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "1e308", "-1e308", "1e-320", "9" * 400, "", "x", "0x40"])
def test_odd_numbers_are_harmless(value: str) -> None:
    for name in (THROTTLE, "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "DCGM_FI_DEV_GPU_TEMP"):
        one = series(name, "node-02", [1.0] * 10)
        one["values"] += [[START + 300 + n, value] for n in range(10)]
        peers = [series(name, node, [1.0, 2.0] * 10) for node in NODES[2:]]
        diagnosed(answer(one, *peers))


@pytest.mark.parametrize("at", [-1e300, 1e300, 1e11, -5, "x", None])
def test_odd_times_are_harmless_even_without_a_window(at: Any) -> None:
    one = series(THROTTLE, "node-02", [64.0] * 10)
    one["values"] += [[at, "64"]] * 10
    diagnosed(answer(one), started_at=None, ended_at=None)


def test_thousands_of_series_cost_little() -> None:
    nodes = [f"node-{n:03d}" for n in range(128)]
    clocks = [
        series("DCGM_FI_DEV_SM_CLOCK", node, [1980.0 - gpu] * 120, gpu=str(gpu)) for node in nodes for gpu in range(8)
    ]
    content = answer(*clocks)
    began = time.process_time()
    attempt({"metrics/x.json": content}, nodes=nodes).diagnosed()
    assert time.process_time() - began < 15


XID = "DCGM_FI_DEV_XID_ERRORS"
ABORTED = "2026-11-03 02:58:10 Fatal Python error: Aborted\n"


def lost_gpu(values: list[float], log: str = ABORTED) -> Diagnosis:
    steps = "".join(f"2026-11-03 02:{m:02d}:00 iteration {m}/1000 loss 2.0\n" for m in range(58))
    files: dict[str, bytes | str] = {
        "metrics/xid.json": answer(
            series(XID, "node-02", values, gpu="6"), series(XID, "node-05", [31.0] * 240, gpu="0")
        ),
        "applog/node-02.log": steps + log,
    }
    return attempt(files, nodes=NODES).diagnosed()


@pytest.mark.parametrize(
    ("number", "kind"), [(79, "gpu"), (119, "gpu"), (48, "gpu_memory"), (95, "gpu_memory"), (74, "nvlink")]
)
def test_a_gauge_that_changes_to_a_hardware_fault_s_number_stands_in_for_the_kernel_log(number: int, kind: str) -> None:
    found = lost_gpu([0.0] * 232 + [float(number)] * 2)
    assert (found.domain, found.sub_domain) == ("hardware", kind)
    assert found.root_cause is not None
    assert found.root_cause.nodes == ("node-02",)


@pytest.mark.parametrize(
    "values", [[79.0] * 234, [0.0] * 232 + [31.0] * 2, [0.0] * 232 + [43.0] * 2, [0.0] * 80 + [79.0] * 154]
)
def test_an_old_number_an_application_s_and_one_that_the_job_outlived_accuse_nobody(values: list[float]) -> None:
    assert lost_gpu(values).domain == "unattributed"


THROTTLED = "container_cpu_cfs_throttled_periods_total"


def throttled(rates: list[float], slow_from: int, **labels: str) -> Diagnosis:
    """A counter of throttled periods, every 15 s, beside a job whose iterations take longer from a sample on."""
    total, counter = 0.0, []
    for rate in rates:
        total += 15 * rate
        counter.append(total)
    lines, at, step = [], 0.0, 0
    while at < 3590:
        at += 20.0 if at >= 15 * slow_from else 10.0
        step += 1
        moment = datetime.fromtimestamp(START + at, UTC)
        lines.append(f"{moment:%Y-%m-%dT%H:%M:%SZ} iteration {step}/1000 loss 2.0 elapsed\n")
    pod = {
        "kind": "Pod",
        "metadata": {"name": "train-0"},
        "spec": {"nodeName": "node-01"},
        "status": {"phase": "Running"},
    }
    files: dict[str, bytes | str] = {
        "metrics/cpu.json": answer(series(THROTTLED, "node-01", counter, **{"pod": "train-0", **labels})),
        "applog/train.log": "".join(lines),
        "scheduler/pods.json": json.dumps({"kind": "List", "items": [pod]}),
    }
    return attempt(files, nodes=NODES[:1], state="Running", exit_code=None).diagnosed()


def test_throttling_that_begins_with_the_slow_down_is_its_cause_and_no_node_s_fault() -> None:
    found = throttled([0.1] * 120 + [9.7] * 120, slow_from=120)
    assert (found.outcome, found.domain, found.sub_domain) == ("degraded", "software", "configuration")
    assert found.root_cause is not None
    assert found.root_cause.nodes == ()


def test_throttling_without_a_slow_down_or_all_along_or_of_another_pod_decides_nothing() -> None:
    assert throttled([0.1] * 120 + [9.7] * 120, slow_from=999).domain == "unattributed"
    assert throttled([9.7] * 240, slow_from=120).domain == "unattributed"
    assert throttled([0.1] * 120 + [9.7] * 120, slow_from=120, pod="dcgm-exporter-x2kqv").domain == "unattributed"
