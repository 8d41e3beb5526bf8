"""Tells the decision as the diagnosis contract: evidence, reasoning, rivals, symptoms, timeline, coverage, advice."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from engine import __version__
from engine.causality import Choice, Ruled, blamed, is_end, may_explain
from engine.clock import StreamClock
from engine.collective import Dumps, Missing
from engine.facts import Fact
from engine.findings import Finding, Placed, Window
from engine.model import (
    AffectedNode,
    Attempt,
    Candidate,
    Diagnosis,
    EngineInfo,
    Evidence,
    Fingerprint,
    Outcome,
    Recommendation,
    Role,
    RootCause,
    Source,
    SourceReport,
    Symptom,
    TimelineEntry,
    rfc3339,
)
from engine.origin import Places
from engine.outcome import View
from engine.progress import Progress, Step
from engine.scan import StreamScan
from engine.series import Measured

FINGERPRINT = "1"
MOST_EVIDENCE = 400
MOST_PER_FINDING = 6
MOST_ENTRIES = 300
_SOURCES = (
    (Source.APPLOG, "No job log: the program's own errors and progress are unknown."),
    (Source.SYSLOG, "No kernel or system log: a fault of a GPU, link, disk or of the kernel would not show."),
    (Source.SCHEDULER, "No scheduler records: only attempt.yaml tells how the attempt ended."),
    (Source.METRIC, "No metrics: temperatures, error counters and link rates are unknown."),
    (
        Source.FLIGHT_RECORDER,
        "No flight-recorder dumps: which rank a collective waited for is only known from the log.",
    ),
)
_NUMBERED = re.compile(r"(S?Xid \d+): (.+)")
"""A title that begins with its number; people read what happened first."""


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


class _Trail:
    """Numbers evidence in the order in which the story uses it."""

    def __init__(self) -> None:
        self.evidence: list[Evidence] = []
        self._ids: dict[tuple[str, int, str], str] = {}

    def of(self, placed: Placed) -> str:
        hit = placed.hit
        return self._add(
            (hit.stream, hit.offset, hit.text),
            hit.source,
            hit.line,
            placed,
            hit.text,
            hit.before,
            hit.after,
            hit.sha256,
            placed.rule.id,
        )

    def step(self, step: Step) -> str:
        mark = step.mark
        placed = Placed(
            _NO_HIT, mark.rule, step.at, "own" if step.at is not None else "unknown", step.node, mark.rank, None
        )
        return self._add(
            (step.stream, mark.offset, mark.text),
            Source.APPLOG,
            mark.line,
            placed,
            mark.text,
            mark.before,
            mark.after,
            mark.sha256,
            mark.rule.id,
        )

    def _add(
        self,
        key: tuple[str, int, str],
        source: Source,
        line: int,
        placed: Placed,
        text: str,
        before: Sequence[str],
        after: Sequence[str],
        sha256: str,
        rule: str,
    ) -> str:
        known = self._ids.get(key)
        if known:
            return known
        number = f"e{len(self.evidence) + 1}"
        self._ids[key] = number
        self.evidence.append(
            Evidence(
                id=number,
                rule=rule,
                source=source.value,
                stream=key[0],
                line=line,
                offset=key[1],
                at=rfc3339(placed.at),
                clock=placed.clock,
                node=placed.node,
                rank=placed.rank,
                device=placed.device,
                text=text,
                before=tuple(before),
                after=tuple(after),
                sha256=sha256 or hashlib.sha256(text.encode()).hexdigest(),
            )
        )
        return number

    def some(self, finding: Finding, most: int = 3) -> tuple[str, ...]:
        """The first signals of a finding, one of each node first, and the last."""
        if len(self.evidence) >= MOST_EVIDENCE:
            return ()
        chosen: list[Placed] = []
        nodes: set[str | None] = set()
        for placed in finding.placed:
            if placed.node not in nodes:
                nodes.add(placed.node)
                chosen.append(placed)
        for placed in [*finding.placed[:2], *finding.placed[-1:]]:
            if placed not in chosen:
                chosen.append(placed)
        return tuple(self.of(placed) for placed in chosen[:most])


def _no_hit() -> Any:
    return None


_NO_HIT = _no_hit()


def refs(ids: Iterable[str]) -> str:
    return f"[{', '.join(ids)}]"


def clock_time(at: float | None) -> str:
    text = rfc3339(at)
    return text[11:19] if text else "an unknown time"


def tell(told: Told) -> Diagnosis:
    """The whole contract."""
    trail = _Trail()
    choice = told.choice
    roots = choice.roots
    root = None if choice.ambiguous or not roots else _root(told, trail)
    reasoning = _reasoning(told, trail, root)
    candidates = _candidates(told, trail, root)
    symptoms = _symptoms(told, trail, root)
    timeline = _timeline(told, trail)
    affected = _affected(told, root)
    title = _title(told, root, affected)
    domain, sub_domain = choice.domain, choice.sub_domain
    return Diagnosis(
        bundle=told.bundle,
        attempt=_attempt(told.attempt),
        outcome=told.outcome.outcome.value,
        domain=domain,
        sub_domain=sub_domain,
        title=title,
        root_cause=root,
        candidates=candidates,
        affected_nodes=affected,
        symptoms=symptoms,
        evidence=tuple(trail.evidence),
        timeline=timeline,
        reasoning=tuple(reasoning),
        recommendation=_recommendation(told, root, affected),
        coverage=told.coverage,
        fingerprint=_fingerprint(told, root),
        engine=EngineInfo(version=__version__, ruleset=told.ruleset),
    )


def _attempt(attempt: Attempt) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(attempt)
    plain["started_at"], plain["ended_at"] = rfc3339(attempt.started_at), rfc3339(attempt.ended_at)
    return plain


def _decisive(finding: Finding, progress: Progress) -> list[Placed]:
    """The signals of the root that count: those near or after the last progress; all when progress is unknown."""
    last = progress.last_at
    late = [p for p in finding.placed if last is None or p.at is None or p.at >= last - finding.rule.survives]
    return late or finding.placed


def _root(told: Told, trail: _Trail) -> RootCause:
    roots = told.choice.roots
    first = roots[0]
    decisive = _decisive(first, told.progress)
    evidence = [trail.of(p) for p in decisive[:MOST_PER_FINDING]]
    for other in roots[1:]:
        evidence += [e for e in trail.some(other, 2) if e not in evidence]
    devices = {
        f"{p.node}/{p.device}" for f in roots for p in f.placed if p.device and p.node and p.node in told.choice.nodes
    }
    ranks = sorted({rank for f in roots for rank in f.ranks})
    where = _where(told.choice.nodes, told.choice.everywhere)
    why = (
        f"{first.title}{where} at {clock_time(decisive[0].at)} is the earliest fault that reaches the end "
        "and that nothing explains."
    )
    return RootCause(
        rule=first.rule.id,
        title=first.title,
        nodes=told.choice.nodes,
        devices=tuple(sorted(devices)),
        ranks=tuple(ranks),
        at=rfc3339(decisive[0].at),
        evidence=tuple(evidence),
        why=why,
    )


def _where(nodes: Sequence[str], everywhere: bool = False) -> str:
    if everywhere:
        return " on all nodes alike"
    if not nodes:
        return ""
    return f" on {', '.join(nodes[:4])}" + (f" and {len(nodes) - 4} more" if len(nodes) > 4 else "")


def _title(told: Told, root: RootCause | None, affected: Sequence[AffectedNode]) -> str:
    outcome = told.outcome.outcome
    if root is not None:
        numbered = _NUMBERED.match(root.title)
        said = f"{numbered[2][:1].upper()}{numbered[2][1:]}" if numbered else root.title
        number = f" ({numbered[1]})" if numbered else ""
        first = told.choice.roots[0]
        if first.detail and first.rule.family == "python":
            # A class and its message say more than any rule's title.
            words = " ".join(first.placed[0].hit.text.split())
            return f"{root.title}: {words[:110]}{'...' if len(words) > 110 else ''}{_where(root.nodes)}"
        return f"{said}{_where(root.nodes, told.choice.everywhere)}{number}"
    if told.choice.ambiguous:
        names = " or ".join(dict.fromkeys(f"{f.title}{_where(blamed(f))}" for f in told.choice.roots[:3]))
        return f"Several causes fit: {names}"
    if outcome is Outcome.SUCCEEDED:
        return "Succeeded"
    suspects = [a.node for a in affected if a.role == "suspect"]
    lead = {
        Outcome.HUNG: "Hung, cause unknown",
        Outcome.DEGRADED: "Slowed down, cause unknown",
        Outcome.UNKNOWN: "Nothing decided",
    }.get(outcome, "Failed, cause unknown")
    return lead + (f"; {', '.join(suspects)} fell silent" if suspects else "")


def _reasoning(told: Told, trail: _Trail, root: RootCause | None) -> list[str]:
    said: list[str] = []
    attempt, progress, choice = told.attempt, told.progress, told.choice
    ended = [f for f in told.findings if f.placed[0].hit.stream == "attempt.yaml"]
    mark = f" {refs(trail.some(ended[0], 1))}" if ended else ""
    code = f", exit code {attempt.exit_code}" if attempt.exit_code else ""
    said.append(
        f"The scheduler ended the attempt as {attempt.state or 'unknown'}{code} "
        f"at {clock_time(attempt.ended_at)}{mark}."
    )
    if progress.last is not None:
        silent = f", {told.outcome.silent_s / 60:.0f} min before the end" if told.outcome.silent_s > 120 else ""
        said.append(
            f"The last progress was at {clock_time(progress.last_at)}{silent} {refs([trail.step(progress.last)])}."
        )
    if told.outcome.why:
        said.append(f"The outcome is {told.outcome.outcome.value}: {told.outcome.why}.")
    if progress.slowdown is not None:
        slow = progress.slowdown
        said.append(
            f"From {clock_time(slow.at)} on an iteration took {slow.after_s:.2f} s instead of {slow.before_s:.2f} s "
            f"{refs([trail.step(slow.step)])}."
        )
    if root is not None:
        said += _root_sentences(told, trail, root)
    elif choice.ambiguous:
        for finding in choice.roots:
            said.append(
                f"{finding.title}{_where(blamed(finding))} at {clock_time(finding.first)} could be the cause "
                f"{refs(trail.some(finding))}."
            )
        said.append("Nothing in the evidence orders these or explains one by another, so none is named as the root.")
    elif told.outcome.outcome is Outcome.SUCCEEDED:
        said.append("It ended well, so nothing is blamed; what the logs report beside that had no consequence.")
    else:
        said += _unattributed(told, trail)
    return said


def _root_sentences(told: Told, trail: _Trail, root: RootCause) -> list[str]:
    said = []
    first = told.choice.roots[0]
    confirmations = [
        f for f in told.findings if f.aside is None and f.role is Role.CONFIRMATION and f.node and f.node in root.nodes
    ]
    for finding in confirmations[:3]:
        said.append(
            f"{finding.title} on {finding.node} from {clock_time(finding.first)} points the same way "
            f"{refs(trail.some(finding, 2))}."
        )
    said.append(
        f"{first.title}{_where(root.nodes, told.choice.everywhere)} at "
        f"{root.at[11:19] if root.at else 'an unknown time'} {refs(root.evidence)}."
    )
    if told.choice.everywhere:
        said.append("It shows on every node of the job alike, so no single node is blamed.")
    later = [
        f
        for f in told.findings
        if f.aside is None and f.role in (Role.SYMPTOM, Role.TEARDOWN) and f.placed[0].hit.source is Source.APPLOG
    ]
    explained = [f for f in later if may_explain(first, f)]
    if explained:
        start = min((f.first for f in explained if f.first is not None), default=None)
        named = ", ".join(dict.fromkeys(f.title for f in explained[:4]))
        ids = [e for f in explained[:4] for e in trail.some(f, 1)]
        said.append(f"What the ranks report ({named}) begins at {clock_time(start)} and follows from it {refs(ids)}.")
    said.append(f"Nothing in the evidence explains it by something earlier. It is the root {refs(root.evidence[:1])}.")
    return said


def _unattributed(told: Told, trail: _Trail) -> list[str]:
    said = []
    symptoms = [f for f in told.findings if f.aside is None and f.role is Role.SYMPTOM]
    if symptoms:
        ids = [e for f in symptoms[:4] for e in trail.some(f, 1)]
        named = ", ".join(dict.fromkeys(f.title for f in symptoms[:4]))
        said.append(f"Only consequences are in the evidence ({named}); none of them names a cause {refs(ids)}.")
    if told.missing.ranks:
        ranks = ", ".join(str(rank) for rank in told.missing.ranks[:8])
        said.append(
            f"Rank {ranks}{_where(told.missing.nodes)} is what the others waited for, by the {told.missing.by}; "
            "what stopped it is not in the evidence."
        )
    gaps = [report.note for report in told.coverage if report.status in ("missing", "empty", "partial") and report.note]
    if gaps:
        said.append("What would decide: " + " ".join(gaps[:3]))
    return said


def _candidates(told: Told, trail: _Trail, root: RootCause | None) -> tuple[Candidate, ...]:
    out = []
    chosen = {id(f) for f in told.choice.roots}
    for ruled in told.choice.ruled:
        finding = ruled.finding
        if id(finding) in chosen and not told.choice.ambiguous and root is not None:
            continue
        ambiguous = id(finding) in chosen and told.choice.ambiguous
        why = "nothing orders it against the other candidates" if ambiguous else _not_root(ruled, told, trail)
        out.append(_candidate(finding, trail, None if ambiguous else why, why if ambiguous else None))
    for finding in told.findings:
        if finding.aside and finding.rule.role in (Role.CAUSE, Role.EITHER):
            out.append(_candidate(finding, trail, finding.aside, None))
    return tuple(out[:60])


def _candidate(finding: Finding, trail: _Trail, why_not: str | None, undecided: str | None) -> Candidate:
    return Candidate(
        rule=finding.rule.id,
        title=finding.title,
        nodes=blamed(finding),
        domain=finding.rule.domain or "",
        sub_domain=finding.rule.sub_domain or "",
        evidence=trail.some(finding),
        not_root_because=why_not,
        undecided_because=undecided,
    )


def _not_root(ruled: Ruled, told: Told, trail: _Trail) -> str:
    if ruled.refuted:
        last = told.progress.last
        return f"{ruled.refuted}" + (f" {refs([trail.step(last)])}" if last is not None else "")
    if ruled.explained_by is not None:
        by = ruled.explained_by
        return f"{by.title}{_where(blamed(by))} at {clock_time(by.first)} explains it {refs(trail.some(by, 1))}"
    if ruled.later_than is not None:
        by = ruled.later_than
        return (
            f"it came when the attempt was already ending: {by.title} at {clock_time(by.first)} was before it "
            f"{refs(trail.some(by, 1))}"
        )
    if ruled.weak:
        return ruled.weak
    if told.outcome.outcome is Outcome.SUCCEEDED:
        return "the attempt succeeded"
    if is_end(ruled.finding):
        return "it tells how the attempt was ended, after it had stopped making progress"
    return "it does not slow a job down"


def _symptoms(told: Told, trail: _Trail, root: RootCause | None) -> tuple[Symptom, ...]:
    out = []
    chosen = {id(f) for f in told.choice.roots} if root is not None else set()
    merged: dict[tuple[str, str | None], list[Finding]] = {}
    for finding in told.findings:
        if id(finding) in chosen or finding.role is Role.PROGRESS or finding.placed[0].hit.stream == "attempt.yaml":
            continue
        explained = None
        if finding.aside is None and root is not None and any(may_explain(f, finding) for f in told.choice.roots):
            explained = "root"
        merged.setdefault((finding.rule.id, explained), []).append(finding)
    for (rule, explained), findings in merged.items():
        times = [t for f in findings for t in (f.first, f.last) if t is not None]
        ids = [e for f in findings[:MOST_PER_FINDING] for e in trail.some(f, 2)]
        out.append(
            Symptom(
                rule=rule,
                title=findings[0].title,
                nodes=tuple(sorted({n for f in findings for n in f.nodes})),
                ranks=tuple(sorted({r for f in findings for r in f.ranks})),
                count=sum(f.count for f in findings),
                first_at=rfc3339(min(times)) if times else None,
                last_at=rfc3339(max(times)) if times else None,
                explained_by=explained,
                evidence=tuple(dict.fromkeys(ids)),
            )
        )
    out.sort(key=lambda s: (s.explained_by is None, s.first_at or "9", s.rule))
    return tuple(out)


def _timeline(told: Told, trail: _Trail) -> tuple[TimelineEntry, ...]:
    entries: list[TimelineEntry] = []
    if told.window.start is not None:
        entries.append(
            TimelineEntry(at=rfc3339(told.window.start), kind="start", node=None, title="Attempt begins", evidence=())
        )
    for step, title in ((told.progress.first, "First progress"), (told.progress.last, "Last progress")):
        if step is not None:
            entries.append(
                TimelineEntry(
                    at=rfc3339(step.at), kind="progress", node=step.node, title=title, evidence=(trail.step(step),)
                )
            )
    chosen = {id(f) for f in told.choice.roots}
    for finding in sorted(told.findings, key=lambda f: id(f) not in chosen):
        if finding.first is None or finding.placed[0].hit.stream == "attempt.yaml":
            continue
        kind = "cause" if id(finding) in chosen else _kind(finding)
        firsts: dict[str | None, Placed] = {}
        for placed in finding.placed:
            firsts.setdefault(placed.node, placed)
        for node, first in sorted(firsts.items(), key=lambda item: item[0] or ""):
            if first.at is not None and len(entries) < MOST_ENTRIES:
                entries.append(
                    TimelineEntry(
                        at=rfc3339(first.at), kind=kind, node=node, title=finding.title, evidence=(trail.of(first),)
                    )
                )
    if told.window.end is not None:
        entries.append(
            TimelineEntry(
                at=rfc3339(told.window.end), kind="end", node=None, title=f"Ends as {told.attempt.state}", evidence=()
            )
        )
    order = {"start": 0, "end": 2}
    entries.sort(key=lambda e: (e.at or "", order.get(e.kind, 1), e.title, e.node or ""))
    return tuple(entries)


def _kind(finding: Finding) -> str:
    if finding.aside or finding.role in (Role.CONTEXT, Role.CONFIRMATION):
        return "context"
    return "teardown" if finding.role is Role.TEARDOWN else "symptom"


def _affected(told: Told, root: RootCause | None) -> tuple[AffectedNode, ...]:
    first: dict[str, float | None] = {}
    for finding in told.findings:
        if finding.aside or finding.role is Role.CONTEXT:
            continue
        for placed in finding.placed:
            if placed.node and told.places.known(placed.node):
                known = first.get(placed.node)
                if placed.node not in first or (placed.at is not None and (known is None or placed.at < known)):
                    first[placed.node] = placed.at
    causes = set(root.nodes) if root is not None else set()
    suspects: set[str] = set()
    if root is None and told.outcome.outcome is not Outcome.SUCCEEDED:
        suspects = set(told.choice.nodes) if told.choice.ambiguous else set(told.missing.nodes)
    out = []
    for node in sorted({*first, *causes, *suspects}):
        role = "cause" if node in causes else "suspect" if node in suspects else "affected"
        out.append(AffectedNode(node=node, role=role, first_at=rfc3339(first.get(node))))
    rank = {"cause": 0, "suspect": 1, "affected": 2}
    return tuple(sorted(out, key=lambda a: (rank[a.role], a.first_at or "9", a.node)))


def _recommendation(told: Told, root: RootCause | None, affected: Sequence[AffectedNode]) -> Recommendation:
    if told.outcome.outcome is Outcome.SUCCEEDED:
        return Recommendation(action="none", text="Nothing to do.")
    if root is None:
        suspects = [a.node for a in affected if a.role == "suspect"]
        text = (
            f"Look at {', '.join(suspects)} before the next start."
            if suspects
            else "Fetch the missing evidence before anything is blamed."
        )
        return Recommendation(action="investigate", text=text)
    rule = told.choice.roots[0].rule
    if rule.recommend is not None:
        exclude = root.nodes if rule.recommend.action == "restart_excluding" else ()
        action = rule.recommend.action
        if action == "restart_excluding" and not root.nodes:
            action = "investigate"
        return Recommendation(
            action=action,
            exclude_nodes=exclude,
            text=rule.recommend.text,
            references=rule.recommend.references or rule.references,
        )
    return _default_advice(told, root, rule.references)


def _default_advice(told: Told, root: RootCause, references: tuple[str, ...]) -> Recommendation:
    domain, sub_domain = told.choice.domain, told.choice.sub_domain
    if root.nodes:
        text = f"Restart from the last checkpoint without {', '.join(root.nodes)}, and have it checked."
        return Recommendation(action="restart_excluding", exclude_nodes=root.nodes, text=text, references=references)
    if domain == "software":
        return Recommendation(
            action="stop", text="A restart will meet the same fault. Mend it first.", references=references
        )
    if domain == "scheduler" and sub_domain in ("preemption", "eviction"):
        return Recommendation(
            action="restart", text="Nothing failed. Requeue from the last checkpoint.", references=references
        )
    if domain == "scheduler" and sub_domain == "time_limit":
        return Recommendation(
            action="restart",
            text="Resume from the last checkpoint, with a longer limit if it has to fit.",
            references=references,
        )
    if domain == "scheduler" and sub_domain == "cancelled":
        return Recommendation(action="none", text="Somebody ended it on purpose.", references=references)
    return Recommendation(
        action="investigate", text="Mend the cause, then restart from the last checkpoint.", references=references
    )


def _fingerprint(told: Told, root: RootCause | None) -> Fingerprint:
    choice = told.choice
    parts = {"outcome": told.outcome.outcome.value, "domain": choice.domain, "sub_domain": choice.sub_domain}
    if root is not None:
        parts["rule"] = root.rule
        first = choice.roots[0]
        if first.detail:
            parts["message"] = _shape(first.placed[0].hit.text, told.places)
            frames = [
                f
                for f in first.placed[0].hit.frames.splitlines()
                if "site-packages" not in f and "dist-packages" not in f
            ]
            if frames:
                parts["frame"] = re.sub(r":\d+", "", frames[-1].rsplit("/", 1)[-1])
    else:
        symptoms = sorted({f.rule.id for f in told.findings if f.aside is None and f.role is Role.SYMPTOM})
        parts["symptoms"] = " ".join(symptoms[:6])
    text = "\n".join(f"{key}={parts[key]}" for key in sorted(parts))
    return Fingerprint(key=hashlib.sha256(text.encode()).hexdigest()[:16], parts=parts, version=FINGERPRINT)


def _shape(text: str, places: Places) -> str:
    """A message without what differs from one attempt to the next: numbers, hosts, paths, quoted values."""
    text = text[:200]
    for node in places.attempt.nodes:
        text = text.replace(node, "<node>")
    text = re.sub(r"0x[0-9a-fA-F]+", "<hex>", text)
    text = re.sub(r"/[\w./-]+", "<path>", text)
    text = re.sub(r"'[^']*'|\"[^\"]*\"", "<value>", text)
    return re.sub(r"\d+", "<n>", text)


def coverage(
    scans: Sequence[StreamScan],
    measured: Measured,
    dumps: Dumps,
    facts: Sequence[Fact],
    clocks: dict[str, StreamClock],
    reports: Sequence[SourceReport],
    attempt: Attempt,
    places: Places,
) -> tuple[SourceReport, ...]:
    """What each kind of source gave, and in words what is missing."""
    out = []
    for source, absent in _SOURCES:
        own = [s for s in scans if s.stream.source is source and s.stream.name != "attempt.yaml"]
        if source is Source.METRIC:
            times = [t for s in measured.series for t in (s.times[0], s.times[-1])]
            out.append(
                _report(source, measured.streams, measured.samples, 0, times, absent, "; ".join(measured.errors[:3]))
            )
        elif source is Source.FLIGHT_RECORDER:
            entries = sum(len(d.entries) for d in dumps.dumps.values())
            out.append(_report(source, dumps.streams, entries, 0, [], absent, "; ".join(dumps.errors[:3])))
        else:
            times = [
                at
                for s in own
                for stamp in (s.first, s.last)
                if (at := clocks[s.stream.name].resolve(stamp).at) is not None
            ]
            note = _nodes_without(own, attempt, places) if source is Source.SYSLOG and own else ""
            out.append(
                _report(source, len(own), sum(s.lines for s in own), sum(s.bytes for s in own), times, absent, note)
            )
    return (*out, *sorted(reports, key=lambda r: (r.source, r.note)))


def _nodes_without(scans: Sequence[StreamScan], attempt: Attempt, places: Places) -> str:
    seen = {places.stream_node(s.stream) for s in scans} | {places.known(h.cleaned.host) for s in scans for h in s.hits}
    missing = [node for node in attempt.nodes if node not in seen]
    return f"No system log of {', '.join(missing[:6])}." if missing else ""


def _report(
    source: Source, streams: int, lines: int, size: int, times: Sequence[float], absent: str, note: str
) -> SourceReport:
    status = "missing" if not streams else "empty" if not lines else "partial" if note else "ok"
    return SourceReport(
        source=source.value,
        status=status,
        streams=streams,
        lines=lines,
        bytes=size,
        first_at=rfc3339(min(times)) if times else None,
        last_at=rfc3339(max(times)) if times else None,
        note=absent if not streams else note,
    )
