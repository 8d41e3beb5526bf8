"""What of a diagnosis has a place in time: the entries of its timeline, and every kept line beside them.

The engine's timeline holds the first sign of each finding on each node. Zoomed in, the other kept lines matter too, and
ranks: both are read out of the evidence and the symptoms.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from triage import times

KINDS = ("cause", "warning", "symptom", "teardown", "progress", "context")
"""What can be shown and hidden; the start and the end always stand."""
MAX_SPREAD = 4096
"""Ranks of symptoms that get a mark without a line of their own."""
_CITED = re.compile(r"\[(e\d+(?:,\s*e\d+)*)\]")


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened. Without a time it stands in the table alone."""

    at: float | None
    kind: str
    """One of KINDS, or start, end."""
    node: str | None
    ranks: tuple[int, ...]
    title: str
    refs: tuple[str, ...]
    spread: bool = False
    """Stands for ranks without a line of their own, at the first rank's time; only lanes of ranks show it."""

    @property
    def order(self) -> tuple[float, str, str]:
        return (self.at if self.at is not None else float("inf"), self.kind, self.title)


def epoch(value: Any) -> float | None:
    moment = times.parse(value)
    return moment.timestamp() if moment else None


def events_of(contract: Mapping[str, Any]) -> list[Event]:
    """Everything, in the order of time."""
    evidence = {item["id"]: item for item in contract["evidence"]}
    weighty = _weighty(contract)
    found = []
    for entry in contract["timeline"]:
        refs = tuple(entry["evidence"])
        kind = entry["kind"] if entry["kind"] in (*KINDS, "start", "end") else "context"
        if kind == "context" and weighty.intersection(refs):
            kind = "warning"
        found.append(Event(epoch(entry["at"]), kind, entry["node"], _ranks(refs, evidence), entry["title"], refs))
    found += _more_lines(contract, evidence, found, weighty)
    return sorted(found, key=lambda event: event.order)


def spread_over_ranks(contract: Mapping[str, Any], events: Iterable[Event]) -> list[Event]:
    """Symptoms of ranks that have no line of their own, at the moment of the first rank that reported it."""
    known = {(event.title, rank) for event in events for rank in event.ranks}
    kinds = {event.title: event.kind for event in events}
    found: list[Event] = []
    for symptom in contract["symptoms"]:
        at = epoch(symptom["first_at"])
        alone = tuple(rank for rank in symptom["ranks"] if (symptom["title"], rank) not in known)
        if at is None or not alone or len(found) >= MAX_SPREAD:
            continue
        kind = kinds.get(symptom["title"], "symptom")
        refs = tuple(symptom["evidence"][:1])
        found.append(Event(at, kind, None, alone[:MAX_SPREAD], symptom["title"], refs, spread=True))
    return found


def _more_lines(
    contract: Mapping[str, Any], evidence: Mapping[str, Mapping[str, Any]], events: Iterable[Event], weighty: set[str]
) -> list[Event]:
    """Kept lines that belong to a finding and stand beside its entries: further ones of a node, and those of ranks."""
    told = {ref for event in events for ref in event.refs}
    kinds = {event.title: event.kind for event in events}
    found = []
    for ref, (title, kind) in _owners(contract).items():
        item = evidence.get(ref)
        if item is None or ref in told or (at := epoch(item["at"])) is None:
            continue
        kind = kinds.get(title, kind)
        if kind == "context" and ref in weighty:
            kind = "warning"
        found.append(Event(at, kind, item["node"], _ranks((ref,), evidence), title, (ref,)))
    return found


def _owners(contract: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """By line the title and the kind of the finding that it belongs to; the weightier finding first."""
    owners: dict[str, tuple[str, str]] = {}
    root = contract["root_cause"]
    if root:
        owners.update((ref, (root["title"], "cause")) for ref in root["evidence"])
    for symptom in contract["symptoms"]:
        kind = "symptom" if symptom["explained_by"] or not root else "context"
        for ref in symptom["evidence"]:
            owners.setdefault(ref, (symptom["title"], kind))
    for rival in contract["candidates"]:
        for ref in rival["evidence"]:
            owners.setdefault(ref, (rival["title"], "warning"))
    return owners


def _weighty(contract: Mapping[str, Any]) -> set[str]:
    """Lines that the reasoning names, or that a rival rests on: more than context."""
    cited = (match for sentence in contract["reasoning"] for match in _CITED.findall(sentence))
    refs = {ref.strip() for match in cited for ref in match.split(",")}
    return refs | {ref for rival in contract["candidates"] for ref in rival["evidence"]}


def _ranks(refs: Iterable[str], evidence: Mapping[str, Mapping[str, Any]]) -> tuple[int, ...]:
    ranks = {evidence[ref]["rank"] for ref in refs if ref in evidence}
    return tuple(sorted(rank for rank in ranks if rank is not None))
