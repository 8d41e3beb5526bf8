"""What a loose file is, by its name and its first lines."""

from __future__ import annotations

import pickle

import pytest

from connectors.files.parser import describe
from engine.model import Source

NODES = ("gx-01", "gx-010", "gx-02.cluster.example")
KERNEL = b"Nov  3 04:11:16 gx-02 kernel: NVRM: Xid (PCI:0000:61:00): 79, GPU has fallen off the bus.\n"


@pytest.mark.parametrize(
    ("name", "head", "wanted"),
    [
        ("slurm-48213.out", b"iteration 1\n", (Source.APPLOG, None, None)),
        ("gx-01.rank-17.log", b"iteration 1\n", (Source.APPLOG, "gx-01", 17)),
        ("gx-010.log", b"iteration 1\n", (Source.APPLOG, "gx-010", None)),
        ("worker_rank3.err", b"", (Source.APPLOG, None, 3)),
        ("syslog", b"", (Source.SYSLOG, None, None)),
        ("messages-20261103", KERNEL, (Source.SYSLOG, "gx-02.cluster.example", None)),
        ("out.txt", KERNEL, (Source.SYSLOG, "gx-02.cluster.example", None)),
        ("gx-01-dmesg.txt", b"[ 8123.456789] NVRM: Xid\n", (Source.SYSLOG, "gx-01", None)),
        ("x.txt", b"[Mon Nov  2 04:12:09 2026] NVRM: Xid\n", (Source.SYSLOG, None, None)),
        ("two-hosts.log", KERNEL + KERNEL.replace(b"gx-02", b"gx-01"), (Source.SYSLOG, None, None)),
        ("sacct.txt", b"", (Source.SCHEDULER, None, None)),
        ("export.txt", b"JobID|State|ExitCode\n1|FAILED|1:0\n", (Source.SCHEDULER, None, None)),
        ("x.json", b'{"apiVersion": "v1", "kind": "PodList", "items": []}', (Source.SCHEDULER, None, None)),
        ("dcgm.json", b'{"status":"success","data":{"resultType":"matrix","result":[]}}', (Source.METRIC, None, None)),
        ("nccl_trace_rank_12", pickle.dumps({"version": "2.4"}), (Source.FLIGHT_RECORDER, None, 12)),
        ("log.txt", b'{"kind": "train", "loss": 2.1}\n', (Source.APPLOG, None, None)),
        ("train.log", b"2026-11-03 04:11:54,433 [kernel] compiled\n", (Source.APPLOG, None, None)),
        ("", b"\xff\xfe\x00", (Source.APPLOG, None, None)),
    ],
)
def test_a_loose_file_is_read_as_what_it_is(name: str, head: bytes, wanted: tuple[object, ...]) -> None:
    kind = describe(name, head, NODES)
    assert (kind.source, kind.node, kind.rank) == wanted
