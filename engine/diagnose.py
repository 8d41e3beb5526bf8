"""The pipeline, from top to bottom: read, place, group, explain, choose, tell."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import BinaryIO, cast

import msgspec

from engine import (
    absent,
    addresses,
    borrowed,
    causality,
    collective,
    crashes,
    fabric,
    firewall,
    idle,
    outcome,
    pace,
    pauses,
    probes,
    refute,
    series,
    shared,
    sizes,
    stacks,
    stalls,
    standstill,
    story,
    waits,
)
from engine.clock import StreamClock, parse_time, zone_by_span
from engine.coverage import coverage
from engine.facts import MAX_BYTES, Fact, attempt_fact, cluster_zone, in_known_zone, is_structured, read_facts
from engine.findings import (
    AROUND,
    SETTLE,
    Placed,
    attempt_window,
    blame_the_checked,
    group,
    lapse_healed,
    lapse_persistent,
    place,
    place_by_kernel_logs,
    place_daemons,
    place_refusals,
)
from engine.lines import Line, printable
from engine.linklayer import Layers, decide_layers
from engine.model import Attempt, Diagnosis, Outcome, Source, SourceReport, Stream, Workload
from engine.origin import Places
from engine.parallel import UnreadableError, scan_all
from engine.progress import Progress, Step, read_progress
from engine.rule import Rule
from engine.ruleset import Ruleset
from engine.scan import Hit, Scanner, StreamScan
from engine.skew import Skews, launches, skews
from engine.slowing import ending, slowing
from engine.told import Told
from engine.uptime import Boot, boot_by_header, boot_by_neighbours, boot_by_samples
from engine.window import Window

MOST_COUNTED = 8
"""Logs in which an unknown way of writing progress is looked for."""
_BEGAN = re.compile(r"container: .*State=(?:running|terminated)|event: .*Reason=Started\b")
"""A container of the job has run."""
_TEXT = (Source.APPLOG, Source.SYSLOG, Source.SCHEDULER)


class Evidenced(msgspec.Struct):
    """Everything that was read of one attempt, before anything is decided."""

    attempt: Attempt
    window: Window
    scans: list[StreamScan]
    facts: list[Fact]
    places: Places
    reports: list[SourceReport]
    """Streams that could not be read, and why."""


@lru_cache(maxsize=8)
def scanner_of(ruleset: Ruleset) -> Scanner:
    return Scanner(ruleset)


def diagnose(
    attempt: Attempt,
    streams: Sequence[Stream],
    ruleset: Ruleset,
    *,
    bundle: str = "",
    collected: Sequence[SourceReport] = (),
    threads: int = 1,
    on_trial: set[str] | None = None,
) -> Diagnosis:
    """Say why the attempt ended as it did. The same streams in any order and the same rules give the same bytes.

    `collected` are the connectors' own reports; they go into the coverage as they are. A stream that cannot be read is
    reported there, never raised. `threads`: processors that may be used at once; they change how soon the answer
    comes, not the answer. `on_trial` is given the rules with the status shadow that matched: they decide nothing.
    """
    attempt = _readable(attempt)
    streams = sorted(streams, key=lambda s: s.name)
    scanner = scanner_of(ruleset)
    read = _read(attempt, streams, scanner, threads)
    places = read.places
    measured = series.read_series(streams, ruleset, places, read.window)
    placed, clocks, off = _place(read, measured)
    window = read.window
    progress = read_progress(read.scans, clocks, places, off, window)
    progress.slowdown = progress.slowdown or pauses.lengthened(progress.steps)
    placed += series.as_placed(measured, places)
    layers = Layers(read.scans, places)
    decide_layers(placed, layers)
    dumps = collective.read_dumps(streams, places)
    stalled = stalls.read_reports(read.scans)
    missing = collective.who_is_missing(placed, dumps, places, streams, stalls.lagging(stalled))
    heard = _heard(read, clocks, off)
    if not (missing.ranks or missing.nodes or progress.steps):
        missing = collective.with_last_words(
            absent.from_the_start(placed, _spoke(read, placed, heard), places, window), places, streams
        )
    if not (missing.ranks or missing.nodes):
        missing = idle.waited_for(measured.series, progress.stopped_at(window), window, places)
    if not (missing.ranks or missing.nodes) and progress.slowdown is not None:
        missing = collective.slowest(placed, progress.slowdown.since, places)
    mismatch = [] if dumps.dumps else collective.watchdog_mismatch(placed)
    preparing = [] if progress.steps else collective.still_preparing(placed)
    stuck = stacks.elsewhere(read.scans, missing, places)
    refused = firewall.turned_away(placed, places)
    astray = addresses.out_of_reach(placed, places)
    oversized = sizes.too_large(placed, places)
    crashed = crashes.own_crashes(placed)
    severed = fabric.lost(placed)
    crossed = stalls.cross_waits(stalled)
    hurried = probes.still_loading(placed)
    facts = [
        *dumps.facts,
        *mismatch,
        *crossed,
        *missing.facts,
        *preparing,
        *stuck,
        *refused,
        *astray,
        *oversized,
        *crashed,
        *severed,
        *hurried,
    ]
    concluded = _concluded(facts, read, scanner, clocks)
    decide_layers(concluded, layers)
    placed += concluded
    placed += _told_by_progress(progress)
    blame_the_checked(placed)
    place_daemons(placed)
    place_refusals(placed)
    place_by_kernel_logs(placed)
    lapse_persistent(placed, window)
    borrowed.bound(placed, progress)
    trouble = refute.trouble_began(placed, progress, window)
    slowed_at = outcome.slowed_at(attempt, progress)
    if slowed_at is not None:
        # What makes pauses longer is said in them; what makes iterations slower may creep up before.
        in_pauses = progress.slowdown is not None and progress.slowdown.pauses
        slowing(placed, slowed_at, SETTLE if in_pauses else AROUND, progress.slow_for(window))
    elif outcome.word_of(attempt) is Outcome.FAILED:
        ending(placed)
    lapse_healed(placed, trouble, progress.last_at)
    if on_trial is not None:
        on_trial |= {p.rule.id for p in placed if p.rule.status == "shadow" and p.aside is None}
    findings = group([p for p in placed if not p.rule.id.startswith(("origin.", probes.LOADING))], window)
    waited_since = missing.since if missing.since is not None else standstill.since(findings, progress, window)
    stuck_since = waited_since if waited_since is not None else trouble
    view = outcome.first_view(attempt, progress, findings, window, stuck_since, waited_since)
    known = refute.Known(
        progress=progress,
        window=window,
        trouble=trouble,
        kernel_logs=_kernel_logs(read),
        has_job_log=any(scan.stream.source is Source.APPLOG and scan.lines for scan in read.scans),
        degraded=view.may_be_degraded,
        clocks=shared.loose_clocks(placed, window.end),
        missing=frozenset(missing.ranks),
        heard=heard,
        began=any(_BEGAN.match(fact.text) for fact in read.facts),
    )
    choice = causality.choose(findings, known, attempt)
    view = outcome.final_view(view, choice, missing, progress)
    if choice.roots and choice.sub_domain == "time_limit" and not progress.steps:
        choice = causality.never_began(choice) or choice
        view = outcome.by_root(view, choice)
    if view.outcome is Outcome.HUNG and choice.roots and refute.is_end(choice.roots[0]):
        # Somebody ended a job that was already stuck: look for what it was stuck in.
        choice = causality.choose(findings, known, attempt, ends=False)
    choice = outcome.settle(view, choice, missing)
    reports = [*collected, *read.reports]
    return story.tell(
        Told(
            attempt=attempt,
            bundle=bundle,
            window=window,
            findings=findings,
            choice=choice,
            outcome=view,
            progress=progress,
            missing=missing,
            places=places,
            coverage=coverage(read.scans, measured, dumps, read.facts, clocks, reports, attempt, places),
            ruleset=ruleset.fingerprint,
        )
    )


def _readable(attempt: Attempt) -> Attempt:
    """With the words of its owner and its scheduler as they may be shown: anyone may write control characters there."""
    workload = attempt.workload
    return msgspec.structs.replace(
        attempt,
        workload=Workload(**{key: printable(getattr(workload, key)) for key in Workload.__struct_fields__}),
        state=printable(attempt.state),
        exit_code=attempt.exit_code and printable(attempt.exit_code),
        reason=attempt.reason and printable(attempt.reason),
    )


def _kernel_logs(read: Evidenced) -> frozenset[str]:
    """Nodes of which a system log was read, alone or in one log of many nodes."""
    logs = [scan for scan in read.scans if scan.stream.source is Source.SYSLOG and scan.lines]
    named = {read.places.stream_node(scan.stream) for scan in logs}
    hosts = {read.places.known(host) for scan in logs for host in scan.hosts}
    return frozenset(node for node in named | hosts if node)


def _heard(read: Evidenced, clocks: dict[str, StreamClock], off: Skews) -> dict[str, float]:
    """Node -> when it was last heard of in the job's logs, by ordinary lines."""
    last: dict[str, float] = {}
    for scan in read.scans:
        for line, stamp in scan.heard.values():
            rank = read.places.rank_of(line, scan.stream, {})
            node = read.places.known(read.places.node_of(line, scan.stream, {}, rank))
            at = clocks[scan.stream.name].resolve(stamp).at
            if node is not None and at is not None:
                at -= off.ahead(scan.stream.source, node)
                last[node] = max(at, last.get(node, at))
    return last


def _spoke(read: Evidenced, placed: Sequence[Placed], heard: dict[str, float]) -> set[str]:
    """Nodes of which the job's own logs hold a line."""
    logs = [scan for scan in read.scans if scan.stream.source is Source.APPLOG and scan.lines]
    own = {read.places.stream_node(scan.stream) for scan in logs}
    # What others say of a node, as srun does, is no word of its own.
    own |= {p.node for p in placed if p.hit.source is Source.APPLOG and not {"node", "tasks"} & p.hit.captures.keys()}
    return {node for node in own if node is not None} | heard.keys()


def _concluded(
    facts: Sequence[Fact], read: Evidenced, scanner: Scanner, clocks: dict[str, StreamClock]
) -> list[Placed]:
    """What engine/collective.py concluded, as signals of the streams that it was concluded from."""
    placed: list[Placed] = []
    for fact in facts:
        stream = Stream(name=fact.fields["stream"], source=Source.FLIGHT_RECORDER, open=io.BytesIO, size=0)
        scan = _scan_facts(stream, [fact], scanner)
        clock = clocks.get(stream.name) or StreamClock(
            read.window.start, read.window.end, scan.samples, about=read.window.about
        )
        placed += place(scan, read.places, clock, read.window, Skews())
    return placed


def _told_by_progress(progress: Progress) -> list[Placed]:
    """What the lines of progress tell together, as a signal of the first of them that shows it."""
    placed: list[Placed] = []
    slow, wait = progress.slowdown, waits.for_data(progress)
    if slow is not None:
        how_long = "on" if slow.until is None else "for a while"
        took = f"{slow.what} took {slow.after_s:.2f} s instead of {slow.before_s:.2f} s"
        what = "Pauses between iterations became longer" if slow.pauses else "Iterations became slower"
        placed.append(_of_step(series.slowdown_rule(), slow.step, slow.at, f"from here {how_long} {took}", what))
    if wait is not None:
        took = f"an iteration takes {wait.iteration_s:.2f} s, of which it waits {wait.waits_s:.2f} s for data"
        placed.append(_of_step(waits.data_wait_rule(), wait.step, wait.step.at, took, "Iterations wait for data"))
    return placed


def _of_step(rule: Rule, step: Step, at: float | None, said: str, what: str) -> Placed:
    mark = step.mark
    said = f"{said}: {mark.text[:160]}"
    hit = Hit(
        rule=rule,
        captures={"what": what},
        stream=step.stream,
        source=Source.APPLOG,
        offset=mark.offset,
        line=mark.line,
        text=said,
        cleaned=Line([said], []),
        stamp=mark.stamp,
        around=mark.around,
        sha256=mark.sha256,
    )
    return Placed(hit, rule, at, "own", step.node, mark.rank, None)


def _read(attempt: Attempt, streams: Sequence[Stream], scanner: Scanner, processors: int) -> Evidenced:
    places = Places(attempt, streams)
    scans: list[StreamScan] = []
    facts: list[Fact] = []
    reports: list[SourceReport] = []
    texts = [stream for stream in streams if stream.source in _TEXT]
    records = [stream for stream in texts if stream.source is Source.SCHEDULER and is_structured(stream.name)]
    for stream in records:
        with _reported(stream, reports), stream.open() as content:
            found = in_known_zone(read_facts(stream.name, content.read(MAX_BYTES + 1), attempt), attempt)
            facts += found
            scans.append(_scan_facts(stream, found, scanner))
    places.learn_facts(facts)
    logs = [stream for stream in texts if stream not in records]
    for stream, scanned in zip(logs, scan_all(scanner, logs, places.names, processors), strict=True):
        with _reported(stream, reports):
            if isinstance(scanned, UnreadableError):
                raise scanned
            scans.append(scanned)
    scans.sort(key=lambda scan: scan.stream.name)
    if not any(scan.marks for scan in scans):
        for scan in _largest_logs(scans):
            scan.marks = pace.count(scan)
    own = [attempt_fact(attempt)]
    scans.append(
        _scan_facts(Stream(name="attempt.yaml", source=Source.SCHEDULER, open=io.BytesIO, size=0), own, scanner)
    )
    for scan in scans:
        places.learn_hits([hit for hit in scan.hits if hit.rule.id.startswith("origin.")], scan.stream)
    places.assume_ranks()
    return Evidenced(attempt, attempt_window(attempt, scans), scans, facts, places, reports)


@contextmanager
def _reported(stream: Stream, reports: list[SourceReport]) -> Iterator[None]:
    """A stream that cannot be read is reported, and the others are read all the same."""
    try:
        yield
    except Exception as error:
        note = " ".join(str(error).split()) or type(error).__name__
        reports.append(SourceReport(source=stream.name, status="error", streams=1, note=note[:300]))


def _largest_logs(scans: Sequence[StreamScan]) -> list[StreamScan]:
    """The job's logs in which its progress would stand."""
    logs = [scan for scan in scans if scan.stream.source is Source.APPLOG and scan.lines >= pace.LEAST_LINES]
    return sorted(logs, key=lambda scan: (-scan.lines, scan.stream.name))[:MOST_COUNTED]


def _scan_facts(stream: Stream, facts: Sequence[Fact], scanner: Scanner) -> StreamScan:
    """Match rules on facts; the hits point to the records in the file."""
    text = "".join(f"{fact.text}\n" for fact in facts).encode()
    made = Stream(name=stream.name, source=stream.source, open=lambda: cast(BinaryIO, io.BytesIO(text)), size=len(text))
    scan = scanner.scan(made)
    for hit in scan.hits:
        fact = facts[hit.line - 1]
        hit.stamp, hit.inherited, hit.offset, hit.line = fact.stamp, None, fact.offset, fact.line
        if fact.node and "node" not in hit.captures:
            hit.captures = {**hit.captures, "node": fact.node}
    scan.stream = stream
    scan.marks = []
    scan.samples = [(fact.stamp, "") for fact in facts if fact.stamp]
    return scan


def _place(read: Evidenced, measured: series.Measured) -> tuple[list[Placed], dict[str, StreamClock], Skews]:
    clocks = _clocks(read, measured)
    off = skews(read.scans, clocks, read.places, read.window)
    launched: dict[str, float] = {}
    for node, at in launches(read.scans, clocks, read.places):
        launched.setdefault(node, at - off.ahead(Source.SYSLOG, node))
    window = read.window = msgspec.structs.replace(read.window, launches=launched)
    placed: list[Placed] = []
    for scan in read.scans:
        placed += place(scan, read.places, clocks[scan.stream.name], window, off)
    return placed, clocks, off


def _clocks(read: Evidenced, measured: series.Measured) -> dict[str, StreamClock]:
    """A clock for each stream. The jobs' logs come first: they tell the cluster's zone where nothing better does."""
    window = read.window
    zone = cluster_zone(read.facts, read.attempt)
    audited = _audited_zone(read)
    told = zone if zone is not None else audited
    of_jobs = {
        scan.stream.name: StreamClock(
            window.start, window.end, scan.samples, local_shift=told or 0.0, about=window.about
        )
        for scan in read.scans
        if scan.stream.source is Source.APPLOG
    }
    others = [scan for scan in read.scans if scan.stream.name not in of_jobs]
    if told is None:
        told = _system_zone([scan for scan in others if scan.stream.source is Source.SYSLOG], of_jobs, window)
    # The scheduler's host may keep another zone than the nodes, and its tools print times in their caller's.
    of_nodes = audited if audited is not None else told
    boots = _boots(read, measured, told)
    return of_jobs | {
        scan.stream.name: StreamClock(
            window.start,
            window.end,
            scan.samples,
            covers_job=False,
            local_shift=of_nodes if scan.stream.source is Source.SYSLOG else told,
            boot=boots.get(read.places.stream_node(scan.stream) or ""),
            about=window.about,
        )
        for scan in others
    }


def _boots(read: Evidenced, measured: series.Measured, zone: float) -> dict[str, Boot]:
    """When each node booted, for its logs in seconds since then: by its logs, by Slurm, by a metric."""
    found: dict[str, Boot] = {}
    for scan in read.scans:
        node = read.places.stream_node(scan.stream)
        if scan.stream.source is Source.SYSLOG and node is not None:
            boot = boot_by_samples(scan.samples) or boot_by_header(scan.head, zone) or boot_by_neighbours(scan.samples)
            if boot is not None:
                found.setdefault(node, boot)
    for fact in read.facts:
        node, at = read.places.known(fact.node), parse_time(fact.fields.get("BootTime"))
        if fact.kind == "node" and node is not None and at is not None:
            found.setdefault(node, Boot(at.naive - (zone if at.offset is None else at.offset), "Slurm's BootTime"))
    for one in measured.series:
        if one.name == "node_boot_time_seconds" and one.node is not None and one.values[0] > 0:
            found.setdefault(one.node, Boot(one.values[0], "node_boot_time_seconds"))
    return found


def _audited_zone(read: Evidenced) -> float | None:
    """Seconds east of UTC of the nodes' clocks, by what any of their logs says itself, as in an audit line."""
    window = read.window
    logs = [scan for scan in read.scans if scan.stream.source is Source.SYSLOG]
    audited = (
        StreamClock(window.start, window.end, scan.samples, covers_job=False, about=window.about).told_shift
        for scan in logs
    )
    told = [shift for shift in audited if shift is not None]
    return min(told, key=lambda shift: (-told.count(shift), shift), default=None)


def _system_zone(scans: Sequence[StreamScan], of_jobs: dict[str, StreamClock], window: Window) -> float:
    """Seconds east of UTC of the nodes' clocks, where none of them tells: by what their logs span together, else by
    the jobs' logs; all nodes of a job are in one zone.
    """
    spanned = zone_by_span([stamp for scan in scans for stamp, _ in scan.samples], window.start, window.end)
    if spanned is not None:
        return spanned
    shifts = {clock.told_shift for clock in of_jobs.values()} - {None}
    return shifts.pop() or 0.0 if len(shifts) == 1 else 0.0
