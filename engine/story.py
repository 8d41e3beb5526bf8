"""Tells the decision as the diagnosis contract: evidence, reasoning, rivals, symptoms, timeline, coverage, advice."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from engine import __version__
from engine.advice import recommend
from engine.causality import Ruled, blamed, may_explain
from engine.findings import AROUND, Finding, Placed
from engine.fingerprint import fingerprint
from engine.model import (
    AffectedNode,
    Attempt,
    Candidate,
    Diagnosis,
    EngineInfo,
    Outcome,
    Role,
    RootCause,
    Source,
    Symptom,
    TimelineEntry,
    rfc3339,
)
from engine.progress import Progress, Step
from engine.refute import is_end
from engine.shared import place_of
from engine.told import Told
from engine.trail import Trail, clock_time, refs

MOST_PER_FINDING = 6
MOST_ENTRIES = 300
UNREAD = 600.0
"""Seconds between two known iterations from which on it must be said that those between are not."""
_NUMBERED = re.compile(r"(S?Xid \d+): (.+)")
"""A title that begins with its number; people read what happened first."""


def tell(told: Told) -> Diagnosis:
    """The whole contract."""
    trail = Trail()
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
        recommendation=recommend(told, root, affected),
        coverage=told.coverage,
        fingerprint=fingerprint(told, root),
        engine=EngineInfo(version=__version__, ruleset=told.ruleset),
    )


def _attempt(attempt: Attempt) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(attempt)
    plain["started_at"], plain["ended_at"] = rfc3339(attempt.started_at), rfc3339(attempt.ended_at)
    return plain


def _decisive(finding: Finding, progress: Progress) -> list[Placed]:
    """The signals of the root that count: those near or after the last progress; all when progress is unknown.

    Of what slowed the job down, those from shortly before it became slower on.
    """
    if finding.rule.degrades:
        since = progress.slowdown.since - AROUND if progress.slowdown is not None else None
        return [p for p in finding.placed if since is None or p.at is None or p.at >= since] or finding.placed
    last = progress.last_at
    late = [p for p in finding.placed if last is None or p.at is None or p.at >= last - finding.rule.survives]
    return late or finding.placed


def _root(told: Told, trail: Trail) -> RootCause:
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
    where = _where_chosen(told)
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


def _where_chosen(told: Told) -> str:
    if told.choice.everywhere:
        return " on all nodes alike"
    if told.choice.shared:
        return f" on {len(told.choice.shared)} of {len(told.attempt.nodes)} nodes at once"
    return _where(told.choice.nodes)


def _at(finding: Finding) -> str:
    """Where a rival happened, whether its place is to blame or not."""
    place = place_of(finding)
    return _where(blamed(finding) or ((place,) if place else ()))


def _where(nodes: Sequence[str]) -> str:
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
        return f"{said}{_where_chosen(told)}{number}"
    if told.choice.ambiguous:
        names = " or ".join(dict.fromkeys(f"{f.title}{_at(f)}" for f in told.choice.roots[:3]))
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


def _reasoning(told: Told, trail: Trail, root: RootCause | None) -> list[str]:
    said: list[str] = []
    attempt, progress, choice = told.attempt, told.progress, told.choice
    ended = [f for f in told.findings if f.placed[0].hit.stream == "attempt.yaml"]
    mark = f" {refs(trail.some(ended[0], 1))}" if ended else ""
    code = f", exit code {attempt.exit_code}" if attempt.exit_code else ""
    if attempt.state or attempt.ended_at is not None or code:
        said.append(
            f"The scheduler ended the attempt as {attempt.state or 'unknown'}{code} "
            f"at {clock_time(attempt.ended_at)}{mark}."
        )
    else:
        said.append(f"No record tells how or when the attempt ended{mark}.")
    if progress.last is not None:
        said.append(_last_progress(told, progress.last, trail))
    if told.outcome.why:
        said.append(f"The outcome is {told.outcome.outcome.value}: {told.outcome.why}.")
    if progress.slowdown is not None:
        slow = progress.slowdown
        when = f"From {clock_time(slow.at)} {'on' if slow.until is None else f'to {clock_time(slow.until)}'}"
        if slow.at - slow.since > UNREAD:
            when = f"Between {clock_time(slow.since)} and {clock_time(slow.at)} it became slower:"
        said.append(
            f"{when} {slow.what} took {slow.after_s:.2f} s instead of {slow.before_s:.2f} s "
            f"{refs([trail.step(slow.step)])}."
        )
    if root is not None:
        said += _root_sentences(told, trail, root)
    elif choice.ambiguous:
        said += dict.fromkeys(
            f"{finding.title}{_at(finding)} at {clock_time(finding.first)} could be the cause "
            f"{refs(trail.some(finding))}."
            for finding in choice.roots
        )
        if choice.loose:
            said.append(f"The clock of {' and of '.join(choice.loose)} had no time source to go by, or was wrong.")
        said.append("Nothing in the evidence orders these or explains one by another, so none is named as the root.")
    elif told.outcome.outcome is Outcome.SUCCEEDED:
        said.append("It ended well, so nothing is blamed; what the logs report beside that had no consequence.")
    else:
        said += _unattributed(told, trail)
    return said


def _root_sentences(told: Told, trail: Trail, root: RootCause) -> list[str]:
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
        f"{first.title}{_where_chosen(told)} at "
        f"{root.at[11:19] if root.at else 'an unknown time'} {refs(root.evidence)}."
    )
    if told.choice.everywhere:
        said.append("It shows on every node of the job alike, so no single node is blamed.")
    if told.choice.shared:
        names = ", ".join(told.choice.shared[:8]) + (", ..." if len(told.choice.shared) > 8 else "")
        said.append(f"That {names} say so at once points to what they share, so none of them is blamed.")
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


def _last_progress(told: Told, last: Step, trail: Trail) -> str:
    """When the job last made progress; of a log without times only how long it stood still is known."""
    at, end, silent = told.progress.last_at, told.attempt.ended_at, told.outcome.silent_s
    mark = refs([trail.step(last)])
    stood = f"{silent / 60:.0f} min before the end"
    if silent > 120 and at is not None and end is not None and end - at > silent + 120:
        return f"The last line of progress has no time of its own; the job stood still from {stood} on {mark}."
    return f"The last progress was at {clock_time(at)}{f', {stood}' if silent > 120 else ''} {mark}."


def _unattributed(told: Told, trail: Trail) -> list[str]:
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
    elif told.missing.by == "use of the GPUs":
        ids = [e for f in symptoms if f.rule.id == "collective.idle" for e in trail.some(f, 4)]
        said.append(
            f"GPUs of {', '.join(told.missing.nodes)} do nothing after the last progress, while the others are busy "
            f"all the time, as in waiting for them; what stopped them is not in the evidence {refs(ids)}."
        )
    elif told.missing.by == "silence of the nodes":
        said.append(
            f"The others waited for somebody who never came, and {', '.join(told.missing.nodes)} wrote no line; why it "
            "never began is not in the evidence."
        )
    elif told.missing.by == "reports of stragglers":
        ids = [e for f in told.findings for p in f.placed if p.hit.captures.get("slow") for e in [trail.of(p)]][:4]
        said.append(
            f"The job's own reports name the ranks of {', '.join(told.missing.nodes)} as slower than the others since "
            f"it slowed down; what makes them slow is not in the evidence {refs(ids)}."
        )
    elif told.missing.nodes:
        ids = [e for f in symptoms for p in f.placed if p.peer in told.missing.nodes for e in [trail.of(p)]][:4]
        said.append(
            f"Several nodes lost their connections to {', '.join(told.missing.nodes)}, which complains of nobody; "
            f"what happened there is not in the evidence {refs(ids)}."
        )
    gaps = [report.note for report in told.coverage if report.status in ("missing", "empty", "partial") and report.note]
    if gaps:
        said.append("What would decide: " + " ".join(gaps[:3]))
    return said


def _candidates(told: Told, trail: Trail, root: RootCause | None) -> tuple[Candidate, ...]:
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


def _candidate(finding: Finding, trail: Trail, why_not: str | None, undecided: str | None) -> Candidate:
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


def _not_root(ruled: Ruled, told: Told, trail: Trail) -> str:
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


def _symptoms(told: Told, trail: Trail, root: RootCause | None) -> tuple[Symptom, ...]:
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


def _timeline(told: Told, trail: Trail) -> tuple[TimelineEntry, ...]:
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
        suspects |= {node for ruled in told.choice.ruled if ruled.doubtful for node in ruled.finding.nodes}
    out = []
    for node in sorted({*first, *causes, *suspects}):
        role = "cause" if node in causes else "suspect" if node in suspects else "affected"
        out.append(AffectedNode(node=node, role=role, first_at=rfc3339(first.get(node))))
    rank = {"cause": 0, "suspect": 1, "affected": 2}
    return tuple(sorted(out, key=lambda a: (rank[a.role], a.first_at or "9", a.node)))
