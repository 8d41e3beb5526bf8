"""What else it could have been: rivals that one reason tells apart stand as one, with what would decide for them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from django.conf import settings

from engine.model import Role
from engine.ruleset import RulesetError, load_ruleset
from triage.selectors.guides import guide

_CITED = re.compile(r"\s*\[e\d+(?:,\s*e\d+)*\]")
_DECIDING = (Role.CAUSE, Role.EITHER, Role.CONFIRMATION)


@dataclass
class Rival:
    """One cause that was not chosen, on all nodes where it was seen and not chosen for the same reason."""

    title: str
    domain: str
    sub_domain: str
    why: str
    undecided: bool
    check: str
    """What to look at, as the rule says today."""
    times: int = 0
    nodes: list[str] = field(default_factory=list)
    evidence: list[str] = field(default_factory=list)
    unread: list[tuple[str, str, str]] = field(default_factory=list)
    """Sources in which such a cause also shows and that were not, or not all, read: which, how far, and the note."""


def rivals(contract: Mapping[str, Any]) -> list[Rival]:
    """In the engine's order."""
    missing = {report["source"]: report for report in contract["coverage"] if report["status"] != "ok"}
    found: dict[tuple[str, str, str], Rival] = {}
    for candidate in contract["candidates"]:
        why = candidate.get("not_root_because") or candidate.get("undecided_because") or ""
        key = (candidate["rule"], candidate["title"], _CITED.sub("", why))
        rival = found.get(key)
        if rival is None:
            words = guide(candidate["rule"], candidate["title"])
            shows = seen_in(candidate["domain"], candidate["sub_domain"])
            rival = found[key] = Rival(
                title=candidate["title"],
                domain=candidate["domain"],
                sub_domain=candidate["sub_domain"],
                why=why,
                undecided=bool(candidate.get("undecided_because")),
                check=words.guide if words else "",
                unread=[_unread(missing[source]) for source in shows if source in missing],
            )
        rival.times += 1
        rival.nodes += [node for node in candidate["nodes"] if node not in rival.nodes]
        rival.evidence += [ref for ref in candidate["evidence"] if ref not in rival.evidence]
    return list(found.values())


def _unread(report: Mapping[str, Any]) -> tuple[str, str, str]:
    note = (report.get("note") or "").strip().rstrip(".")
    return (
        report["source"],
        "not all read" if report["status"] == "partial" else "not read",
        note[:1].lower() + note[1:],
    )


def seen_in(domain: str, sub_domain: str) -> tuple[str, ...]:
    """The sources in which causes of this kind can show, by the rules in force."""
    return _sources().get((domain, sub_domain), ())


@lru_cache(maxsize=1)
def _sources() -> dict[tuple[str, str], tuple[str, ...]]:
    """Read once a process; a rule pack that can't be read gives none (the worker says what is wrong with it)."""
    try:
        ruleset = load_ruleset(settings.FAULTLINE_RULES)
    except RulesetError:
        return {}
    found: dict[tuple[str, str], set[str]] = {}
    for matcher in ruleset.matchers:
        for rule in matcher.rules():
            if rule.domain and rule.role in _DECIDING:
                found.setdefault((rule.domain, rule.sub_domain or ""), set()).update(
                    s.value for s in matcher.spec.source
                )
    return {key: tuple(sorted(sources)) for key, sources in found.items()}
