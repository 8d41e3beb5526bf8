"""The evidence of a diagnosis for pages: each item with its address, its place in words and its neighbours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from triage.models import Diagnosis
from triage.text import printable, printable_tree


@dataclass(frozen=True)
class EvidenceItem:
    """One line kept with a diagnosis, made printable; `stream_raw` is the stream's real name, for look-ups."""

    id: str
    url: str
    place: str
    """In words: `syslog/node-02.log, line 125`."""
    stream_raw: str
    data: dict[str, Any]
    roles: tuple[str, ...] = ()
    """What cites it: root, rival, symptom."""

    @property
    def is_root(self) -> bool:
        return "root" in self.roles

    def __getattr__(self, name: str) -> Any:
        try:
            return self.data[name]
        except KeyError:
            raise AttributeError(name) from None


@dataclass(frozen=True)
class Story:
    """A diagnosis ready for a template: the contract with every string printable, and its evidence by id."""

    diagnosis: Diagnosis
    contract: dict[str, Any]
    trail: dict[str, EvidenceItem]
    decisive: EvidenceItem | None
    """The first line that proves the root."""
    decisive_log: list[tuple[int, str, str, EvidenceItem | None]] = field(default_factory=list)
    """Number, class (cause, hit, noise), text and evidence of the lines around the decisive one."""


def tell(diagnosis: Diagnosis, address: str) -> Story:
    """Prepare a diagnosis. `address` is where its evidence lies: `/attempts/7/evidence/`."""
    raw = diagnosis.contract
    contract = printable_tree(raw)
    roles = _roles(raw)
    trail = {
        item["id"]: EvidenceItem(
            id=item["id"],
            url=f"{address}{quote(original['id'], safe='')}/",
            place=f"{item['stream']}, line {item['line']:,}",
            stream_raw=original["stream"],
            data=item,
            roles=tuple(roles.get(item["id"], ())),
        )
        for item, original in zip(contract["evidence"], raw["evidence"], strict=True)
    }
    root = contract["root_cause"]
    decisive = next((trail[ref] for ref in root["evidence"] if ref in trail), None) if root else None
    return Story(diagnosis, contract, trail, decisive, _around(decisive, trail) if decisive else [])


def _roles(contract: Mapping[str, Any]) -> dict[str, list[str]]:
    roles: dict[str, list[str]] = {}
    parts = [("root", [contract["root_cause"]] if contract["root_cause"] else [])]
    parts += [("rival", contract["candidates"]), ("symptom", contract["symptoms"])]
    for role, owners in parts:
        for owner in owners:
            for ref in owner["evidence"]:
                if role not in roles.setdefault(ref, []):
                    roles[ref].append(role)
    return roles


def _around(
    item: EvidenceItem, trail: Mapping[str, EvidenceItem], reach: int = 2
) -> list[tuple[int, str, str, EvidenceItem | None]]:
    """The kept context of a line, with the other evidence among it marked."""
    here = {other.line: other for other in trail.values() if other.stream_raw == item.stream_raw}
    before, after = list(item.before)[-reach:], list(item.after)[:reach]
    lines = [(item.line - len(before) + index, text) for index, text in enumerate(before)]
    lines += [(item.line, item.text)]
    lines += [(item.line + 1 + index, text) for index, text in enumerate(after)]
    found = []
    for number, text in lines:
        other = here.get(number)
        kind = "cause" if number == item.line else "hit" if other else "noise"
        found.append((number, kind, printable(text), other))
    return found
