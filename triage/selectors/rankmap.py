"""Where it failed: ranks by node and GPU, by the first thing each reported. Only where the layout can be trusted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from triage.selectors.first_reports import first_reports, layout

MAX_NODES = 64
MAX_WIDTH = 16
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
    laid = layout(contract)
    if laid is None or laid[1] > MAX_WIDTH or len(laid[0]) > MAX_NODES:
        return None
    nodes, width = laid
    total = len(nodes) * width
    reports = {rank: report for rank, report in first_reports(contract).items() if rank < total}
    if not reports:
        return None
    titles = list(dict.fromkeys(r.title for r in sorted(reports.values(), key=lambda r: r.at) if not r.is_root))
    kinds = {title: f"k{number}" if number <= MAX_KINDS else "other" for number, title in enumerate(titles, 1)}
    first = {
        rank: ("root" if report.is_root else kinds[report.title], report.title, report.evidence)
        for rank, report in reports.items()
    }
    root = contract["root_cause"]
    blamed = set(root["nodes"]) if root else set()
    rows = tuple(
        MapRow(node, node in blamed, tuple(_cell(row * width + gpu, node, gpu, first) for gpu in range(width)))
        for row, node in enumerate(nodes)
    )
    counts = Counter(kind for kind, _, _ in first.values())
    named = [("root", "root"), *((kinds[title], title) for title in titles[:MAX_KINDS]), ("other", "something else")]
    legend = tuple((kind, title, counts[kind]) for kind, title in named if counts[kind])
    return RankMap(rows, tuple(range(width)), legend, total, len(first))


def _cell(rank: int, node: str, gpu: int, first: Mapping[int, tuple[str, str, str | None]]) -> Cell:
    found = first.get(rank)
    place = f"{node} GPU {gpu}, rank {rank}"
    if found is None:
        return Cell(rank, "", f"{place}: no report of its own", "", None)
    kind, title, ref = found
    return Cell(rank, kind, f"{place}: {title}", "root" if kind == "root" else title, ref)
