"""Attempts changed on purpose, each with what an expert would say of it now."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tests.engine import rewriting
from tests.engine.evidence import Evidence, case, labels

Label = dict[str, Any]
Change = Callable[[Evidence], Evidence]


@dataclass(frozen=True)
class Variant:
    name: str
    label: Label
    evidence: Callable[[], Evidence]


def label_of(base: str, domain: str, sub_domain: str, nodes: list[str], **more: Any) -> Label:
    """What is right now: no symptom must be kept, the rest as it was."""
    changed = copy.deepcopy(labels()[base])
    also = {"also_ok": [], "also_ok_nodes": [], "symptoms": []}
    return changed | also | {"domain": domain, "sub_domain": sub_domain, "root": {"nodes": nodes}} | more


def unchanged(base: str) -> Label:
    return copy.deepcopy(labels()[base]) | {"symptoms": []}


def guilty(base: str) -> list[str]:
    found: list[str] = labels()[base]["root"]["nodes"]
    return found


def said_at(moment: datetime, node: str, text: str) -> str:
    """A line of a node's kernel log, with a zone."""
    return f"{moment.isoformat(timespec='microseconds')} {node} kernel: {text}"


def off_bus(device: str = "0000:c3:00") -> str:
    return f"NVRM: Xid (PCI:{device}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def swapped(evidence: Evidence, one: str, other: str) -> Evidence:
    """With the names of two nodes exchanged wherever they stand."""
    form = re.compile(
        rb"(?<![A-Za-z0-9])(%s|%s)(?![A-Za-z0-9]|-\d)" % (re.escape(one).encode(), re.escape(other).encode())
    )
    names = {one.encode(): other.encode(), other.encode(): one.encode()}

    def exchange(content: bytes) -> bytes:
        return form.sub(lambda found: names[found[1]], content)

    changed = evidence.copy()
    files = {n: c if n.startswith("flight_recorder/") else exchange(c) for n, c in changed.files.items()}
    changed.files = {exchange(name.encode()).decode(): content for name, content in files.items()}
    changed.document["attempt"]["nodes"] = [exchange(node.encode()).decode() for node in evidence.nodes]
    return changed


def has(evidence: Evidence, folder: str) -> bool:
    return any(name.startswith(f"{folder}/") for name in evidence.files)


def any_node(evidence: Evidence) -> str:
    return evidence.nodes[0]


# What changes nothing, and what moves the blame: for every case.


def general() -> Iterator[Variant]:
    for base, label in labels().items():
        evidence = case(base)
        slurm = "scheduler/sacct.txt" in evidence.files
        hardware = label["domain"] in ("hardware", "network", "platform")
        if len(guilty(base)) == 1 and len(evidence.nodes) > 1:
            yield _moved(base)
        if slurm and label["domain"] not in ("scheduler", "unattributed"):
            yield _variant(
                base, "without the scheduler's files", unchanged(base), lambda e: e.without_files("scheduler/*")
            )
        if hardware and has(evidence, "syslog"):
            honest = label_of(base, "unattributed", "none", [])
            node_lost = [{"domain": "scheduler", "sub_domain": "node_failure"}]
            honest["also_ok"] = [unchanged(base), *label["also_ok"]]
            honest["also_ok"] += node_lost if evidence.document["attempt"]["state"] == "NODE_FAIL" else []
            honest["also_ok_nodes"] = [guilty(base), *_silent(evidence)]
            yield _variant(base, "without system logs", honest, lambda e: e.without_files("syslog/*"))
        if has(evidence, "syslog"):
            yield _variant(base, "a node of another job is broken", unchanged(base), _foreign)
            yield _variant(base, "a GPU falls off the bus an hour after the end", unchanged(base), _after_the_end)
            yield _variant(base, "another job's fault before the start", unchanged(base), _before_the_start)
            yield _variant(base, "corrected errors all along", unchanged(base), _corrected)
        if slurm:
            yield _variant(base, "an earlier attempt was preempted", unchanged(base), _preempted_before)
        yield _variant(
            base, "the second half of every system log stands before the first", unchanged(base), _reversed_halves
        )


def _variant(base: str, how: str, label: Label, change: Change) -> Variant:
    return Variant(f"{base}: {how}", label, lambda: change(case(base)))


def _moved(base: str) -> Variant:
    (was,) = guilty(base)
    others = [node for node in case(base).nodes if node != was]
    label = unchanged(base)
    label["root"] = {"nodes": [others[-1]]}
    label["also_ok_nodes"] = []
    return _variant(base, "the cause is on another node", label, lambda e: swapped(e, was, others[-1]))


def _silent(evidence: Evidence) -> list[list[str]]:
    """Without system logs, whoever went silent may be named as a suspect: one node, whichever."""
    return [[node] for node in evidence.nodes]


def _foreign(evidence: Evidence) -> Evidence:
    line = said_at(evidence.end - timedelta(seconds=20), "zz-9", off_bus())
    return evidence.with_lines("syslog/zz-9.log", line)


def _after_the_end(evidence: Evidence) -> Evidence:
    node = any_node(evidence)
    return evidence.with_lines("syslog/later.log", said_at(evidence.end + timedelta(hours=1), node, off_bus()))


def _before_the_start(evidence: Evidence) -> Evidence:
    text = (
        "NVRM: Xid (PCI:0000:c3:00): 31, pid=77, name=python3, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS"
    )
    line = said_at(evidence.start - timedelta(hours=2), any_node(evidence), text)
    return evidence.with_lines("syslog/earlier.log", line)


def _corrected(evidence: Evidence) -> Evidence:
    text = "pcieport 0000:40:01.1: AER: Corrected error received: 0000:41:00.0"
    moments = [evidence.start + (evidence.end - evidence.start) * part / 10 for part in range(1, 10)]
    return evidence.with_lines("syslog/more.log", *(said_at(moment, evidence.nodes[-1], text) for moment in moments))


def _preempted_before(evidence: Evidence) -> Evidence:
    rows = evidence.files["scheduler/sacct.txt"].decode().splitlines()
    header = rows[0].split("|")
    if "Start" not in header:
        return evidence
    first = dict(zip(header, rows[1].split("|"), strict=False))
    began, ended = datetime.fromisoformat(first["Start"]), timedelta(seconds=30)
    earlier = first | {
        "State": "PREEMPTED",
        "Start": (began - timedelta(hours=3)).isoformat(),
        "End": (began - ended).isoformat(),
    }
    row = "|".join(earlier.get(name, "") for name in header)
    changed = evidence.copy()
    changed.files["scheduler/sacct.txt"] = "\n".join([rows[0], row, *rows[1:], ""]).encode()
    return changed


def _reversed_halves(evidence: Evidence) -> Evidence:
    """File order is not time: logs that were merged or rotated."""
    changed = evidence.copy()
    for name in [name for name in changed.files if name.startswith("syslog/")]:
        lines = changed.files[name].splitlines(keepends=True)
        changed.files[name] = b"".join(lines[len(lines) // 2 :] + lines[: len(lines) // 2])
    return changed


# One case, one change.


NVLINK, OFF_BUS, PORT, LUSTRE = (
    "hw-nvlink-xid149-node02",
    "hw-xid79-gpu-off-bus",
    "net-ib-link-down",
    "net-lustre-client-evicted",
)
NO_CAUSE, TIME_LIMIT, PANIC = "hw-nccl-only-no-cause", "net-slurm-time-limit", "net-node-fail-kernel-panic"


def single() -> Iterator[Variant]:
    yield from _removed()
    yield from _at_another_time()
    yield from _two_at_once()
    yield from _beside_a_trap()
    yield from _clocks()


def _nobody(base: str, *suspects: str) -> Label:
    label = label_of(base, "unattributed", "none", [], also_ok_nodes=[list(suspects)] if suspects else [])
    if base == OFF_BUS:
        # One rank of that node still says "CUDA error: unknown error" before all others: its driver may be named.
        label["also_ok"] = [{"domain": "platform", "sub_domain": "driver"}]
        label["root"] = {"nodes": list(suspects)}
        label["also_ok_nodes"] = [[]]
    return label


def _removed() -> Iterator[Variant]:
    def nvlink(e: Evidence) -> Evidence:
        return e.without_lines("NVRM|nvlink|NVLink", "syslog/*")

    def bus(e: Evidence) -> Evidence:
        return e.without_lines("NVRM|pcieport|AER", "syslog/*")

    def late(e: Evidence) -> Evidence:
        return e.without_lines(r"Traceback|  File |    pretrain\(|    meta =|KeyError", "applog/*")

    def panic(e: Evidence) -> Evidence:
        return e.without_files("syslog/*")

    yield _variant(NVLINK, "the cause is removed", _nobody(NVLINK, "node-02"), nvlink)
    yield _variant(OFF_BUS, "the kernel's words are removed", _nobody(OFF_BUS, "gpu013"), bus)
    late_rank = label_of("sw-traceback-after-timeouts", "unattributed", "none", [], also_ok_nodes=[["node-62"]])
    yield _variant("sw-traceback-after-timeouts", "the traceback is removed", late_rank, late)
    lost = label_of(PANIC, "scheduler", "node_failure", ["node-62"])
    yield _variant(PANIC, "the panic is not in any log", lost, panic)


def _at_another_time() -> Iterator[Variant]:
    for base, node in ((NVLINK, "node-02"), (OFF_BUS, "gpu013")):
        file = f"syslog/{node}.log"
        for how, hours in (("before the start", -6), ("long after the end", 2)):
            yield _variant(
                base,
                f"the fault is {how}",
                _nobody(base, node),
                lambda e, file=file, hours=hours: e.shifted(file, timedelta(hours=hours), "NVRM"),  # type: ignore[misc]
            )

    def before_progress(e: Evidence) -> Evidence:
        return e.shifted("syslog/gpu013.log", timedelta(hours=-2), "NVRM")

    def outside(e: Evidence) -> Evidence:
        return e.moved_lines("NVRM", "syslog/gpu013.log", "syslog/gpu099.log", ("gpu013", "gpu099"))

    yield _variant(
        OFF_BUS, "training went on for two hours after the fault", _nobody(OFF_BUS, "gpu013"), before_progress
    )
    yield _variant(OFF_BUS, "the fault is on a node of another job", _nobody(OFF_BUS, "gpu013"), outside)


def _two_at_once() -> Iterator[Variant]:
    def both(e: Evidence) -> Evidence:
        twin = [line.replace("gpu013", "gpu011") for line in e.lines("NVRM", "syslog/gpu013.log")]
        return e.with_lines("syslog/gpu011.log", *twin)

    def everyone(e: Evidence) -> Evidence:
        lines = e.lines("evicted by|was lost", "syslog/cn0109.log")
        for node in ("cn0107", "cn0108", "cn0110"):
            e = e.with_lines(f"syslog/{node}.log", *(line.replace("cn0109", node) for line in lines))
        return e

    two = label_of(OFF_BUS, "hardware", "gpu", ["gpu011", "gpu013"])
    two["also_ok"] = [
        {"domain": "unattributed", "sub_domain": "ambiguous"},
        {"domain": "hardware", "sub_domain": "ambiguous"},
    ]
    yield _variant(OFF_BUS, "two GPUs of two nodes at once", two, both)
    server = label_of(
        LUSTRE, "storage", "shared_filesystem", [], also_ok_nodes=[["cn0107", "cn0108", "cn0109", "cn0110"]]
    )
    yield _variant(LUSTRE, "all nodes are evicted alike", server, everyone)


def _beside_a_trap() -> Iterator[Variant]:
    def dbe(e: Evidence) -> Evidence:
        line = e.lines(r"Xid .*: 31,", "syslog/dev-7.log")[0]
        ecc = re.sub(
            r": 31, .*",
            ": 48, pid=355557, name=python3, An uncorrectable double bit error (DBE) has been detected.",
            line,
        )
        return e.with_lines("syslog/dev-7.log", ecc)

    yield _variant(
        "hw-xid31-custom-kernel",
        "the same GPU had an uncorrectable memory error",
        label_of("hw-xid31-custom-kernel", "hardware", "gpu_memory", ["dev-7"]),
        dbe,
    )

    def quoted(e: Evidence) -> Evidence:
        text = f"eval sample 12: 'What does {off_bus()} mean?' -> 'Replace the GPU.'"
        return e.with_lines("applog/eval-samples.log", text)

    yield _variant(NO_CAUSE, "a model writes about a fault", _nobody(NO_CAUSE), quoted)

    def clean_up(e: Evidence) -> Evidence:
        text = "NVRM: Xid (PCI:0000:c3:00): 45, pid=7711, name=python3, Ch 00000008"
        return e.with_lines("syslog/p5-03.log", said_at(e.end - timedelta(seconds=5), "p5-03", text))

    yield _variant(NO_CAUSE, "killed processes leave Xid 45", _nobody(NO_CAUSE), clean_up)

    def hang(e: Evidence) -> Evidence:
        """No iteration in the last hour before the time limit."""
        changed = e.copy()
        name = e.named("applog/*")[0]
        lines = changed.files[name].splitlines(keepends=True)
        marks = [index for index, line in enumerate(lines) if re.search(rb"step=\d", line)]
        gone = set(marks[len(marks) * 3 // 4 :])
        changed.files[name] = b"".join(line for index, line in enumerate(lines) if index not in gone)
        return changed

    yield _variant(TIME_LIMIT, "no progress in its last hour", _nobody(TIME_LIMIT) | {"outcome": "hung"}, hang)

    def fallen_behind(e: Evidence) -> Evidence:
        moment = e.end - timedelta(minutes=40)
        return e.with_lines("syslog/node-12.log", said_at(moment, "node-12", off_bus()))

    struck = label_of(TIME_LIMIT, "hardware", "gpu", ["node-12"]) | {"outcome": "hung"}
    yield _variant(TIME_LIMIT, "a lost GPU stopped it long before", struck, lambda e: fallen_behind(hang(e)))

    done = "hw-corrected-aer-but-completed"

    def survived(e: Evidence) -> Evidence:
        moment = e.start + (e.end - e.start) / 2
        return e.with_lines("syslog/g-31.log", said_at(moment, "g-31", off_bus()))

    yield _variant(done, "a GPU is lost half-way, and the job ends well", unchanged(done), survived)

    user = "net-slurm-cancelled-by-user"
    yield _variant(user, "the scheduler's files are missing", unchanged(user), lambda e: e.without_files("scheduler/*"))


def _clocks() -> Iterator[Variant]:
    def launched(e: Evidence, node: str, minutes: int) -> Evidence:
        job = e.document["workload"]["id"]
        text = f"slurmd[2211]: launch task StepId={job}.0 request from UID:1000 GID:1000"
        line = f"{e.start.isoformat(timespec='microseconds')} {node} {text}"
        return e.with_lines(f"syslog/{node}.log", line).shifted(f"syslog/{node}.log", timedelta(minutes=minutes))

    for minutes in (20, -20, 90):
        yield _variant(
            OFF_BUS,
            f"the node's clock is {minutes:+d} minutes off, and its launch line tells",
            unchanged(OFF_BUS),
            lambda e, minutes=minutes: launched(e, "gpu013", minutes),  # type: ignore[misc]
        )

    for minutes in (20, -20):
        silent = label_of(OFF_BUS, "hardware", "gpu", ["gpu013"], also_ok_nodes=[[]])
        silent["also_ok"] = [
            {"domain": "unattributed", "sub_domain": "none"},
            {"domain": "platform", "sub_domain": "driver"},
        ]
        yield _variant(
            OFF_BUS,
            f"the node's clock is {minutes:+d} minutes off, and nothing tells",
            silent,
            lambda e, minutes=minutes: e.shifted("syslog/gpu013.log", timedelta(minutes=minutes)),  # type: ignore[misc]
        )

    def in_india(e: Evidence) -> Evidence:
        local = timedelta(hours=5, minutes=30)
        e = e.shifted("syslog/*", local)
        changed = e.copy()
        for name in e.named("scheduler/s*"):
            text = changed.files[name].decode()
            stamp = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
            text = stamp.sub(lambda found: (datetime.fromisoformat(found[0]) + local).isoformat(), text)
            changed.files[name] = text.encode()
        return changed

    for base in (NVLINK, PORT, LUSTRE, "hw-xid119-gsp-timeout"):
        yield _variant(base, "the cluster writes local time, in India", unchanged(base), in_india)


def rewritten() -> Iterator[Variant]:
    """The same evidence in other envelopes and encodings."""
    for base in labels():
        evidence = case(base)
        in_cri = any(b"Z stderr F " in content for content in evidence.files.values())
        for how, rewrite in rewriting.APPLOG.items():
            if not (in_cri and rewrite is rewriting.in_compose):
                yield _variant(base, how, unchanged(base), rewrite)
        for how, rewrite in rewriting.TIMED.items() if rewriting.has_times(evidence) and not in_cri else ():
            label = unchanged(base)
            if base == "sw-traceback-after-timeouts":
                # The collector only saw the traceback when it was flushed: the silent rank is all that is sure.
                label["also_ok"].append({"domain": "unattributed", "sub_domain": "none"})
                label["also_ok_nodes"] = [["node-62"]]
            yield _variant(base, how, label, rewrite)
        for how, reshape in rewriting.RANKS.items():
            if reshape(evidence) is not None:
                yield _variant(base, how, unchanged(base), lambda e, reshape=reshape: reshape(e) or e)  # type: ignore[misc]
        if not any(b"kubectl" in c or n.endswith("pods.json") for n, c in evidence.files.items()):
            yield _with_domain(base)
        for how, rewrite in rewriting.SYSLOG.items() if has(evidence, "syslog") else ():
            yield _variant(base, how, unchanged(base), rewrite)


def _with_domain(base: str) -> Variant:
    label = unchanged(base)
    label["root"] = {"nodes": [f"{node}.gpu.example.com" for node in guilty(base)]}
    return _variant(base, "the scheduler names nodes with their domain", label, rewriting.nodes_with_domain)


VARIANTS: list[Variant] = [*general(), *single(), *rewritten()]
