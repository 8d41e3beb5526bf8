"""Hits -> signals -> findings: placed, timed, inside the attempt or set aside with the reason, and grouped."""

from __future__ import annotations

import fnmatch
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import cached_property
from math import inf
from statistics import median_low

import msgspec

from engine.clock import Resolved, StreamClock
from engine.model import Attempt, Role, Signal, Source
from engine.neighbours import LINES_BACK
from engine.origin import Places, normal_device
from engine.ruleset import Rule
from engine.scan import Hit, StreamScan
from engine.skew import Skews
from engine.window import Window

SLACK_CAUSE = 30.0
"""Seconds after the end at which a fault may still be written and have caused it."""

SETTLE = 60.0
"""Seconds within which a job that a passing condition stopped would show it."""

SAME_MOMENT, LOOSE_CLOCKS = 2.0, 15.0
"""Seconds by which a line of progress may stand behind what stopped the job; of a condition that lasted longer, with
clocks of two nodes.
"""

RETRIES = 10.0
"""Seconds that a link must be away to be why a connection ran out of retries of which only an address is known."""
_OUT_OF_RETRIES = "12"

GAVE_UP = 60.0
"""Seconds after a link came back within which connections that lost it say so: as long as RDMA sends again."""

AROUND = 3600.0
"""Seconds before a slow-down in which what it was slow by may have begun."""

_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+")
_ABOUT = re.compile(
    r"event: Kind=(?P<kind>Pod|Workload|Job|JobSet|PyTorchJob|MPIJob|RayJob"
    r"|ReplicaSet|Deployment|StatefulSet|DaemonSet|CronJob) Object=(?P<name>\S+)"
)
_DAEMON = re.compile(r"slurmstepd: |pyxis: |slurmd\[")
_JOB = re.compile(r"\d+")


class Placed(msgspec.Struct, gc=False):
    """A hit with its place and time."""

    hit: Hit
    rule: Rule
    at: float | None
    clock: str
    node: str | None
    rank: int | None
    device: str | None
    peer: str | None = None
    aside: str | None = None
    """Why it cannot be part of this attempt's failure; None when it can."""
    elapsed: float = 0.0
    """Seconds before the line at which the trouble that it reports began."""
    until: float | None = None
    """Of a metric: the last sample that shows it; None where it did not end."""
    again: float | None = None
    """Of a counter: when it grew last."""
    at_least: bool = False
    """Is its time only that of the last line before it that has one, with none after it? It may be much later."""
    at_most: float | None = None
    """Where its time is only borrowed from a line before it: that of the next line that has one, close behind it."""
    corrected: bool = False
    """Was the error of its node's clock taken off its time?"""

    def order(self) -> tuple[float, str, int, int, str, str]:
        """By time; at one moment by place and content, so that other file names change nothing."""
        at = self.at if self.at is not None else float("inf")
        rank = self.rank if self.rank is not None else -1
        return (at, self.node or "", rank, self.hit.offset, self.hit.sha256, self.hit.stream)

    def signal(self) -> Signal:
        return Signal(
            rule=self.rule.id,
            title=title_of(self.rule, self.hit.captures),
            stream=self.hit.stream,
            source=self.hit.source,
            offset=self.hit.offset,
            line=self.hit.line,
            text=self.hit.text,
            at=self.at,
            clock=self.clock,
            node=self.node,
            rank=self.rank,
            device=self.device,
            captures=self.hit.captures,
        )


class Finding(msgspec.Struct):
    """Signals of one rule at one place."""

    rule: Rule
    title: str
    node: str | None
    device: str | None
    placed: list[Placed]
    detail: str = ""
    """What tells it from other findings of the rule: the normalised text of an exception."""
    role: Role = Role.CONTEXT
    nodes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    count: int = 0
    first: float | None = None
    last: float | None = None
    elapsed: float = 0.0
    aside: str | None = None
    bare: bool = False

    @property
    def onset(self) -> float | None:
        """When the trouble may have begun at the earliest."""
        return None if self.first is None else self.first - max(self.elapsed, 0.0)

    @property
    def latest(self) -> float:
        """When the trouble began at the latest: at its first line, or as long before as that line itself tells.

        Of a line whose time is that of one before it, it is only known to be before the next one that has a time.
        """
        first = min(self.placed, key=Placed.order)
        said = min(p.at_most if p.at_most is not None else inf if p.at_least else (p.at or 0.0) for p in self.placed)
        return max(said, self.first or 0.0) - elapsed_of(first.hit.captures)

    @property
    def key(self) -> tuple[str, str, str, str]:
        return (self.rule.id, self.node or "", self.device or "", self.detail)


def title_of(rule: Rule, captures: dict[str, str]) -> str:
    """The rule's title with captures filled in."""
    return re.sub(r"\{(\w+)\}", lambda found: captures.get(found[1], found[0]), rule.title)


def place(scan: StreamScan, places: Places, clock: StreamClock, window: Window, off: Skews) -> list[Placed]:
    """Give every hit of one stream its time and place. What a node's clock is `off` by is taken off its times."""
    out = []
    strangers = {hit.captures["pid"] for hit in scan.hits if "pid" in hit.captures and _other_job(hit, places)}
    ended = clock.resolve(scan.last).at if scan.last is not None else None
    timed = _Timed(scan, clock)
    outsiders = {hit.captures["pid"] for hit in scan.hits if "pid" in hit.captures and _other_pod(hit, scan, places)}
    for hit in scan.hits:
        rank = places.rank_of(hit.cleaned, scan.stream, hit.captures)
        node = places.node_of(hit.cleaned, scan.stream, hit.captures, rank)
        resolved = clock.resolve(hit.stamp)
        shift = off.ahead(scan.stream.source, _writer(hit, scan, places)) if off else 0.0
        if shift and resolved.at is not None:
            resolved = Resolved(
                resolved.at - shift, f"{resolved.clock}, corrected by {-shift:+.0f} s for this node's clock"
            )
        if hit.inherited and resolved.at is not None:
            resolved = Resolved(resolved.at, f"inherited: from {hit.inherited}")
        if hit.rule.family == "switch" and "node" not in hit.captures and not places.known(node):
            node = None  # a switch is no node of the job; whose port it was must be told by the line
        if _written_elsewhere(hit, scan, node, places):
            node = None
        peer = places.peer_of(hit.captures["peer"]) if hit.captures.get("peer") else None
        device = normal_device(hit.captures["device"]) if hit.captures.get("device") else None
        if rank is None and scan.stream.source is Source.SYSLOG:
            rank = places.rank_at(node, device)
        placed = Placed(
            hit,
            hit.rule,
            resolved.at,
            resolved.clock,
            node,
            rank,
            device,
            peer,
            elapsed=max(elapsed_of(hit.captures), hit.rule.delay),
            at_least=_after_all(hit, resolved.at, None if ended is None else ended - shift),
            at_most=None if (behind := timed.behind(hit)) is None else behind - shift,
            corrected=bool(shift),
        )
        # The kernel names a killed process twice, and its job only once.
        if _other_job(hit, places) or (hit.rule.family == "kernel" and hit.captures.get("pid") in strangers):
            continue
        outside = hit.rule.family == "kernel" and hit.captures.get("pid") in outsiders
        for one in _at_each_node(placed, places):
            one.aside = "the process belonged to another pod than the job's" if outside else _aside(one, places, window)
            out.append(one)
    return out


def _written_elsewhere(hit: Hit, scan: StreamScan, node: str | None, places: Places) -> bool:
    """Is the node only the one that wrote the job's log, and none of the job's: a launcher's, a submitter's?"""
    of_job = scan.stream.source is Source.APPLOG and "node" not in hit.captures and bool(places.attempt.nodes)
    return of_job and node is not None and not places.known(node) and node == places.stream_node(scan.stream)


def _after_all(hit: Hit, at: float | None, ended: float | None) -> bool:
    """Does the line stand behind the last one of its stream that has a time?"""
    borrowed = hit.inherited is not None and not hit.earliest_unknown
    return borrowed and at is not None and ended is not None and ended <= at


def _writer(hit: Hit, scan: StreamScan, places: Places) -> str | None:
    """The node whose clock stamped the line, whichever it speaks of; None where that is not known.

    In a log of many nodes a time that a line has from another one may be of any node's clock.
    """
    if (node := places.stream_node(scan.stream)) is not None or scan.stream.source is not Source.APPLOG:
        return node
    if hit.inherited is not None:
        return None
    return places.known(places.node_of(hit.cleaned, scan.stream, {}, places.rank_of(hit.cleaned, scan.stream, {})))


class _Timed:
    """The hits and the progress of a stream that have a time of their own."""

    def __init__(self, scan: StreamScan, clock: StreamClock) -> None:
        self._scan, self._clock = scan, clock

    @cached_property
    def _lines(self) -> list[tuple[int, float]]:
        own = [(hit.line, hit.stamp) for hit in self._scan.hits if hit.inherited is None]
        own += [(mark.line, mark.stamp) for mark in self._scan.marks if mark.exact]
        timed = ((line, self._clock.resolve(stamp).at) for line, stamp in own if stamp is not None)
        return sorted((line, at) for line, at in timed if at is not None)

    def behind(self, hit: Hit) -> float | None:
        """Of a line whose time is borrowed from one before it: the time of the next one close behind it."""
        if hit.inherited is None or hit.earliest_unknown:
            return None
        at = bisect_right(self._lines, (hit.line, inf))
        if at == len(self._lines) or self._lines[at][0] > hit.line + LINES_BACK:
            return None
        return self._lines[at][1]


def _at_each_node(placed: Placed, places: Places) -> list[Placed]:
    """A line that names several nodes at once (``node-[03-04]``) speaks for each of the attempt's among them."""
    listed = placed.hit.captures.get("nodelist")
    named = [node for host in places.listed(listed) if (node := places.known(host))] if listed else []
    return [msgspec.structs.replace(placed, node=node) for node in dict.fromkeys(named)] or [placed]


def elapsed_of(captures: dict[str, str]) -> float:
    for key, scale in (("elapsed_ms", 1000.0), ("elapsed_s", 1.0)):
        value = captures.get(key, "")
        if len(value) <= 15 and value.replace(".", "", 1).isdecimal():
            return float(value) / scale
    return 0.0


def _other_job(hit: Hit, places: Places) -> bool:
    """Is the line about another job of the same scheduler?"""
    job = _JOB.match(hit.captures.get("job", ""))
    return bool(job and places.jobs and job[0] not in places.jobs)


def _other_pod(hit: Hit, scan: StreamScan, places: Places) -> bool:
    """Is the line about a process of a pod that is not the job's?"""
    uid = hit.captures.get("pod_uid")
    node = places.stream_node(scan.stream) or places.known(hit.cleaned.host)
    return uid is not None and places.is_another_pods(uid, node)


def _aside(placed: Placed, places: Places, window: Window) -> str | None:
    if (listed := placed.hit.captures.get("nodelist")) and places.attempt.nodes and not places.known(placed.node):
        return f"{listed} names none of the attempt's nodes"
    if placed.node and places.attempt.nodes and not places.known(placed.node) and not _is_container(placed):
        return f"{placed.node} is not one of the attempt's nodes"
    about = _ABOUT.match(placed.hit.text)
    # What befalls the pods of the cluster's own services may concern the job; what befalls other jobs does not.
    of_jobs = placed.rule.domain != "hardware" and placed.rule.family != "dns"
    if about and of_jobs and places.is_another_jobs(about["kind"], about["name"]):
        return f"it is about {about['kind'].lower()} {about['name']}, which is not the job's"
    if placed.at is None:
        return None
    own_clock = placed.node if placed.hit.source is Source.SYSLOG else None
    if window.before(placed.at, own_clock) and not placed.rule.persists:
        return "it happened before the attempt began"
    if window.after(placed.at):
        return "it happened after the attempt had ended"
    could_cause = placed.rule.role in (Role.CAUSE, Role.EITHER)
    if could_cause and window.end is not None and placed.at - placed.elapsed > window.end + SLACK_CAUSE:
        return "it happened after the attempt had ended"
    return None


def blame_the_checked(placed: list[Placed]) -> None:
    """What was repeated elsewhere to check it (`checks`) speaks for where it was first seen, not for the checker.

    That place is told by the latest earlier line about the same rank, before all others by one that names a node
    itself. Without such a line nobody is to blame.
    """
    for one in placed:
        if not one.rule.checks:
            continue
        seen = [
            p
            for p in placed
            if any(fnmatch.fnmatchcase(p.rule.id, pattern) for pattern in one.rule.checks)
            and p.node
            and (one.at is None or p.at is None or p.at <= one.at)
            and (one.rank is None or p.rank in (None, one.rank) or _names_only_a_node(p))
        ]
        named = [p for p in seen if "node" in p.hit.captures] or seen
        if one.rank is None and len({p.node for p in named}) > 1:
            named = []
        found = max(named, key=lambda p: (p.at if p.at is not None else float("-inf"), *p.order()[1:]), default=None)
        one.node, one.device = (found.node, found.device) if found else (None, None)


def place_daemons(placed: list[Placed]) -> None:
    """What a node's Slurm daemon writes into the job's log names no node: srun tells whose tasks ended first."""
    exits = [p for p in placed if p.rule.id == "slurm.task-exit" and p.aside is None]
    nodes = {p.node for p in exits}
    (node,) = nodes if len(nodes) == 1 else (None,)
    if node is None:
        return
    for one in placed:
        of_a_node = one.rule.on_one_node is not None and one.rule.blames == "node"
        if one.node is None and one.rank is None and of_a_node and _DAEMON.match(one.hit.text):
            one.node = node


def place_refusals(placed: list[Placed]) -> None:
    """The controller refuses a credential without a word on whose it is: srun names the node that started no tasks."""
    refused = [p for p in placed if p.rule.id == "slurm.launch-failed" and "uthentication" in p.hit.text]
    nodes = {p.node for p in refused if p.node is not None and p.aside is None}
    for one in placed:
        if len(nodes) == 1 and one.rule.id == "slurm.authentication" and one.node is None:
            (one.node,) = nodes


def place_by_kernel_logs(placed: list[Placed]) -> None:
    """What the job's log says of no known node, and the system log of one node alone says too, is of that node."""
    witnesses: dict[str, set[str]] = {}
    for one in placed:
        if one.hit.source is Source.SYSLOG and one.aside is None and one.node is not None and one.rule.blames == "node":
            witnesses.setdefault(one.rule.id, set()).add(one.node)
    for one in placed:
        nodes = witnesses.get(one.rule.id, set())
        if one.node is None and one.rank is None and one.hit.source is Source.APPLOG and len(nodes) == 1:
            (one.node,) = nodes


def _names_only_a_node(placed: Placed) -> bool:
    """Any rank may say it of that node."""
    return "node" in placed.hit.captures and "rank" not in placed.hit.captures


def _is_container(placed: Placed) -> bool:
    """A line of the job's own log under a host's name that is no node's: a container's that nothing maps to one."""
    hit = placed.hit
    return hit.source is Source.APPLOG and "node" not in hit.captures and hit.cleaned.host == placed.node


def lapse_persistent(placed: list[Placed], window: Window) -> None:
    """A condition from before the start holds on unless something that clears it came later on the same node."""
    for one in placed:
        if one.aside or not one.rule.persists or one.at is None or not window.before(one.at, one.node):
            continue
        if one.rule.persists_with and not any(_bears_out(other, one) for other in placed):
            one.aside = "it happened before the attempt began, and nothing of the attempt points to it"
            continue
        for other in placed:
            same = other.node == one.node and other.at is not None and other.at > one.at
            if same and (window.start is None or (other.at or 0) <= window.start) and _clears(one.rule, other.rule.id):
                one.aside = f"it happened before the attempt began and was cleared since ({other.hit.text[:80]})"
                break


def _bears_out(other: Placed, one: Placed) -> bool:
    """Does `other` show that the old condition `one` still held: at the same node, or by naming it as its peer?"""
    return (
        other.aside is None and one.node in (other.node, other.peer) and listed(other.rule.id, one.rule.persists_with)
    )


def lapse_healed(placed: list[Placed], trouble: float | None, last_progress: float | None) -> None:
    """A condition that ended by itself (`cleared_by`) before the job was stuck did not stop it; nor one that the pod
    it was said of got past, whatever came then.
    """
    for one in placed:
        if one.aside or not one.rule.cleared_by or one.rule.degrades or one.at is None:
            continue
        ended = [
            p
            for p in placed
            if p.at is not None and p.at >= one.at and _same_place(p, one) and _clears(one.rule, p.rule.id)
        ]
        if not ended:
            continue
        end = min(ended, key=Placed.order)
        at = end.at or 0.0
        before_trouble = trouble is not None and at + SETTLE < trouble
        before_progress = last_progress is not None and at + SETTLE < last_progress
        overcome = "object" in one.hit.captures and "object" in end.hit.captures
        short = trouble is None and at - one.at <= SETTLE and not _came_too_late(one, at, placed, last_progress)
        if before_trouble or before_progress or overcome or short:
            one.aside = f"the condition ended by itself ({end.hit.text[:80]})"


def _came_too_late(one: Placed, ended: float, placed: list[Placed], last_progress: float | None) -> bool:
    """Did a link come back too late? Since it went the job worked no more, and connections of its node gave up, with
    no failure of a rank's own before that.
    """
    if not one.rule.persists_with or one.at is None:
        return False
    gone = one.at
    if last_progress is not None and last_progress > max(gone + SAME_MOMENT, min(gone + LOOSE_CLOCKS, ended)):
        return False
    since = [p for p in placed if p.aside is None and p.at is not None and gone <= p.at <= ended + GAVE_UP]
    told = [p for p in since if _bears_out(p, one) or (ended - gone >= RETRIES and _names_a_stranger(p, one))]
    gave_up = min((p.at for p in told if p.at is not None), default=None)
    return gave_up is not None and not any(_of_its_own(p) and (p.at or gave_up) <= gave_up for p in since)


def _names_a_stranger(placed: Placed, one: Placed) -> bool:
    """Did a connection to an address that nothing maps to a node run out of retries?"""
    captures = placed.hit.captures
    unknown = placed.peer is None and "peer" in captures and captures.get("status") == _OUT_OF_RETRIES
    return unknown and listed(placed.rule.id, one.rule.persists_with)


def _of_its_own(placed: Placed) -> bool:
    """Does a rank tell of a fault of the program, which takes connections away as well?"""
    fault = placed.rule.role in (Role.CAUSE, Role.EITHER) and placed.rule.domain == "software"
    return fault and placed.hit.source is Source.APPLOG


def _same_place(one: Placed, other: Placed) -> bool:
    """Of one object of the cluster where both name one, else of one node, and of one device and interface where both
    name one.
    """
    here, there = one.hit.captures.get("object"), other.hit.captures.get("object")
    if here is not None and there is not None:
        return here == there
    ports = {p.hit.captures["interface"] for p in (one, other) if "interface" in p.hit.captures}
    if len(ports) > 1:
        return False
    return one.node == other.node and (one.device is None or other.device is None or one.device == other.device)


def _clears(rule: Rule, other: str) -> bool:
    return listed(other, rule.cleared_by)


def listed(rule_id: str, patterns: Iterable[str]) -> bool:
    return any(rule_id == one or (one.endswith("*") and rule_id.startswith(one[:-1])) for one in patterns)


def group(placed: Iterable[Placed], window: Window) -> list[Finding]:
    """Findings in a defined order: by first time, then by rule and place."""
    found: dict[tuple[object, ...], Finding] = {}
    for one in placed:
        if one.rule.status == "shadow":
            continue
        detail = _NUMBERS.sub("N", one.hit.text)[:160] if one.hit.frames or one.hit.bare else ""
        by_node = one.rule.blames != "none"
        key = (
            one.rule.id,
            one.node if by_node else None,
            one.device if by_node else None,
            detail,
            one.aside is not None,
            one.hit.bare,
        )
        finding = found.get(key)
        if finding is None:
            title = title_of(one.rule, one.hit.captures)
            finding = found[key] = Finding(
                one.rule,
                title,
                one.node if by_node else None,
                one.device if by_node else None,
                [],
                detail,
                role=one.rule.role,
                aside=one.aside,
                bare=one.hit.bare,
            )
        finding.placed.append(one)
    for finding in found.values():
        _summarise(finding)
    return sorted(found.values(), key=lambda f: (f.first if f.first is not None else float("inf"), *f.key, f.bare))


def _summarise(finding: Finding) -> None:
    finding.placed.sort(key=Placed.order)
    times = [p.at for p in finding.placed if p.at is not None]
    own = [p.at for p in finding.placed if p.at is not None and p.hit.inherited is None]
    # A borrowed time may be much too early; it says only that the signal was not before it.
    finding.first = min(own or times, default=None)
    finding.last = max([*times, *(p.again for p in finding.placed if p.again is not None)], default=None)
    finding.count = sum(p.hit.count for p in finding.placed)
    finding.nodes = tuple(sorted({p.node for p in finding.placed if p.node}))
    finding.ranks = tuple(sorted({p.rank for p in finding.placed if p.rank is not None}))
    finding.elapsed = max((p.elapsed for p in finding.placed), default=0.0)
    finding.title = title_of(finding.rule, finding.placed[0].hit.captures)


def attempt_window(attempt: Attempt, scans: Sequence[StreamScan]) -> Window:
    if attempt.started_at is None and attempt.ended_at is None:
        return Window(None, None, about=_about(scans))
    return Window(attempt.started_at, attempt.ended_at)


def _about(scans: Sequence[StreamScan]) -> float | None:
    """The middle one of the dates with a year: of the job's own logs, else of all."""
    of_job = [scan for scan in scans if scan.stream.source is Source.APPLOG]
    for told_by in (of_job, scans):
        dated = [stamp.naive for scan in told_by for stamp, _ in scan.samples if stamp.kind in ("full", "epoch")]
        if dated:
            return median_low(dated)
    return None
