"""What a rule says about itself: what to check next, and what a match does not prove."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from django.conf import settings

from engine.ruleset import Rule, RulesetError, load_ruleset


@dataclass(frozen=True)
class Guide:
    rule: str
    title: str
    guide: str
    does_not_prove: str
    references: tuple[str, ...]


@lru_cache(maxsize=1)
def _rules() -> dict[str, list[Rule]]:
    """Every meaning of every rule by id. Read once a process; a rule pack that can't be read gives none."""
    try:
        ruleset = load_ruleset(settings.FAULTLINE_RULES)
    except RulesetError:
        return {}  # the worker says what is wrong with it; a verdict can be shown without its guide
    rules: dict[str, list[Rule]] = {}
    for matcher in ruleset.matchers:
        for rule in matcher.rules():
            rules.setdefault(rule.id, []).append(rule)
    return rules


def guide(rule_id: str, title: str = "") -> Guide | None:
    """The words of one rule as it stands today; None when it no longer exists.

    Rows of a table may share an id; the one whose title the diagnosis carries is taken.
    """
    found = _rules().get(rule_id, [])
    rule = next((rule for rule in found if title.startswith(rule.title.partition("{")[0].strip() or rule.title)), None)
    rule = rule or next(iter(found), None)
    if rule is None:
        return None
    return Guide(rule.id, rule.title, rule.guide, rule.does_not_prove, rule.references)
