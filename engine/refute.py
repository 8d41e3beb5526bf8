"""What speaks against a finding as the root: progress after it, the order in time, what would have to be known."""

from __future__ import annotations

import re
from statistics import median

import msgspec

from engine.findings import Finding, Placed
from engine.model import Role, Source
from engine.progress import Progress
from engine.shared import Clock
from engine.window import Window

LATE = 60.0
"""Seconds after the job was stuck from which a fault came too late to be the cause."""
REACH = 300.0
"""Seconds before the job stopped from which on something that is often harmless may have stopped it."""
AT_WORK = 600.0
"""Seconds for which a log must go on as usual to show that the job worked, where its progress is not understood."""

PACED, CREEPS = 600.0, 1800.0
"""Seconds by which the end, the beginning of what slows a job down, and the slow iterations that are known, may be
apart: heat and errors creep up, and are measured once in some minutes.
"""
LONG_BEFORE = 1800.0
"""Seconds for which a counter may have grown fast already: what the job ran with as fast as ever does not slow it."""
FEW, SLOWER = 6, 1.1
"""So many iterations tell how long they take; and so many times longer is slower at all."""

_STATE = re.compile(r"(?:pod)?condition: |container: .*State=waiting")
"""What a scheduler's object says of itself since a moment: it still held when the object was read."""

_OF_A_POD = re.compile(r"pod: |event: Kind=Pod ")

EXTERNAL_ENDS = {("scheduler", sub) for sub in ("preemption", "time_limit", "cancelled", "eviction")}


def is_end(finding: Finding) -> bool:
    """An end from outside: preemption, time limit, cancellation, eviction."""
    return (finding.rule.domain, finding.rule.sub_domain) in EXTERNAL_ENDS


def is_strong(finding: Finding) -> bool:
    return finding.role is Role.CAUSE and not finding.bare


def trouble_began(placed: list[Placed], progress: Progress, window: Window) -> float | None:
    """When the job was stuck or failing at the latest: a time-out tells how long it waited, a tear-down has a time."""
    known: list[float] = []
    earliest = progress.last_at if progress.last_at is not None else window.start
    for one in placed:
        if one.at is None or one.aside:
            continue
        if one.hit.inherited is not None:
            continue  # a borrowed time is too vague to measure from
        if one.rule.role is Role.SYMPTOM and one.elapsed >= 60 and _says_how_long(one, progress):
            known.append(one.at - one.elapsed)
        elif one.rule.role is Role.TEARDOWN and one.rule.family == "slurm":
            known.append(one.at)
    fitting = [at for at in known if earliest is None or at >= earliest - 60]
    return min(fitting, default=None)


def _says_how_long(placed: Placed, progress: Progress) -> bool:
    """A collective's time-out does; the ones that wait at the start, as stores do, wait since the job began."""
    return "elapsed_ms" in placed.hit.captures or ("elapsed_s" in placed.hit.captures and bool(progress.steps))


class Known(msgspec.Struct, frozen=True):
    """What the attempt as a whole tells about when it worked and when it stopped."""

    progress: Progress
    window: Window
    trouble: float | None
    """When the job was stuck or failing at the latest."""
    kernel_logs: frozenset[str]
    """Nodes whose system log was read."""
    has_job_log: bool
    degraded: bool
    clocks: dict[str, Clock] = {}
    """Nodes whose clock had nothing to go by, or was wrong."""
    missing: frozenset[int] = frozenset()
    """Ranks that the others waited for: what such a rank says of itself is never too late."""
    heard: dict[str, float] = {}
    """Node -> when an ordinary line of the job's logs last came from it."""
    began: bool = True
    """Did any container of the job run? Where none did, what kept them from it has no end."""


def against(finding: Finding, known: Known, alive: list[Finding]) -> str | None:
    """What speaks against the finding as the root, in words; None when nothing does."""
    return (
        _refuted(finding, known.progress, known.window, known.degraded)
        or _was_late(finding, known)
        or without_its_log(finding, known)
        or _out_of_reach(finding, known)
        or (None if is_strong(finding) else _fell_short(finding, known, alive))
    )


def without_its_log(finding: Finding, known: Known) -> str | None:
    """Some errors are a program's as often as a GPU's; only the node's kernel log can tell."""
    if "syslog" not in finding.rule.doubtful_without or len(finding.nodes) > 1:
        return None
    node = finding.nodes[0] if finding.nodes else "its node"
    if node in known.kernel_logs or (not finding.nodes and known.kernel_logs):
        return None
    return f"without the kernel log of {node} a hardware fault can't be ruled out"


def _borrowed(placed: Placed) -> bool:
    """Is its time only another rank's, which it was written next to? Ranks' lines are not in each other's order."""
    return placed.hit.inherited is not None and placed.hit.inherited.endswith("of another rank")


def _out_of_reach(finding: Finding, known: Known) -> str | None:
    """Without the job's own log nothing shows that an early fault stopped it: then it must stand near the end."""
    end = known.window.end
    if known.has_job_log or finding.last is None or end is None or is_end(finding) or finding.rule.degrades:
        return None
    if any(_STATE.match(p.hit.text) or (not known.began and _OF_A_POD.match(p.hit.text)) for p in finding.placed):
        return None
    early = end - finding.last
    if early <= finding.rule.within:
        return None
    return f"nothing shows that the job stopped then, {_minutes(early)} before its end"


def _refuted(finding: Finding, progress: Progress, window: Window, degraded: bool) -> str | None:
    """Why the job's own progress speaks against the finding, if it does."""
    if finding.rule.degrades:
        return _slowed_nothing(finding, progress) if degraded else "it slows a job down, but does not end it"
    if is_end(finding):
        return None
    last = progress.last_at
    if finding.last is None or all(p.at_least for p in finding.placed):
        return _refuted_by_order(finding, progress)
    no_later = [p.at_most for p in finding.placed if p.at_most is not None]
    since = max(finding.last, *no_later, window.start or finding.last)
    if last is not None and last > since + finding.rule.survives:
        after = sum(1 for step in progress.steps if step.at is not None and step.at > since)
        return f"training went on for {_minutes(last - since)} after it ({after} lines of progress)"
    if finding.placed[0].hit.source is Source.SCHEDULER:
        return None  # a pod that waits writes ordinary lines too
    later = [at for at in progress.ordinary if at > since + AT_WORK and (window.end is None or at < window.end)]
    if len(later) >= 5 and later[-1] - later[0] > AT_WORK:
        return f"the job's log went on as usual for {_minutes(later[-1] - since)} after it"
    return None


def _slowed_nothing(finding: Finding, progress: Progress) -> str | None:
    """Why the pace of the job speaks against something measured that could have slowed it down."""
    measured = [p for p in finding.placed if p.hit.source is Source.METRIC]
    if finding.first is None or len(measured) < len(finding.placed):
        return None
    ends = [p.until for p in measured]
    until = None if None in ends else max(end for end in ends if end is not None)
    slow = progress.slowdown
    if slow is not None:
        if finding.first > slow.at + CREEPS:
            return f"it began {_minutes(finding.first - slow.at)} after iterations had become slower"
        if until is not None and until < slow.since - PACED:
            return f"it was over {_minutes(slow.since - until)} before iterations became slower"
        if finding.first < slow.since - LONG_BEFORE and all(p.again is not None and p.until is None for p in measured):
            return f"it had been so for {_minutes(slow.since - finding.first)} when iterations became slower"
        return None
    before = [seconds for at, seconds in progress.paced if at < finding.first]
    during = [seconds for at, seconds in progress.paced if at > finding.first and (until is None or at <= until)]
    if len(before) < FEW or len(during) < FEW:
        return None
    was, became = median(before), median(during)
    return f"iterations took {became:.3g} s with it and {was:.3g} s before" if became < was * SLOWER else None


def _refuted_by_order(finding: Finding, progress: Progress) -> str | None:
    """Without times, only the order within one rank's stream counts."""
    for placed in finding.placed:
        last = progress.last_offsets.get(placed.hit.stream)
        if last is None or last <= placed.hit.offset:
            return None
    after = sum(
        1
        for s in progress.steps
        if s.stream == finding.placed[-1].hit.stream and s.mark.offset > finding.placed[-1].hit.offset
    )
    return f"training went on after it ({after} lines of progress in the same log)" if after >= 2 else None


def _was_late(finding: Finding, known: Known) -> str | None:
    trouble = known.trouble
    if trouble is None or finding.onset is None or is_end(finding) or finding.placed[0].hit.earliest_unknown:
        return None
    if known.missing.intersection(finding.ranks) or all(_borrowed(p) for p in finding.placed):
        return None
    late = finding.onset - trouble
    return f"it came {_minutes(late)} after the job was already stuck or failing" if late > LATE else None


def _fell_short(finding: Finding, known: Known, alive: list[Finding]) -> str | None:
    """What is often harmless must reach the moment at which the job stopped, to be believed."""
    if is_strong(finding) or finding.rule.persists or finding.rule.degrades or finding.last is None:
        return None
    if finding.placed[0].hit.source is Source.SCHEDULER or (known.progress.steps and not known.progress.is_exact):
        return None
    last = known.progress.last_at if known.progress.is_exact else None
    stopped = min((at for at in (known.trouble, last) if at is not None), default=None)
    if stopped is None:
        said = [f.onset for f in alive if f.role is Role.SYMPTOM and f.onset is not None and _in_own_words(f)]
        stopped = min(said, default=None)
    shown = max([finding.last, *(p.until for p in finding.placed if p.until is not None)])
    if stopped is None or shown >= stopped - REACH:
        return None
    return f"it was over {_minutes(stopped - finding.last)} before the job stopped"


def _in_own_words(finding: Finding) -> bool:
    return any(p.hit.inherited is None and p.hit.source is Source.APPLOG for p in finding.placed)


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
