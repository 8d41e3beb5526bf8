"""What training jobs write while all is well (rules/ordinary.txt): a line of each shape, of many trainers."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from engine.lines import clean

PATH = Path(__file__).parent / "rules" / "ordinary.txt"


@cache
def messages() -> tuple[str, ...]:
    """The lines without their envelopes, as rules see them."""
    return tuple(text for line in PATH.read_bytes().splitlines() for text in clean(line).texts)
