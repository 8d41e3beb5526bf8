"""Who failed first: the first thing that each rank reported, and in which order they came.

A symptom's time is that of its first rank. What is known closer counts: a rank's own line, else the first line of the
rank's node with the same symptom.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from triage import times

MAX_STEPS = 8
MAX_SYMPTOMS = 2000
"""Of one diagnosis that are looked at."""


@dataclass(frozen=True, slots=True)
class Report:
    """The first thing that a rank or a node reported."""

    at: float
    is_root: bool
    title: str
    evidence: str | None


@dataclass(frozen=True, slots=True)
class Step:
    """Ranks, or nodes where nobody names ranks, that failed at about the same time with the same report."""

    at: float
    after: float
    """Seconds since the first of all."""
    ranks: tuple[int, ...]
    nodes: tuple[str, ...]
    title: str
    is_root: bool
    evidence: str | None


@dataclass(frozen=True, slots=True)
class Order:
    """Who failed when, first to last."""

    steps: tuple[Step, ...]
    left: int
    """Further steps."""


def layout(contract: Mapping[str, Any]) -> tuple[list[str], int] | None:
    """The allocation and its GPUs a node, when ranks lie in blocks: `rank // GPUs a node`, as launchers do.

    That is an assumption, so it is checked: None when the evidence names a node and a rank that contradict it, or none.
    """
    facts = contract["attempt"].get("attempt", contract["attempt"])
    nodes, width = list(facts.get("nodes") or ()), facts.get("gpus_per_node")
    if not nodes or not width:
        return None
    known = set(nodes)
    pairs = [(e["rank"], e["node"]) for e in contract["evidence"] if e["rank"] is not None and e["node"] in known]
    if not pairs or any(rank >= len(nodes) * width or nodes[rank // width] != node for rank, node in pairs):
        return None
    return nodes, width


def first_reports(contract: Mapping[str, Any]) -> dict[int, Report]:
    """By rank. Empty when nobody names one."""
    root = contract["root_cause"]
    evidence = {item["id"]: item for item in contract["evidence"]}
    of_node = _node_times(contract)
    laid = layout(contract)
    found: dict[int, Report] = {}
    if root and (at := _epoch(root["at"])) is not None:
        proofs = _own_lines(root["evidence"], evidence)
        for rank in root["ranks"]:
            ref = proofs.get(rank, (at, next(iter(root["evidence"]), None)))[1]
            found[rank] = Report(at, True, root["title"], ref)
    told = _told(contract)
    for symptom in told:
        for rank, (at, ref) in _own_lines(symptom["evidence"], evidence).items():
            if rank in symptom["ranks"] and (rank not in found or (not found[rank].is_root and at < found[rank].at)):
                found[rank] = Report(at, False, symptom["title"], ref)
    exact = set(found)
    for symptom in told:
        first, last = _epoch(symptom["first_at"]), _epoch(symptom["last_at"])
        for rank in symptom["ranks"] if first is not None else ():
            node = laid[0][rank // laid[1]] if laid and rank < len(laid[0]) * laid[1] else None
            at = of_node.get((symptom["title"], node), first or 0.0)
            # a rank's own line gives way only to what was over before it
            by = last if rank in exact else at
            if rank not in found or (not found[rank].is_root and by is not None and by < found[rank].at):
                found[rank] = Report(at, False, symptom["title"], next(iter(symptom["evidence"]), None))
    return found


def order_of_failure(contract: Mapping[str, Any]) -> Order | None:
    """First to last; None when less than two of them can be told apart."""
    reports = first_reports(contract)
    laid = layout(contract)
    steps = _by_rank(reports, laid) if reports else _by_node(contract)
    root = contract["root_cause"]
    at = _epoch(root["at"]) if root else None
    if root and at is not None and not any(step.is_root for step in steps):
        own = Step(at, 0.0, (), tuple(root["nodes"]), root["title"], True, next(iter(root["evidence"]), None))
        steps = [own, *(step for step in steps if step.ranks or set(step.nodes) - set(root["nodes"]))]
    steps.sort(key=lambda step: (step.at, not step.is_root, step.ranks, step.nodes))
    if len(steps) < 2:
        return None
    first = steps[0].at
    told = [Step(s.at, s.at - first, s.ranks, s.nodes, s.title, s.is_root, s.evidence) for s in steps[:MAX_STEPS]]
    return Order(tuple(told), len(steps) - len(told))


def _by_rank(reports: Mapping[int, Report], laid: tuple[list[str], int] | None) -> list[Step]:
    grouped: dict[tuple[str, str, bool], list[int]] = {}
    for rank in sorted(reports):
        node = laid[0][rank // laid[1]] if laid and rank < len(laid[0]) * laid[1] else ""
        grouped.setdefault((reports[rank].title, node, reports[rank].is_root), []).append(rank)
    return [
        Step(
            min(reports[rank].at for rank in ranks), 0.0, tuple(ranks), (node,) if node else (), title, is_root,
            reports[min(ranks, key=lambda rank: reports[rank].at)].evidence,
        )
        for (title, node, is_root), ranks in grouped.items()
    ]  # fmt: skip


def _by_node(contract: Mapping[str, Any]) -> list[Step]:
    """Where nobody names a rank: nodes by the first entry of each that is a cause or a symptom."""
    first: dict[str, tuple[float, str, str | None]] = {}
    for entry in contract["timeline"]:
        at = _epoch(entry["at"])
        if at is None or not entry["node"] or entry["kind"] not in ("cause", "symptom", "teardown"):
            continue
        if entry["node"] not in first or at < first[entry["node"]][0]:
            first[entry["node"]] = (at, entry["title"], next(iter(entry["evidence"]), None))
    grouped: dict[str, list[str]] = {}
    for node, (_, title, _) in first.items():
        grouped.setdefault(title, []).append(node)
    steps = []
    for title, nodes in grouped.items():
        nodes.sort(key=lambda node: (first[node][0], node))
        at, _, ref = first[nodes[0]]
        steps.append(Step(at, 0.0, (), tuple(nodes), title, False, ref))
    return steps


def _told(contract: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Symptoms that belong to the failure and name ranks."""
    root = contract["root_cause"]
    own = [s for s in contract["symptoms"] if s["ranks"] and (s["explained_by"] or not root)]
    return own[:MAX_SYMPTOMS]


def _own_lines(refs: Sequence[str], evidence: Mapping[str, Mapping[str, Any]]) -> dict[int, tuple[float, str]]:
    """By rank the first of these lines that is its own."""
    lines: dict[int, tuple[float, str]] = {}
    for ref in refs:
        item = evidence.get(ref)
        at = _epoch(item["at"]) if item else None
        if item and at is not None and item["rank"] is not None and at < lines.get(item["rank"], (at + 1, ""))[0]:
            lines[item["rank"]] = (at, ref)
    return lines


def _node_times(contract: Mapping[str, Any]) -> dict[tuple[str, str | None], float]:
    """When a node first reported something, by title and node."""
    found: dict[tuple[str, str | None], float] = {}
    for entry in contract["timeline"]:
        at = _epoch(entry["at"])
        key = (entry["title"], entry["node"])
        if at is not None and entry["node"] and at < found.get(key, at + 1):
            found[key] = at
    return found


def _epoch(value: Any) -> float | None:
    moment = times.parse(value)
    return moment.timestamp() if moment else None
