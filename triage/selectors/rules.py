"""The rules in force, and how they fared here."""

from __future__ import annotations

from functools import lru_cache

from django.conf import settings

from engine.ruleset import Ruleset, RulesetError, load_ruleset


@lru_cache(maxsize=1)
def ruleset() -> Ruleset | None:
    """The rule packs, read once a process; None when they can't be read (the worker says what is wrong)."""
    try:
        return load_ruleset(settings.FAULTLINE_RULES)
    except RulesetError:
        return None


@lru_cache(maxsize=1)
def known_ids() -> tuple[str, ...]:
    """Every id that a diagnosis can name."""
    loaded = ruleset()
    return tuple(rule.id for rule in loaded.rules) if loaded else ()
