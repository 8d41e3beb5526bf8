"""Where it failed: ranks by node and GPU, by the first thing each reported.

Ranks are laid out in blocks, `rank // GPUs a node`, as launchers do. That is an assumption, so it is checked: if any
evidence names a node and a rank that contradict it, there is no map.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MAX_NODES = 64
MAX_KINDS = 5


@dataclass(frozen=True)
class Cell:
    rank: int
    kind: str
    """root, k1 ... k5, other, or empty: no report of its own."""
    title: str
    word: str
    evidence: str | None


@dataclass(frozen=True)
class MapRow:
    node: str
    root: bool
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class RankMap:
    rows: tuple[MapRow, ...]
    columns: tuple[int, ...]
    legend: tuple[tuple[str, str, int], ...]
    """Kind, title and how many ranks."""
    total: int
    failed: int

    @property
    def quiet(self) -> int:
        return self.total - self.failed


def rank_map(contract: Mapping[str, Any]) -> RankMap | None:
    """The map; None when the allocation isn't known, nobody names a rank, or the layout can't be trusted."""
    facts = contract["attempt"].get("attempt", contract["attempt"])
    nodes, width = list(facts.get("nodes") or ()), facts.get("gpus_per_node")
    if not nodes or not width or width > 16 or len(nodes) > MAX_NODES:
        return None
    total = len(nodes) * width
    pairs = [(e["rank"], e["node"]) for e in contract["evidence"] if e["rank"] is not None and e["node"] in nodes]
    if not pairs or any(rank >= total or nodes[rank // width] != node for rank, node in pairs):
        return None
    root = contract["root_cause"]
    by_rank = {e["rank"]: e["id"] for e in reversed(contract["evidence"]) if e["rank"] is not None}
    first: dict[int, tuple[str, str, str | None]] = {}
    kinds: list[tuple[str, str]] = []
    for rank in root["ranks"] if root else ():
        first.setdefault(rank, ("root", root["title"], _proof(root, by_rank, rank)))
    told = [s for s in contract["symptoms"] if s["ranks"] and s["first_at"] and (s["explained_by"] or not root)]
    for symptom in sorted(told, key=lambda s: (s["first_at"] is None, s["first_at"] or "", s["rule"])):
        fresh = [rank for rank in symptom["ranks"] if rank not in first]
        if not fresh:
            continue
        known = next((kind for kind, title in kinds if title == symptom["title"]), None)
        if known is None:
            known = f"k{len(kinds) + 1}" if len(kinds) < MAX_KINDS else "other"
            kinds.append((known, symptom["title"]))
        for rank in fresh:
            first[rank] = (known, symptom["title"], _proof(symptom, by_rank, rank))
    first = {rank: cell for rank, cell in first.items() if rank < total}
    if not first:
        return None
    blamed = set(root["nodes"]) if root else set()
    rows = tuple(
        MapRow(node, node in blamed, tuple(_cell(row * width + gpu, node, gpu, first) for gpu in range(width)))
        for row, node in enumerate(nodes)
    )
    legend = []
    if any(kind == "root" for kind, _, _ in first.values()):
        legend.append(("root", "root", sum(kind == "root" for kind, _, _ in first.values())))
    for kind, title in kinds[:MAX_KINDS]:
        legend.append((kind, title, sum(found[0] == kind for found in first.values())))
    if len(kinds) > MAX_KINDS:
        legend.append(("other", "something else", sum(found[0] == "other" for found in first.values())))
    return RankMap(rows, tuple(range(width)), tuple(item for item in legend if item[2]), total, len(first))


def _proof(owner: Mapping[str, Any], by_rank: Mapping[int, str], rank: int) -> str | None:
    own = by_rank.get(rank)
    refs = owner["evidence"]
    return own if own in refs else refs[0] if refs else None


def _cell(rank: int, node: str, gpu: int, first: Mapping[int, tuple[str, str, str | None]]) -> Cell:
    found = first.get(rank)
    place = f"{node} GPU {gpu}, rank {rank}"
    if found is None:
        return Cell(rank, "", f"{place}: no report of its own", "", None)
    kind, title, ref = found
    return Cell(rank, kind, f"{place}: {title}", "root" if kind == "root" else title, ref)
