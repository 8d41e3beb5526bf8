"""Diagnoses written by hand, in the contract's shape, for tests of the pages. Hosts, jobs and people are invented."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from engine import model as engine

START = datetime(2026, 10, 5, 2, 0, tzinfo=UTC)
END = datetime(2026, 10, 5, 4, 22, 31, tzinfo=UTC)
NODES = ("gx-01", "gx-02", "gx-03", "gx-04")


def at(clock: str) -> str:
    return f"2026-10-05T{clock}.000000Z" if "." not in clock else f"2026-10-05T{clock}000Z"


def evidence(ref: str, rule: str, stream: str, line: int, text: str, **more: Any) -> engine.Evidence:
    values: dict[str, Any] = {
        "source": "syslog" if stream.startswith("syslog") else "applog",
        "offset": line * 100,
        "at": None,
        "clock": "own:year from the attempt",
        "node": None,
        "rank": None,
        "device": None,
        "before": ("quiet before 1", "quiet before 2"),
        "after": ("quiet after 1",),
        "sha256": "0" * 64,
    }
    return engine.Evidence(id=ref, rule=rule, stream=stream, line=line, text=text, **{**values, **more})


def nvlink() -> engine.Diagnosis:
    """A link fault on gx-02 that three other nodes report ten minutes later."""
    lines = (
        evidence(
            "e1",
            "xid.149",
            "syslog/gx-02.log",
            125,
            "NVRM: Xid (PCI:0000:61:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 10",
            at=at("04:11:57"),
            node="gx-02",
            device="0000:61:00",
        ),
        evidence(
            "e2",
            "nccl.watchdog-timeout",
            "applog/gx-04.log",
            1768,
            "[Rank 24] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=60411, OpType=ALLREDUCE)",
            at=at("04:21:58.302"),
            node="gx-04",
            rank=24,
        ),
        evidence(
            "e3",
            "nccl.ib-completion-error",
            "applog/gx-03.log",
            248,
            "NET/IB : Got completion with error 12",
            at=at("04:22:00"),
            node="gx-03",
            rank=19,
        ),
        evidence(
            "e4",
            "fs.lustre-client-error",
            "syslog/gx-02.log",
            119,
            "LustreError: 11-0: operation mds_getattr failed: rc = -107",
            at=at("04:02:20"),
            node="gx-02",
        ),
        evidence(
            "e5",
            "pytorch.iteration",
            "applog/gx-04.log",
            1767,
            "iteration 1525 / 500000",
            at=at("04:11:54.433"),
            node="gx-04",
        ),
    )
    return engine.Diagnosis(
        bundle="48213-1",
        attempt={
            "workload": {
                "id": "48213",
                "name": "llama-70b",
                "scheduler": "slurm",
                "cluster": "c1",
                "user": "ada",
                "queue": "gpu",
            },
            "number": 1,
            "state": "FAILED",
            "exit_code": "134:0",
            "reason": "NonZeroExitCode",
            "started_at": at("02:00:00"),
            "ended_at": at("04:22:31"),
            "nodes": list(NODES),
            "gpus_per_node": 8,
        },
        outcome="failed",
        domain="hardware",
        sub_domain="nvlink",
        title="NVLink signal-integrity fault on gx-02 (Xid 149)",
        root_cause=engine.RootCause(
            rule="xid.149",
            title="NVLink signal-integrity fault (Xid 149)",
            nodes=("gx-02",),
            devices=("gx-02/0000:61:00",),
            ranks=(),
            at=at("04:11:57"),
            evidence=("e1",),
            why="The driver of gx-02 reported link 10 down [e1]; nothing explains it, it explains the rest [e2, e3].",
        ),
        candidates=(
            engine.Candidate(
                rule="fs.lustre-client-error",
                title="Lustre client error",
                nodes=("gx-02",),
                domain="storage",
                sub_domain="shared_filesystem",
                evidence=("e4",),
                not_root_because="The job made progress for 9 minutes after it [e4], until [e5].",
            ),
        ),
        affected_nodes=(
            engine.AffectedNode(node="gx-02", role="cause", first_at=at("04:11:57")),
            engine.AffectedNode(node="gx-04", role="affected", first_at=at("04:21:58.302")),
            engine.AffectedNode(node="gx-03", role="affected", first_at=at("04:22:00")),
        ),
        symptoms=(
            engine.Symptom(
                rule="nccl.watchdog-timeout",
                title="Collective timeout",
                nodes=("gx-04",),
                ranks=(24, 25, 27, 30, 31),
                count=15,
                first_at=at("04:21:58.302"),
                last_at=at("04:21:59"),
                explained_by="root",
                evidence=("e2",),
            ),
            engine.Symptom(
                rule="nccl.ib-completion-error",
                title="InfiniBand completion, status 12",
                nodes=("gx-03",),
                ranks=(19, 22),
                count=4,
                first_at=at("04:22:00"),
                last_at=at("04:22:01"),
                explained_by="e2",
                evidence=("e3",),
            ),
        ),
        evidence=lines,
        timeline=(
            engine.TimelineEntry(
                at=at("02:00:00"), kind="start", node=None, title="Attempt 1 starts on 4 nodes", evidence=()
            ),
            engine.TimelineEntry(
                at=at("04:02:20"), kind="cause", node="gx-02", title="Lustre client error", evidence=("e4",)
            ),
            engine.TimelineEntry(
                at=at("04:11:54.433"), kind="progress", node="gx-04", title="Iteration 1525", evidence=("e5",)
            ),
            engine.TimelineEntry(
                at=at("04:11:57"), kind="cause", node="gx-02", title="Link 10 down (Xid 149)", evidence=("e1",)
            ),
            engine.TimelineEntry(
                at=at("04:21:58.302"), kind="symptom", node="gx-04", title="Collective timeout", evidence=("e2",)
            ),
            engine.TimelineEntry(
                at=at("04:22:00"), kind="symptom", node="gx-03", title="InfiniBand status 12", evidence=("e3",)
            ),
            engine.TimelineEntry(
                at=at("04:22:31"), kind="end", node=None, title="Attempt ends, exit 134:0", evidence=()
            ),
        ),
        reasoning=(
            "The driver of gx-02 reported link 10 down at 04:11:57 [e1].",
            "Every other error is later and a lost NVLink explains it [e2, e3].",
        ),
        recommendation=engine.Recommendation(
            action="restart_excluding",
            exclude_nodes=("gx-02",),
            text="Then reset the GPU and check the cable of link 10.",
            references=("https://docs.example.org/xid-149", "javascript:alert(1)"),
        ),
        coverage=(
            engine.SourceReport(
                source="applog",
                status="ok",
                streams=5,
                lines=2800,
                bytes=700_000,
                first_at=at("02:00:00"),
                last_at=at("04:22:31"),
            ),
            engine.SourceReport(source="syslog", status="ok", streams=4, lines=530, bytes=60_000),
            engine.SourceReport(source="metric", status="missing", note="no metrics were collected"),
        ),
        fingerprint=engine.Fingerprint(
            key="f" * 32, parts={"domain": "hardware", "sub_domain": "nvlink", "rule": "xid.149"}, version="1"
        ),
        engine=engine.EngineInfo(version="0.1.0", ruleset="sha256:4f1c9a02" + "0" * 56),
    )


def key_error() -> engine.Diagnosis:
    """User code: no node to blame, no symptoms, no metrics."""
    story = nvlink()
    line = evidence(
        "e1",
        "python.exception",
        "applog/gx-01.log",
        88,
        "KeyError: 'input_ids'",
        at=at("04:22:20"),
        node="gx-01",
        rank=3,
    )
    return _changed(
        story,
        domain="software",
        sub_domain="data",
        title="KeyError: 'input_ids' in collate_fn",
        root_cause=engine.RootCause(
            rule="python.exception",
            title="KeyError: 'input_ids'",
            nodes=(),
            devices=(),
            ranks=(3,),
            at=at("04:22:20"),
            evidence=("e1",),
            why="Rank 3 raised it [e1].",
        ),
        candidates=(),
        affected_nodes=(),
        symptoms=(),
        evidence=(line,),
        timeline=(story.timeline[0], story.timeline[-1]),
        reasoning=("Rank 3 raised KeyError [e1].",),
        recommendation=engine.Recommendation(action="stop", text="Fix the data first."),
    )


def no_cause() -> engine.Diagnosis:
    """Nothing that may be a root."""
    return _changed(
        nvlink(),
        domain="unattributed",
        sub_domain="none",
        title="No cause in the evidence",
        root_cause=None,
        candidates=(),
        affected_nodes=(),
        reasoning=("All ranks stopped in the same collective; nothing in the evidence says why [e2].",),
        recommendation=engine.Recommendation(action="restart"),
    )


def succeeded() -> engine.Diagnosis:
    return _changed(
        no_cause(),
        outcome="succeeded",
        title="The attempt succeeded",
        symptoms=(),
        evidence=(),
        reasoning=("Exit 0:0.",),
    )


def _changed(story: engine.Diagnosis, **changes: Any) -> engine.Diagnosis:
    return struct(story, **changes)


def struct(value: Any, **changes: Any) -> Any:
    """A part of a diagnosis with other values in some fields."""
    return msgspec.structs.replace(value, **changes)


def later(days: float) -> datetime:
    return END + timedelta(days=days)
