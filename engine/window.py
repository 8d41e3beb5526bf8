"""When the attempt ran."""

from __future__ import annotations

import msgspec

SLACK_BEFORE = 60.0
"""Seconds before the start in which a line still belongs to the attempt (prolog, clocks)."""
SLACK_LAUNCH = 5.0
"""The same on a node whose own slurmd tells when it launched the job."""
SLACK_AFTER = 600.0
"""Seconds after the end in which a line may still report the failure (node declared down, epilog)."""


class Window(msgspec.Struct, frozen=True):
    """The attempt in time."""

    start: float | None
    end: float | None
    launches: dict[str, float] = {}
    """node -> when its own slurmd launched the job, by its (corrected) clock"""
    about: float | None = None
    """A moment near the attempt by what its logs date themselves, where nothing tells start or end."""

    def before(self, at: float, node: str | None = None) -> bool:
        if node in self.launches:
            return at < self.launches[node] - SLACK_LAUNCH
        return self.start is not None and at < self.start - SLACK_BEFORE

    def after(self, at: float) -> bool:
        return self.end is not None and at > self.end + SLACK_AFTER
