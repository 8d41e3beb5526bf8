"""The ruleset of this process, loaded once."""

from __future__ import annotations

from functools import cache

from django.conf import settings

from engine.ruleset import Ruleset, load_ruleset


@cache
def ruleset() -> Ruleset:
    """The built-in packs and the site's own. Raises RulesetError."""
    return load_ruleset(settings.FAULTLINE_RULES)
