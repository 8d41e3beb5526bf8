"""Since when a job stood still, by what its nodes' kernels say, where the job's own log tells no times.

That a file system's server does not answer proves little by itself: the job may not use it, and a mount that waits goes
on. That on such a node processes hang as well, and that it was so until the job was ended, is what a job looks like
that waits for its files.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.findings import Finding, listed
from engine.model import Role, Source
from engine.progress import Progress
from engine.window import Window

HANGS = "kernel.hung-task"
LONG = 480.0
"""Seconds that it must have lasted."""
UNTIL_THE_END = 1200.0
"""Seconds before the end within which it must still have been said: kernels repeat it every few minutes."""
OF_ITS_TIME = 0.25
"""Or this part of the time for which it was said: the longer a mount waits, the seldomer it says so."""


def since(findings: Sequence[Finding], progress: Progress, window: Window) -> float | None:
    """When the files stopped coming that the job waited for until its end; None where that cannot be said."""
    if progress.is_exact or window.end is None:
        return None
    hanging = {node for f in findings if f.rule.id == HANGS and f.aside is None for node in f.nodes}
    told = [f for f in findings if _of_files(f) and f.first is not None and not _over(f, findings)]
    began = min((f.first for f in told if f.first is not None and hanging.intersection(f.nodes)), default=None)
    last = max((f.last for f in told if f.last is not None), default=None)
    if began is None or last is None or window.end - began < LONG:
        return None
    if window.end - last > max(UNTIL_THE_END, OF_ITS_TIME * (last - began)):
        return None
    return None if any(at > began + LONG for at in progress.ordinary) else began


def _over(finding: Finding, findings: Sequence[Finding]) -> bool:
    """Does the node say last that it has ended?"""
    ends = [
        p.at for f in findings if listed(f.rule.id, finding.rule.cleared_by) for p in f.placed if p.node == finding.node
    ]
    return any(at is not None and at >= (finding.last or 0.0) for at in ends)


def _of_files(finding: Finding) -> bool:
    by_kernels = finding.placed[0].hit.source is Source.SYSLOG
    may_be = finding.role in (Role.CAUSE, Role.EITHER) and finding.aside is None
    return may_be and by_kernels and finding.rule.sub_domain == "shared_filesystem"
