"""What a recovery controller should do about an attempt: the diagnosis's advice, cut to what its evidence carries."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.bundle import match_node
from triage.models import Attempt, TriageState

UNKNOWN = "unknown"
"""The action while there is no diagnosis."""
_HELPS = {"restart": True, "restart_excluding": True, "stop": False}


@dataclass(frozen=True)
class Exclusion:
    """A node to leave out, and the lines that speak against it."""

    node: str
    said_by: str
    """engine | person"""
    evidence: tuple[dict[str, Any], ...]
    """id, stream, line, at, device, text of each."""


@dataclass(frozen=True)
class Advice:
    """The answer for a machine. `status`: pending (no diagnosis yet), partial (evidence is missing or still comes),
    complete, failed (triage came to no end).
    """

    status: str
    action: str
    retry_can_help: bool | None
    """None when nobody can tell."""
    reason: str
    source: str = ""
    """engine | person; empty without an answer"""
    exclude_nodes: tuple[Exclusion, ...] = ()
    withheld_nodes: tuple[dict[str, str], ...] = ()
    """Nodes that were named without a line that speaks against them: not to be excluded on this word alone."""
    missing_sources: tuple[str, ...] = ()
    references: tuple[str, ...] = field(default=())


def advise(attempt: Attempt) -> Advice:
    """Advice from what is known now. Needs `diagnosis` and `verdict`; no further query."""
    diagnosis = attempt.diagnosis
    if diagnosis is None:
        failed = attempt.triage_state == TriageState.FAILED
        reason = attempt.triage_reason if failed else "There is no diagnosis yet."
        return Advice("failed" if failed else "pending", UNKNOWN, None, reason)
    contract = diagnosis.contract
    missing = tuple(
        sorted({r["source"] for r in contract["coverage"] if r["status"] in ("missing", "partial", "error")})
    )
    status = "complete" if attempt.triage_state == TriageState.DONE and not missing else "partial"
    verdict = attempt.verdict
    if verdict is not None and verdict.is_correction:
        return _by_a_person(attempt, status, missing)
    recommended = contract["recommendation"]
    action = recommended["action"]
    root = contract["root_cause"]
    named = recommended["exclude_nodes"] if action == "restart_excluding" else []
    proof = _proof(root["evidence"] if root else [], contract["evidence"])
    blamed = set(root["nodes"]) if root else set()
    kept, withheld = _carried([node for node in named if node in blamed], proof)
    withheld += [
        {"node": node, "why": "it is not among the nodes of the root cause"} for node in named if node not in blamed
    ]
    helps = _HELPS.get(action)
    if action == "investigate" and root is not None:
        helps = False
    if action == "restart_excluding" and not kept:
        action, helps = "investigate", None
    return Advice(
        status=status,
        action=action,
        retry_can_help=helps,
        reason=" ".join(filter(None, [diagnosis.title + ".", recommended["text"]])),
        source="engine",
        exclude_nodes=tuple(kept),
        withheld_nodes=tuple(withheld),
        missing_sources=missing,
        references=tuple(recommended.get("references", ())),
    )


def _by_a_person(attempt: Attempt, status: str, missing: tuple[str, ...]) -> Advice:
    """A correction stands above the engine's answer; its nodes are excluded on the person's word and named lines."""
    verdict, diagnosis = attempt.verdict, attempt.diagnosis
    assert verdict is not None and diagnosis is not None
    proof = _proof(verdict.evidence, diagnosis.contract["evidence"])
    proof += [
        {
            "id": None,
            "stream": line["stream"],
            "line": line["first"],
            "at": None,
            "node": None,
            "device": None,
            "text": text,
        }
        for line in verdict.lines
        for text in line["lines"][:1]
    ]
    nodes = [Exclusion(node, "person", tuple(_about(node, proof))) for node in verdict.nodes]
    if nodes and verdict.domain in ("hardware", "network", "platform", "storage"):
        action, helps = "restart_excluding", True
    elif verdict.domain == "software":
        action, helps, nodes = "stop", False, []
    elif verdict.domain == "scheduler":
        action, helps, nodes = "restart", True, []
    else:
        action, helps, nodes = "investigate", None, []
    return Advice(
        status, action, helps, f"{verdict.title}. {verdict.reason}".strip(), "person", tuple(nodes), (), missing
    )


def _proof(refs: Iterable[str], evidence: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    by_id = {item["id"]: item for item in evidence}
    keys = ("id", "stream", "line", "at", "node", "device", "text")
    return [{key: by_id[ref].get(key) for key in keys} for ref in refs if ref in by_id]


def _carried(named: Sequence[str], proof: Sequence[dict[str, Any]]) -> tuple[list[Exclusion], list[dict[str, str]]]:
    kept, withheld = [], []
    for node in dict.fromkeys(named):
        lines = tuple(_about(node, proof))
        if lines:
            kept.append(Exclusion(node, "engine", lines))
        else:
            withheld.append({"node": node, "why": "no line of the root cause's evidence is of this node or names it"})
    return kept, withheld


def _about(node: str, proof: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lines that come from a node or name it."""
    short = node.split(".", 1)[0]
    word = re.compile(rf"(?<![A-Za-z0-9.-]){re.escape(short)}(?![A-Za-z0-9]|-\w)")
    return [
        {key: value for key, value in item.items() if key != "node"}
        for item in proof
        if item["node"] == node or word.search(item["text"] or "") or match_node(item["stream"] or "", [node])
    ]
