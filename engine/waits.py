"""Iterations that mostly wait for data, by what the job's own lines of progress tell of it."""

from __future__ import annotations

import re
from statistics import median

import msgspec

from engine.model import Role
from engine.progress import Progress, Step
from engine.rule import Rule, build_rule

DATA_WAIT = "throughput.data-wait"
MOSTLY = 0.5
"""Part of an iteration that it must wait, usually."""
LEAST = 12
"""So many lines of progress must tell."""
_WAIT = re.compile(
    r"(?i)(?<![a-z_])(?:data(?:[ _.-]?load(?:er|ing)?)?(?:[ _./-]?(?:wait(?:ing)?|time|fetch))?|"
    r"(?:time|wait)[_/.]data|fetch[ _]time)"
    r"(?P<ms>_ms)?(?:_s|_sec)?(?: \(t\)|\(s\))?[\s\"':=]{1,3}(?P<took>\d+\.\d+)(?: ?(?P<unit>ms)\b)?"
)
"""How long an iteration waited for its batch: ``data_wait 3.15``, ``Data: 0.013``, ``Data (t): 0.4``."""


class Wait(msgspec.Struct, frozen=True):
    step: Step
    """The first line that tells."""
    waits_s: float
    iteration_s: float


def for_data(progress: Progress) -> Wait | None:
    """How long iterations usually wait for data, where that is most of their time from the beginning on; else None."""
    if progress.iteration_s is None or progress.slowdown is not None:
        return None
    told = [(step, waited) for step in progress.steps if (waited := _waited(step)) is not None]
    if len(told) < LEAST:
        return None
    waits = median(waited for _, waited in told)
    # More than an iteration is no wait of one: the number is of something else.
    if not MOSTLY * progress.iteration_s <= waits <= 1.05 * progress.iteration_s:
        return None
    return Wait(told[0][0], waits, progress.iteration_s)


def _waited(step: Step) -> float | None:
    text = step.mark.text.lower()
    if "data" not in text and "fetch" not in text:  # much sooner said than by the regex, which may begin anywhere
        return None
    found = _WAIT.search(step.mark.text)
    if found is None:
        return None
    return float(found["took"]) * (0.001 if found["ms"] or found["unit"] else 1.0)


def data_wait_rule() -> Rule:
    """The symptom that this module finds; not in a pack because no pattern finds it."""
    return build_rule(
        {
            "id": DATA_WAIT,
            "title": "Iterations mostly wait for data",
            "role": Role.SYMPTOM,
            "guide": "Look at how many loader workers and processors each rank has, and at the data's storage.",
            "does_not_prove": "Whether workers, processors or the storage are too slow; a job may always have been so.",
        },
        "active",
    )
