"""What the engine's rules see in the lines that a page shows: every match, not only the evidence of the diagnosis."""

from __future__ import annotations

import io
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from django.conf import settings

from engine.hits import Hit
from engine.model import Role, Source
from engine.model import Stream as Lines
from engine.rule import Rule
from engine.ruleset import RulesetError, load_ruleset
from engine.scan import Scanner
from triage.selectors.streams import StreamLine

MOST_SINGLE = 1000
"""Lines of a window that are looked at one by one."""
_lock = threading.Lock()


@dataclass(frozen=True)
class RuleMark:
    """One rule in one line."""

    rule: str
    title: str
    role: str
    """root, warning, symptom, noise ... as the rule says."""
    domain: str
    guide: str
    does_not_prove: str

    @property
    def tells(self) -> bool:
        """Whether it says something about the failure; context is marked, and quiet."""
        return self.role not in (Role.CONTEXT.value, Role.PROGRESS.value)

    @property
    def short(self) -> str:
        """The rule's name without its family: `ber-event`."""
        return self.rule.partition(".")[2].replace("-", " ").replace("_", " ") or self.rule


@lru_cache(maxsize=1)
def _scanner() -> Scanner | None:
    try:
        return Scanner(load_ruleset(settings.FAULTLINE_RULES))
    except RulesetError:
        return None  # the worker says what is wrong with it


def rule_marks(lines: Sequence[StreamLine], source: str) -> dict[int, RuleMark]:
    """By line number, what the rules say of neighbouring lines of a stream of this source. Times out nowhere: the
    scanner is linear, and lines are cut before they come here.
    """
    if not lines or source not in {kind.value for kind in Source} or source == Source.METRIC.value:
        return {}
    with _lock:  # made once
        scanner = _scanner()
    if scanner is None:
        return {}
    hits, more = _hits(scanner, lines, source)
    if more:  # the scanner keeps a few of many alike: the others line by line
        known = {hit.line for hit in hits}
        for line in lines[:MOST_SINGLE]:
            if line.number not in known:
                hits += _hits(scanner, [line], source)[0]
    return {hit.line: _mark(hit.rule) for hit in hits if hit.rule.role is not Role.PROGRESS}


def _hits(scanner: Scanner, lines: Sequence[StreamLine], source: str) -> tuple[list[Hit], bool]:
    raw = b"\n".join(line.text.encode("utf-8", "surrogateescape") for line in lines) + b"\n"
    scan = scanner.scan(Lines(name="window", source=Source(source), open=lambda: io.BytesIO(raw), size=len(raw)))
    for hit in scan.hits:
        hit.line = lines[min(hit.line, len(lines)) - 1].number
    return list(scan.hits), any(hit.count > 1 for hit in scan.hits)


def _mark(rule: Rule) -> RuleMark:
    title = rule.title.partition("{")[0].rstrip(" :,(") if "{" in rule.title else rule.title
    return RuleMark(
        rule.id, title or rule.id, rule.role.value, rule.domain or "unattributed", rule.guide, rule.does_not_prove
    )
