"""Which GPUs a node has: read from what is collected, kept by place, newest word first."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta

import pytest

from engine import model as engine
from engine.model import Source, Stream
from engine.origin import Places
from triage.gpus import Told, gpus_of
from triage.models import Cluster, Gpu
from triage.services.gpus import keep_gpus

NOW = datetime(2026, 11, 3, 4, 22, tzinfo=UTC)
ONE, OTHER = "GPU-ecbe8db9-7d61-bf9d-0ea4-3f3bcf14dcb9", "GPU-5cab3167-9337-dd41-21df-2d29c848b27a"
DRIVER = f"""\
Nov  3 03:19:56 gx-02 kernel: usb 1-1: new device
Nov  3 03:19:57 gx-02 kernel: NVRM: GPU at PCI:0000:61:00: {ONE}
Nov  3 03:19:57 gx-02 kernel: NVRM: GPU Board Serial Number: 1652179791123
Nov  3 03:19:57 gx-02 kernel: NVRM: Xid (PCI:0000:61:00): 79, GPU has fallen off the bus.
Nov  3 03:19:58 gx-02 kernel: NVRM: GPU at PCI:0000:1b:00: {OTHER}
Nov  3 03:19:58 gx-02 kernel: NVRM: Xid (PCI:0000:1b:00): 31, pid=12
"""
SERIES = {
    "__name__": "DCGM_FI_DEV_GPU_TEMP", "Hostname": "gx-02", "gpu": "3", "UUID": ONE,
    "pci_bus_id": "00000000:61:00.0", "modelName": "NVIDIA H100 80GB HBM3",
}  # fmt: skip
SCONTROL = """\
NodeName=gx-01 Arch=x86_64 CoresPerSocket=56
   Gres=gpu:b200:8(S:0-1)
   State=IDLE

NodeName=cpu-07 Arch=x86_64
   Gres=gpu:a100:4
"""


def stream(source: Source, text: str, node: str | None = None) -> Stream:
    content = text.encode()
    return Stream(name=f"{source}/x", source=source, open=lambda: io.BytesIO(content), size=len(content), node=node)


def told(*streams: Stream) -> dict[tuple[str, str], Told]:
    attempt = engine.Attempt(workload=engine.Workload(id="1"), nodes=("gx-01", "gx-02"))
    return {(one.node, one.bus): one for one in gpus_of(streams, Places(attempt, []))}


def metrics(*labels: dict[str, str]) -> str:
    return json.dumps({"data": {"result": [{"metric": one, "values": [[1785229200, "61"]]} for one in labels]}})


@pytest.mark.parametrize("node", ["gx-02", None])
def test_the_driver_tells_serial_numbers_beside_an_xid(node: str | None) -> None:
    found = told(stream(Source.SYSLOG, DRIVER, node))
    assert found["gx-02", "0000:61:00"] == Told("gx-02", "0000:61:00", None, ONE, "1652179791123")
    assert found["gx-02", "0000:1b:00"].serial == "", "the next GPU's number is not this one's"


def test_a_line_over_the_end_of_a_block_is_read_whole() -> None:
    filling = "Nov  3 03:19:56 gx-02 kernel: usb 1-1: new device\n"
    for rest in (40, 90, 130):
        before = filling * ((4 << 20) // len(filling))
        before = before[: (4 << 20) - rest].rpartition("\n")[0] + "\n"
        assert told(stream(Source.SYSLOG, before + DRIVER))["gx-02", "0000:61:00"].serial == "1652179791123"


def test_metrics_and_slurm_tell_the_model() -> None:
    found = told(
        stream(Source.SYSLOG, DRIVER), stream(Source.METRIC, metrics(SERIES)), stream(Source.SCHEDULER, SCONTROL)
    )
    whole = Told("gx-02", "0000:61:00", 3, ONE, "1652179791123", "NVIDIA H100 80GB HBM3")
    assert found["gx-02", "0000:61:00"] == whole
    assert found["gx-01", ""].model == "b200"
    assert not any(node == "cpu-07" for node, _ in found), "a node of another job"


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"data": 7}', metrics({**SERIES, "pci_bus_id": "x" * 9000}), metrics({**SERIES, "gpu": "9" * 40})],
)
def test_what_is_no_answer_tells_nothing_and_breaks_nothing(text: str) -> None:
    found = told(stream(Source.METRIC, text), stream(Source.SYSLOG, "NVRM: GPU at PCI:" * 1000))
    assert all(one.number is None for one in found.values())


@pytest.mark.django_db
def test_an_earlier_word_fills_gaps_and_a_later_one_says_that_a_gpu_was_replaced() -> None:
    cluster = Cluster.objects.create(name="c1")
    first = Told("gx-02", "0000:61:00", None, ONE, "1652179791123")
    assert keep_gpus(cluster, [first], NOW) == 1 and keep_gpus(cluster, [first], NOW) == 0
    keep_gpus(cluster, [Told("gx-02", "0000:61:00", 3, ONE, "", "H100")], NOW - timedelta(days=3))
    gpu = Gpu.objects.get()
    assert (gpu.number, gpu.serial, gpu.model, gpu.told_at, gpu.changed_at) == (3, "1652179791123", "H100", NOW, None)
    later = NOW + timedelta(days=9)
    keep_gpus(cluster, [Told("gx-02", "0000:61:00", None, OTHER)], later)
    gpu.refresh_from_db()
    assert (gpu.uuid, gpu.serial, gpu.changed_at) == (OTHER, "", later), "not the number of the one that went"
    assert keep_gpus(cluster, [first], NOW) == 0, "what was there before stays before"
