"""Everything that the story of a diagnosis needs."""

from __future__ import annotations

import msgspec

from engine.causality import Choice
from engine.collective import Missing
from engine.findings import Finding
from engine.model import Attempt, SourceReport
from engine.origin import Places
from engine.outcome import View
from engine.progress import Progress
from engine.window import Window


class Told(msgspec.Struct):
    """Everything that the story needs."""

    attempt: Attempt
    bundle: str
    window: Window
    findings: list[Finding]
    choice: Choice
    outcome: View
    progress: Progress
    missing: Missing
    places: Places
    coverage: tuple[SourceReport, ...]
    ruleset: str
