"""How the attempt ended: the scheduler's word, corrected by what the evidence shows (hung, degraded)."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from engine.causality import Choice
from engine.collective import Missing
from engine.findings import Finding
from engine.lines import whole
from engine.model import NO_SUB_DOMAIN, UNATTRIBUTED, Attempt, Outcome, Source
from engine.progress import Progress, usual_gap
from engine.refute import is_end
from engine.waits import DATA_WAIT
from engine.window import Window

LONG_SILENCE = 480.0
"""Seconds without progress before an end from outside that make it a hang."""

_EVICTED = (
    (r"EXECUTION_?TIME", Outcome.TIMED_OUT),
    (r"DEACTIVATED(?!DUE)|INACTIVE_?WORKLOAD", Outcome.CANCELLED),
)
"""Why a queue evicted a workload, where the reason says that nobody took its place."""
_WORDS = (
    (r"PREEMPT", Outcome.PREEMPTED),
    (r"EVICT", Outcome.PREEMPTED),
    (r"TIMEOUT|DEADLINE|TIME_?LIMIT", Outcome.TIMED_OUT),
    (r"CANCEL|REVOKED|REQUEUE|TERMINATED BY USER|STOPPED|DELETED", Outcome.CANCELLED),
    (r"FAIL|ERROR|OUT_OF_MEMORY|OOM|NODE_FAIL|BACKOFF|CRASH|LOST|UNHEALTHY", Outcome.FAILED),
    (r"COMPLET|SUCCE|FINISHED|DONE", Outcome.SUCCEEDED),
    (r"RUNNING|ACTIVE|SUSPENDED", Outcome.UNKNOWN),
)
_NOT_FAILED = (Outcome.SUCCEEDED, Outcome.UNKNOWN, Outcome.TIMED_OUT)
_TAKEN_BACK = ("k8s.kueue-stopped", "k8s.drained")
"""Evictions by somebody's decision: the workload had done nothing."""
_ENDS = {
    "preemption": Outcome.PREEMPTED,
    "time_limit": Outcome.TIMED_OUT,
    "cancelled": Outcome.CANCELLED,
    "eviction": Outcome.PREEMPTED,
}


class View(msgspec.Struct):
    """What is known about the end."""

    outcome: Outcome
    running: bool
    may_be_degraded: bool
    silent_s: float = 0.0
    """Seconds from the last progress to the end."""
    failed_word: bool = False
    """The scheduler also calls it failed (``Failed/DeadlineExceeded``)."""
    requeued: bool = False
    """The scheduler put it back in the queue, by itself or because somebody asked."""
    why: str = ""


def word_of(attempt: Attempt) -> Outcome:
    """The scheduler's word for the end."""
    state = f"{attempt.state} {attempt.reason or ''}".upper()
    word = _worded(_WORDS, attempt.state.upper())
    if word is Outcome.PREEMPTED:
        return _worded(_EVICTED, state) or word
    word = word or _worded(_WORDS, state)
    if word is not None:
        return word
    number = whole((attempt.exit_code or "").split(":")[0])
    return Outcome.UNKNOWN if number is None else Outcome.SUCCEEDED if number == 0 else Outcome.FAILED


def _worded(words: Sequence[tuple[str, Outcome]], state: str) -> Outcome | None:
    return next((outcome for pattern, outcome in words if re.search(pattern, state)), None)


def slowed_at(attempt: Attempt, progress: Progress) -> float | None:
    """Since when at the earliest a job that did not fail was slow for good; None when it was not."""
    if progress.slowdown is None or word_of(attempt) not in _NOT_FAILED:
        return None
    return progress.slowdown.since


def first_view(
    attempt: Attempt,
    progress: Progress,
    findings: list[Finding],
    window: Window,
    stuck_since: float | None,
    waited_since: float | None = None,
) -> View:
    main, word = attempt.state.upper(), word_of(attempt)
    running = bool(re.search(r"RUNNING|\bACTIVE", main))
    measured = any(f.rule.degrades and f.aside is None and f.placed[0].hit.source is Source.METRIC for f in findings)
    # A job that waited for data from its beginning is slow as long as it runs; one that came to its end has just ended.
    waits = running and any(f.rule.id == DATA_WAIT for f in findings)
    may = word in _NOT_FAILED and (progress.slowdown is not None or measured or waits)
    silent = 0.0
    stopped = progress.stopped_at(window)
    stopped = stuck_since if stopped is None and (progress.steps or waited_since is not None) else stopped
    if stopped is not None and window.end is not None:
        silent = max(window.end - stopped, 0.0)
    return View(word, running, may, silent, main.startswith("FAILED"), "REQUEUE" in main)


def final_view(view: View, choice: Choice, missing: Missing, progress: Progress) -> View:
    """The outcome after the root is known."""
    roots = choice.roots
    if view.outcome is Outcome.FAILED and roots and (choice.domain, choice.sub_domain) == ("scheduler", "cancelled"):
        view = _with(view, Outcome.CANCELLED, "somebody ended it")
    if any(f.rule.degrades for f in roots) and view.may_be_degraded:
        waits = progress.slowdown is None and any(DATA_WAIT in f.rule.needs for f in roots)
        why = "it waits for data most of the time, and goes on" if waits else "the job slowed down and went on"
        return _with(view, Outcome.DEGRADED, why)
    if view.outcome is Outcome.SUCCEEDED:
        return (
            _with(view, Outcome.DEGRADED, "iterations stayed slower until the end") if _much_slower(progress) else view
        )
    if view.running:
        if _stalled(view, progress):
            return _with(view, Outcome.HUNG, f"no progress for {view.silent_s / 60:.0f} min while the job still ran")
        return _with(view, Outcome.DEGRADED, "iterations stayed slower") if _much_slower(progress) else view
    if view.outcome in (Outcome.TIMED_OUT, Outcome.CANCELLED) and _stalled(view, progress):
        return _with(
            view, Outcome.HUNG, f"no progress for {view.silent_s / 60:.0f} min before it was ended from outside"
        )
    if roots and roots[0].rule.id.startswith("collective.stuck"):
        return _with(view, Outcome.HUNG, "a rank stopped without dying while the others waited")
    if not roots and missing.ranks and missing.by == "flight recorder":
        return _with(view, Outcome.HUNG, "a rank never joined the collective that the others waited in")
    return by_root(view, choice)


def _stalled(view: View, progress: Progress) -> bool:
    return view.silent_s > LONG_SILENCE and view.silent_s > 3 * usual_gap(progress.steps)


def by_root(view: View, choice: Choice) -> View:
    """Where the scheduler's word is vague (Failed, Evicted), the root says how the attempt ended."""
    if not choice.roots or choice.ambiguous:
        return view
    sub_domain = choice.sub_domain
    if choice.domain == "scheduler" and sub_domain == "preemption":
        return _with(view, Outcome.PREEMPTED, "its place was taken")
    if choice.roots[0].rule.id == "k8s.node-shutdown":
        return _with(view, Outcome.PREEMPTED, "its node was taken away")
    if choice.roots[0].rule.id == "k8s.drained" and view.failed_word:
        return _with(view, Outcome.PREEMPTED, "its node was emptied")
    if choice.domain == "scheduler" and sub_domain == "time_limit" and view.outcome is Outcome.FAILED:
        return _with(view, Outcome.TIMED_OUT, "its time was over")
    if view.outcome is Outcome.CANCELLED and view.requeued and not is_end(choice.roots[0]):
        return _with(view, Outcome.FAILED, "it was put back in the queue because of what had failed")
    if view.outcome is Outcome.UNKNOWN:
        return _with(view, _ENDS.get(sub_domain, Outcome.FAILED), "")
    if view.outcome is Outcome.PREEMPTED and choice.roots[0].rule.id not in _TAKEN_BACK:
        return _with(view, Outcome.FAILED, "it was evicted for a reason of its own")
    if view.outcome is Outcome.TIMED_OUT and view.failed_word and sub_domain != "time_limit":
        return _with(view, Outcome.FAILED, "the limit only ended what had failed before")
    return view


def _with(view: View, outcome: Outcome, why: str) -> View:
    return msgspec.structs.replace(view, outcome=outcome, why=why)


def _much_slower(progress: Progress) -> bool:
    slow = progress.slowdown
    return slow is not None and slow.until is None and not slow.pauses


def settle(view: View, choice: Choice, missing: Missing) -> Choice:
    """The choice in the light of the outcome: nobody is blamed for a success, and a hang is not its own end."""
    if view.outcome is Outcome.SUCCEEDED:
        return _without_root(choice)
    if view.outcome is Outcome.HUNG and choice.roots and is_end(choice.roots[0]):
        return _without_root(choice)
    if view.outcome is Outcome.DEGRADED and choice.roots and not all(f.rule.degrades for f in choice.roots):
        return _without_root(choice)
    return choice


def _without_root(choice: Choice) -> Choice:
    choice.roots, choice.nodes, choice.ambiguous = [], (), False
    choice.domain, choice.sub_domain = UNATTRIBUTED, NO_SUB_DOMAIN
    return choice
