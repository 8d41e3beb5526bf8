"""The verdict of an attempt as a small picture, for a README or a dashboard. It names no node, no user and no line."""

from __future__ import annotations

from html import escape

from engine.model import AMBIGUOUS, Outcome
from triage import words
from triage.models import Attempt, TriageState

GREEN, RED, GREY = "#1a7f37", "#b42318", "#57606a"
"""Each with white text has a contrast of 4.5 or more."""
_CALM = (Outcome.CANCELLED, Outcome.PREEMPTED, Outcome.UNKNOWN)
_CHARACTER = 6.7
"""Width of a character, in pixels, about; the text is fitted to it."""


def verdict_in_short(attempt: Attempt) -> tuple[str, str]:
    """What a badge says, and its colour. Needs `diagnosis` and `verdict`."""
    if attempt.diagnosis is None:
        return ("not diagnosed" if attempt.triage_state == TriageState.FAILED else "in triage"), GREY
    if attempt.outcome == Outcome.SUCCEEDED:
        return "succeeded", GREEN
    if attempt.outcome in _CALM:
        return words.outcome(attempt.outcome).lower(), GREY
    if attempt.domain == "unattributed":
        return f"{words.outcome(attempt.outcome).lower()}, cause unknown", GREY
    sub = "" if attempt.sub_domain == AMBIGUOUS else words.sub_domain(attempt.sub_domain)
    return ": ".join(filter(None, [words.domain(attempt.domain).lower(), sub])), RED


def badge(label: str, said: str, colour: str) -> str:
    """An SVG without script, style or anything from elsewhere."""
    left, right = (len(text) * _CHARACTER + 12 for text in (label, said))
    width = left + right
    texts = "".join(
        f'<text x="{x + 6:.0f}" y="14" textLength="{len(text) * _CHARACTER:.0f}">{escape(text)}</text>'
        for x, text in ((0, label), (left, said))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="20" role="img" '
        f'aria-label="{escape(label)}: {escape(said)}"><title>{escape(label)}: {escape(said)}</title>'
        f'<rect width="{width:.0f}" height="20" rx="3" fill="#32383f"/>'
        f'<path d="M{left:.0f} 0h{right - 3:.0f}a3 3 0 0 1 3 3v14a3 3 0 0 1-3 3H{left:.0f}z" fill="{colour}"/>'
        f'<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">{texts}</g></svg>\n'
    )
