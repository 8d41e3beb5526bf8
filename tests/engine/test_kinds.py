"""What a loose file is, by its name and its first lines."""

from __future__ import annotations

import pickle

import pytest

from engine.facts import is_structured
from engine.kinds import describe
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
        ("pod-worker-0.log", b"iteration 1\n", (Source.APPLOG, None, None)),
        ("events.log", b"iteration 1\n", (Source.APPLOG, None, None)),
        ("pods-train.json", b"", (Source.SCHEDULER, None, None)),
        (
            "ctld.txt",
            b"[2026-11-03T04:11:54.120] sched: Allocate JobId=7 NodeList=gx-01\n",
            (Source.SCHEDULER, None, None),
        ),
    ],
)
def test_a_loose_file_is_read_as_what_it_is(name: str, head: bytes, wanted: tuple[object, ...]) -> None:
    kind = describe(name, head, NODES)
    assert (kind.source, kind.node, kind.rank) == wanted


SCONTROL_JOB = b"""\
JobId=48213 JobName=train
   JobState=TIMEOUT Reason=TimeLimit Dependency=(null)
   StartTime=2026-11-03T00:11:42 EndTime=2026-11-03T04:11:54 Deadline=N/A

   NodeList=gx-[01-02]
"""
SCONTROL_NODES = b"NodeName=gx-01 Arch=x86_64\n   State=DOWN+DRAIN\n   Reason=Xid 79 [root@2026-11-03T04:12:00]\n"
SACCT_BARS = b"JobID|JobName|Partition|Account|AllocCPUS|State|ExitCode\n7|train|gpu|ml|64|FAILED|1:0\n"
SACCT_COLUMNS = b"""\
JobID           JobName  Partition    Account  AllocCPUS      State ExitCode
------------ ---------- ---------- ---------- ---------- ---------- --------
7                 train        gpu         ml         64     FAILED      1:0
7.batch           batch                    ml         32     FAILED      1:0
"""
SQUEUE = b"""\
             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)
                 7       gpu    train      ada  R    1:00:00      2 gx-[01-02]
"""


@pytest.mark.parametrize(
    ("name", "head", "base"),
    [
        ("job.txt", SCONTROL_JOB, "scontrol-job.txt"),
        ("nodes.out", SCONTROL_NODES, "scontrol-nodes.out"),
        ("why.txt", SACCT_BARS, "sacct-why.txt"),
        ("why.txt", b"Welcome to the cluster\n\n" + SACCT_BARS, "sacct-why.txt"),
        ("why.txt", SACCT_COLUMNS, "sacct-why.txt"),
        ("queue", SQUEUE, "squeue-queue"),
        ("sacct-7.txt", SACCT_BARS, "sacct-7.txt"),
        ("k.txt", b'{"apiVersion": "v1", "kind": "PodList", "items": []}', "k.txt.json"),
        ("s.txt", b'{"meta": {}, "jobs": [{"job_id": 7}]}', "s.txt.json"),
    ],
)
def test_records_are_told_by_their_content_and_named_after_what_wrote_them(name: str, head: bytes, base: str) -> None:
    kind = describe(name, head)
    assert (kind.source, kind.base) == (Source.SCHEDULER, base) and is_structured(kind.base)


LOG = b"".join(b"iteration %d | loss 2.1\n" % number for number in range(40))


@pytest.mark.parametrize("said", [SCONTROL_JOB, SCONTROL_NODES, SACCT_BARS, SACCT_COLUMNS, SQUEUE])
def test_a_jobs_log_that_begins_with_what_slurm_says_of_it_is_a_log(said: bytes) -> None:
    assert describe("slurm-7.out", said + LOG).source is Source.APPLOG
    assert describe("slurm-7.out", LOG + said).source is Source.APPLOG
