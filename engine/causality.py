"""Findings -> what explains what -> the root, or honestly none.

The order of the decisions, each of which leaves a sentence for the reader:

1. what cannot be a cause: outside the window, another job's, not on the job's nodes (decided in `findings`);
2. what progress refutes: the job went on working after it;
3. what something earlier explains: scope, lag and order in time fit;
4. external ends (preemption, time limit, cancellation) only when nothing failed before them;
5. of what is left the earliest; what cannot be ordered stands side by side: ambiguous.
"""

from __future__ import annotations

import re
from collections import defaultdict

import msgspec

from engine.findings import Finding, listed
from engine.model import AMBIGUOUS, NO_SUB_DOMAIN, UNATTRIBUTED, Attempt, Role, Source
from engine.refute import REACH, Known, against, is_end, is_strong, without_its_log
from engine.series import SLOWDOWN
from engine.shared import Clock, by_the_middle, place_of, said_alike

SAME_CLOCK = 2.0
"""Seconds by which two lines of one node may be out of order."""
TWO_CLOCKS = 15.0
"""Seconds by which two nodes' clocks may differ when nothing more is known."""
TIED = 10.0
"""Causes that began within so many seconds of each other on different nodes cannot be ordered; more
where the clock of one of the nodes has nothing to go by, or is wrong.
"""

SOON_SAID = 600.0
"""Seconds after its neighbours in which a launcher's line without a time may have been written."""

_CLASS = {"hardware": 3, "platform": 4, "network": 4, "storage": 4, "scheduler": 2, "software": 6}
_FABRIC = {("network", "infiniband"), ("network", "roce")}
_RESOURCE = {"gpu_oom", "host_oom", "capacity"}
_PORT = {"infiniband", "roce", "ethernet"}
_NODE_DEATH = ("kernel.panic", "kernel.fatal", "cpu.", "memory.", "power.", "bmc.", "kernel.mce", "kernel.oops")


class Ruled(msgspec.Struct):
    """A finding that could be a cause, and what was decided about it."""

    finding: Finding
    refuted: str | None = None
    explained_by: Finding | None = None
    later_than: Finding | None = None
    weak: str | None = None
    doubtful: bool = False
    """Its node's kernel log would decide, and is missing."""

    @property
    def open(self) -> bool:
        return self.refuted is None and self.explained_by is None and self.later_than is None and self.weak is None


class Choice(msgspec.Struct):
    """What was decided."""

    roots: list[Finding] = []
    """One cause, several of one kind, or rivals that nothing orders."""
    ambiguous: bool = False
    domain: str = UNATTRIBUTED
    sub_domain: str = NO_SUB_DOMAIN
    nodes: tuple[str, ...] = ()
    ruled: list[Ruled] = []
    external: Finding | None = None
    everywhere: bool = False
    """The fault shows on all nodes of the job alike, so no single node is blamed."""
    shared: tuple[str, ...] = ()
    """Nodes that lost the same thing at once, none of which is blamed: it lies in what they share."""
    loose: tuple[str, ...] = ()
    """Nodes of rivals whose clocks are not to be believed, which is why nothing orders them."""


def rank_class(finding: Finding) -> int:
    """Precedence class: 1 external end, 2 node death, 3 device, 4 platform, network, storage, 5 resource limit, 6 user
    code.
    """
    rule = finding.rule
    if is_end(finding):
        return 1
    if rule.id.startswith(_NODE_DEATH):
        return 2
    if rule.sub_domain in _RESOURCE:
        return 5
    return _CLASS.get(rule.domain or "", 7)


def choose(findings: list[Finding], known: Known, attempt: Attempt, *, ends: bool = True) -> Choice:
    """Decide on the root of an attempt that did not succeed. Without `ends`, ends from outside are not looked at."""
    alive = [f for f in findings if f.aside is None and (ends or not is_end(f))]
    _reach_back(alive)
    for finding in alive:
        if finding.rule.needs and not _has_needed(finding, alive, attempt):
            finding.role = Role.SYMPTOM
    possible = [f for f in alive if f.role in (Role.CAUSE, Role.EITHER)]
    ruled = [
        Ruled(f, refuted=against(f, known, alive), doubtful=without_its_log(f, known) is not None) for f in possible
    ]
    choice = Choice(ruled=ruled)
    raised = {id(r.finding) for r in ruled if r.refuted is None and _took_the_node(r.finding, possible)}
    for strong in (True, False):
        stage = [
            r for r in ruled if r.refuted is None and (is_strong(r.finding) or id(r.finding) in raised or not strong)
        ]
        _explain(stage)
        roots = _without_external([r for r in stage if r.open], choice)
        if roots:
            _order(roots, known.clocks)
            found = [r.finding for r in roots if r.open]
            found += _which_was_lost(found, [r.finding for r in ruled if r.refuted is None])
            found += _unordered(found, [r.finding for r in ruled if r.refuted is None], alive)
            _settle(choice, found, attempt, alive, known.heard)
            if choice.ambiguous:
                choice.loose = tuple(node for node in choice.nodes if node in known.clocks)
            break
    if choice.roots and is_strong(choice.roots[0]):
        for one in ruled:
            if one.open and one.finding not in choice.roots and not is_strong(one.finding):
                one.weak = "it is often the far side of something else, and a firmer cause stands"
    return choice


def _reach_back(alive: list[Finding]) -> None:
    """A fault began when its device first showed what the rule explains, not only when the device was given up."""
    of_device: dict[tuple[str | None, str], list[Finding]] = defaultdict(list)
    for one in alive:
        if one.device is not None:
            of_device[one.node, one.device].append(one)
    for fault, sign in ((fault, sign) for alike in of_device.values() for fault in alike for sign in alike):
        if fault.rule.family != sign.rule.family or not fault.rule.may_explain(sign.rule.id):
            continue
        if fault.first is None or fault.onset is None or sign.onset is None or sign.last is None:
            continue
        if is_strong(fault) and sign.onset < fault.onset and sign.last > fault.first - REACH:
            fault.elapsed = fault.first - sign.onset


def _took_the_node(finding: Finding, possible: list[Finding]) -> bool:
    """Does the finding say what a node was lost of? That a node was lost is only how it looks from outside."""
    if is_strong(finding) or finding.node is None:
        return False
    return any(
        other.rule.sub_domain == "node_failure"
        and other.node == finding.node
        and is_strong(other)
        and finding.rule.may_explain(other.rule.id)
        and may_explain(finding, other)
        for other in possible
    )


def _which_was_lost(roots: list[Finding], possible: list[Finding]) -> list[Finding]:
    """What tells which node was lost, where the scheduler's word is only that one was: all of it names the same."""
    if any(root.rule.sub_domain != "node_failure" or root.node is not None for root in roots):
        return []
    naming = [f for f in possible if f.rule.sub_domain == "node_failure" and f.node is not None]
    return naming if len({f.node for f in naming}) == 1 else []


def _unordered(roots: list[Finding], possible: list[Finding], alive: list[Finding]) -> list[Finding]:
    """Where nothing tells when the roots began: what is of another kind on other nodes, and as much a reason to end.
    Being firmer says what a fault is, not that it was first.
    """
    if any(root.onset is not None or not root.nodes for root in roots):
        return []
    nodes, domains = {node for root in roots for node in root.nodes}, {root.rule.domain for root in roots}
    others = [f for f in possible if f.nodes and not nodes.intersection(f.nodes) and f.rule.domain not in domains]
    if all(root.node is not None and _by_kernel(root) for root in roots):
        # One node's fault is not what another node's kernel says of itself.
        kernels = [f for f in others if f.node is not None and _by_kernel(f)]
        return [f for f in kernels if not any(_healed_by(other, f) for other in alive)]
    # What ends one node's process makes no file system fail on another node.
    files = [f for f in others if f.rule.domain == "storage" and f.onset is None and _ended_a_process(f)]
    return files if domains == {"software"} else []


def _ended_a_process(finding: Finding) -> bool:
    """Is it an exception that nobody is known to have caught?"""
    return not finding.bare and any(placed.hit.frames for placed in finding.placed)


def _by_kernel(finding: Finding) -> bool:
    return all(placed.hit.source is Source.SYSLOG for placed in finding.placed)


def _healed_by(other: Finding, finding: Finding) -> bool:
    """Does `other`, further down in the same log, say that the condition has ended?"""
    if other.node != finding.node or not listed(other.rule.id, finding.rule.cleared_by):
        return False
    end, last = other.placed[-1].hit, finding.placed[-1].hit
    return end.stream == last.stream and end.offset > last.offset


def never_began(choice: Choice) -> Choice | None:
    """A job that ran into its limit without having worked at all: what kept it from beginning, if that is known."""
    if not is_end(choice.roots[0]):
        return None
    kept = [
        r
        for r in choice.ruled
        if r.finding.placed[0].hit.source is Source.SCHEDULER
        and not is_end(r.finding)
        and r.refuted is None
        and r.finding.onset is not None
        and choice.roots[0].first is not None
    ]
    if not kept:
        return None
    first = min(kept, key=lambda r: (r.finding.onset, r.finding.key))
    for ruled in choice.ruled:
        if ruled is not first and ruled.open:
            ruled.later_than = first.finding
    first.weak = first.explained_by = first.later_than = None
    again = Choice(ruled=choice.ruled, external=choice.external)
    again.roots = [first.finding]
    again.domain, again.sub_domain = (
        first.finding.rule.domain or UNATTRIBUTED,
        first.finding.rule.sub_domain or NO_SUB_DOMAIN,
    )
    again.nodes = blamed(first.finding)
    return again


def _has_needed(finding: Finding, alive: list[Finding], attempt: Attempt) -> bool:
    """Is one of the signals that the rule needs at the same node, and device where both name one?

    A signal of a place that is no known node (a pod that nothing maps to one) may be there: then it must be at once.
    """
    for other in alive:
        if other is finding or not listed(other.rule.id, finding.rule.needs) or _of_another_address(finding, other):
            continue
        if other.rule.id == SLOWDOWN:
            return True  # the whole job's, whichever rank's log told of it
        if finding.rule.blames == "peer" or (finding.node is None and finding.rule.blames == "none"):
            return True  # it speaks of the whole job itself, or of another place than its own
        if other.node is not None and other.node not in attempt.nodes:
            if _at_once(finding, other):
                return True
            continue
        # Ranks of many nodes are one finding. What only follows may be said by all; what may be a cause itself must be
        # said there alone, or about the node.
        named = any(placed.peer == finding.node for placed in other.placed if placed.peer)
        only_there = other.node is None and other.nodes == (finding.node,)
        follows = other.node is None and other.role in (Role.SYMPTOM, Role.CONTEXT) and finding.node in other.nodes
        there = named or only_there or follows
        same_device = finding.device is None or other.device is None or finding.device == other.device
        if same_device and (other.node == finding.node or there):
            return True
    return False


def _of_another_address(finding: Finding, other: Finding) -> bool:
    """Was an address lost, and is it another one that the peers can't reach?"""
    lost = {p.hit.captures["own"] for p in finding.placed if "own" in p.hit.captures}
    sought = [p.hit.captures["peer"] for p in other.placed if p.peer == finding.node and p.peer is not None]
    return bool(lost and sought) and not any(
        address in re.findall(r"[\d.]+", peer) for peer in sought for address in lost
    )


def _at_once(one: Finding, other: Finding) -> bool:
    return one.first is not None and other.first is not None and abs(one.first - other.first) <= TIED


def _explain(stage: list[Ruled]) -> None:
    by_finding = {id(one.finding): one for one in stage}
    for effect in stage:
        if effect.explained_by is not None:
            continue
        causes = [c for c in stage if c is not effect and may_explain(c.finding, effect.finding)]
        causes = [
            c for c in causes if not _rather(effect.finding, c.finding) and not _leads_back(c, effect, by_finding)
        ]
        if causes:
            effect.explained_by = min((c.finding for c in causes), key=_precedence)


def _precedence(finding: Finding) -> tuple[int, float, tuple[str, str, str, str]]:
    """By class, then by time, then by name: never two alike."""
    return (rank_class(finding), finding.onset if finding.onset is not None else float("inf"), finding.key)


def _rather(one: Finding, other: Finding) -> bool:
    """Could `one` explain `other`, and better than the other way round? What a rule names goes before what it may."""
    if not may_explain(one, other):
        return False
    named, back = one.rule.may_explain(other.rule.id), other.rule.may_explain(one.rule.id)
    return named if named != back else _precedence(one) < _precedence(other)


def _leads_back(cause: Ruled, effect: Ruled, by_finding: dict[int, Ruled]) -> bool:
    """Is the cause itself explained by the effect, over however many steps?"""
    step: Ruled | None = cause
    while step is not None and step.explained_by is not None:
        if step.explained_by is effect.finding:
            return True
        step = by_finding.get(id(step.explained_by))
    return False


def may_explain(cause: Finding, effect: Finding) -> bool:
    """Could `cause` have brought about `effect`: by rule, by place, by time?"""
    if cause.role not in (Role.CAUSE, Role.EITHER) or (
        cause.rule.degrades != effect.rule.degrades and effect.role is Role.CAUSE
    ):
        return False
    return _by_rule(cause, effect) and _by_place(cause, effect) and _by_time(cause, effect)


def _by_rule(cause: Finding, effect: Finding) -> bool:
    if cause.rule.id == effect.rule.id:
        return False
    if cause.rule.domain == "hardware" and effect.rule.sub_domain in _RESOURCE and not _at_one_place(cause, effect):
        return False  # one node's hardware does not use up the memory, or the space, of another's
    if cause.rule.may_explain(effect.rule.id):
        # One node's hardware or port does not break another node's, whatever a rule says of its own machine.
        elsewhere = bool(cause.node and effect.node) and cause.node != effect.node
        broken = effect.role is Role.CAUSE and effect.rule.domain == "hardware"
        return not (elsewhere and (broken or (_of_a_port(cause) and _of_a_port(effect))))
    if effect.role in (Role.SYMPTOM, Role.TEARDOWN, Role.CONFIRMATION):
        return True
    if not is_strong(cause):
        return False
    if effect.role is Role.EITHER or effect.bare:
        return True
    same_node = bool(cause.node) and (cause.node == effect.node or effect.nodes == (cause.node,))
    return same_node and 1 < rank_class(cause) < rank_class(effect) and not _strangers(cause, effect)


def _of_a_port(finding: Finding) -> bool:
    return finding.rule.domain == "network" and finding.rule.sub_domain in _PORT and finding.rule.blames == "node"


def _at_one_place(one: Finding, other: Finding) -> bool:
    """May both be of one node, as far as is known?"""
    here, there = _place(one), _place(other)
    return not here or not there or here == there


def _place(finding: Finding) -> str | None:
    """The node at which it happened. Memory and space run out where it is said; other errors may be told elsewhere."""
    if (finding.rule.sub_domain in _RESOURCE or finding.rule.domain == "software") and len(finding.nodes) == 1:
        return finding.nodes[0]
    return place_of(finding)


def _by_place(cause: Finding, effect: Finding) -> bool:
    if cause.rule.scope in ("device", "node") and cause.node:
        if effect.nodes and cause.node not in effect.nodes:
            return False
        if cause.rule.scope == "device" and cause.device and effect.device and cause.device != effect.device:
            return False
    return True


def _by_time(cause: Finding, effect: Finding) -> bool:
    if cause.first is None or effect.first is None:
        return True
    same = cause.node is not None and (cause.node == effect.node or effect.nodes == (cause.node,))
    slack = SAME_CLOCK if same else TWO_CLOCKS
    if effect.rule.domain == "scheduler" and not _has_own_time(effect):
        slack = SOON_SAID
    begins = cause.onset if cause.onset is not None else cause.first
    latest = effect.last if effect.last is not None else effect.first
    if begins > latest + slack:
        return False
    if effect.role in (Role.CAUSE, Role.EITHER) and begins > effect.first + slack:
        return False
    last = cause.last if cause.last is not None else cause.first
    return effect.first - effect.elapsed - last <= cause.rule.within


def _without_external(roots: list[Ruled], choice: Choice) -> list[Ruled]:
    """An external end is the root only when nothing failed before it."""
    external = [r for r in roots if is_end(r.finding)]
    if not external:
        return roots
    external.sort(key=lambda r: (r.finding.first if r.finding.first is not None else float("inf"), r.finding.key))
    first = external[0].finding
    choice.external = first
    others = [r for r in roots if r not in external]
    earlier = [r for r in others if _earlier(r.finding, first)]
    if earlier:
        for one in external:
            one.later_than = earlier[0].finding
        return [r for r in others if r in earlier]
    for one in others:
        one.later_than = first
    for one in external[1:]:
        if one.finding.rule.sub_domain == first.rule.sub_domain:
            one.explained_by = first
    kinds = {one.finding.rule.sub_domain for one in external}
    if len(kinds) > 1:
        for one in external[1:]:
            one.later_than = one.later_than or (None if one.explained_by else first)
    return [r for r in external if r.open]


def _earlier(finding: Finding, external: Finding) -> bool:
    if finding.onset is None or external.first is None:
        return (
            finding.role is Role.CAUSE
            and not finding.bare
            and finding.onset is None
            and bool(finding.placed[0].hit.frames)
        )
    return finding.onset < external.first - 5.0


def _order(roots: list[Ruled], clocks: dict[str, Clock]) -> None:
    """The first cause that stopped the job is the root; what came clearly later met a job that was failing already."""
    timed = [r for r in roots if r.finding.onset is not None]
    if not timed:
        return
    first = min(timed, key=lambda r: (r.finding.onset, rank_class(r.finding), r.finding.key))
    at = _place(first.finding)
    together = [id(finding) for finding in said_alike(first.finding, [r.finding for r in timed])]
    for one in roots:
        if one is first or id(one.finding) in together:
            continue
        gap = _gap(first.finding, one.finding)
        where = _place(one.finding)
        reach = TIED
        if where and at and where != at:
            reach += _off(clocks, at, first.finding) + _off(clocks, where, one.finding)
        if gap is None or gap > reach or (where == at and gap > SAME_CLOCK):
            one.later_than = first.finding
    if any(r.open and _has_own_time(r.finding) for r in roots):
        for one in roots:
            if one.open and not (is_strong(one.finding) or _has_own_time(one.finding)):
                one.weak = "when it happened is only known by its neighbours, and a fault that tells its time stands"
    tied = [r for r in roots if r.open]
    if len(tied) > 1:
        best = min(rank_class(r.finding) for r in tied)
        better = [r.finding for r in tied if rank_class(r.finding) == best]
        for one in tied:
            if rank_class(one.finding) == best:
                continue
            where = _place(one.finding)
            one.later_than = next(
                (f for f in better if where is None or (_place(f) == where and not _strangers(f, one.finding))), None
            )


def _strangers(fault: Finding, error: Finding) -> bool:
    """A port that goes down stops a program, but changes nothing of what it reads and computes."""
    return (fault.rule.domain, fault.rule.sub_domain) in _FABRIC and error.rule.domain == "software"


def _off(clocks: dict[str, Clock], node: str, finding: Finding) -> float:
    """Seconds by which the node's own word on when it happened may be wrong."""
    clock, at = clocks.get(node), finding.first
    return clock.off(at) if clock is not None and at is not None else 0.0


def _has_own_time(finding: Finding) -> bool:
    return any(placed.at is not None and placed.hit.inherited is None for placed in finding.placed)


def _gap(first: Finding, other: Finding) -> float | None:
    """Seconds by which `other` certainly began later. A rule's `delay` only bounds how long before its line a fault
    may have begun: elsewhere, or of what it cannot bring about, a fault before that line is not later for certain.
    """
    if other.onset is None or first.first is None or first.onset is None:
        return None
    here, there = _place(first), _place(other)
    apart = here is not None and there is not None and (here != there or _strangers(first, other))
    too_early = all(p.at_least and p.at_most is not None for p in first.placed)
    return other.onset - (first.latest if apart or too_early else first.onset)


def _settle(
    choice: Choice, roots: list[Finding], attempt: Attempt, alive: list[Finding], heard: dict[str, float]
) -> None:
    roots.sort(key=lambda f: (f.onset if f.onset is not None else float("inf"), rank_class(f), f.key))
    choice.roots = roots
    pairs = sorted({(f.rule.domain or UNATTRIBUTED, f.rule.sub_domain or NO_SUB_DOMAIN) for f in roots})
    domains = {domain for domain, _ in pairs}
    if len(pairs) == 1:
        choice.domain, choice.sub_domain = pairs[0]
    else:
        choice.domain = pairs[0][0] if len(domains) == 1 else UNATTRIBUTED
        choice.sub_domain, choice.ambiguous = AMBIGUOUS, True
    # A container's name is no node's: what nothing maps to a node accuses none.
    nodes = sorted({node for f in roots for node in blamed(f) if not attempt.nodes or node in attempt.nodes})
    if choice.ambiguous:
        nodes = sorted({*nodes, *(node for f in roots if (node := place_of(f)))})
    alone = None if choice.ambiguous else _only_node(roots, attempt, alive, heard)
    borne_out = None if choice.ambiguous else _own_node(roots, alive)
    if borne_out is not None:
        nodes = [borne_out]
    elif alone is not None and roots[0].rule.on_one_node is not None:
        (choice.domain, choice.sub_domain), nodes = roots[0].rule.on_one_node, [alone]
    elif len(nodes) > 1 and not choice.ambiguous and set(nodes) >= set(attempt.nodes):
        choice.everywhere = True
        nodes = []
    elif not choice.ambiguous and any(said_alike(one, roots) for one in roots):
        choice.roots, choice.shared, nodes = by_the_middle(roots), tuple(nodes), []
    # A container's name is no node's: what nothing maps to a node accuses none.
    choice.nodes = tuple(node for node in nodes if not attempt.nodes or node in attempt.nodes)


def _only_node(roots: list[Finding], attempt: Attempt, alive: list[Finding], heard: dict[str, float]) -> str | None:
    """The one node of several whose ranks report the fault while other nodes' ranks came past it.

    What is said without a rank, as by a node's launcher, is said for the whole node. In matters of names two others
    must have come past: the node that a name stands for need not ask for it.
    """
    kind = (roots[0].rule.domain, roots[0].rule.sub_domain)
    alike = [f for f in alive if f.role in (Role.CAUSE, Role.EITHER) and (f.rule.domain, f.rule.sub_domain) == kind]
    nodes = {node for f in (*roots, *alike) for node in f.nodes}
    if len(nodes) != 1 or len(attempt.nodes) < 2:
        return None
    ranks = {placed.rank for f in roots for placed in f.placed}
    if None not in ranks and len(ranks) < max((attempt.gpus_per_node or 1) / 2, 1):
        return None
    first = min((f.first for f in roots if f.first is not None), default=None)
    past = {node for node, at in heard.items() if first is not None and at >= first}
    for finding in alive:
        for placed in finding.placed:
            # A borrowed time is the earliest possible one: what says that the job had failed came later.
            late = first is None or placed.at is None or placed.at >= first
            late = late or (placed.hit.inherited is not None and finding.role in (Role.SYMPTOM, Role.TEARDOWN))
            if placed.node and placed.hit.source is Source.APPLOG and late:
                past.add(placed.node)
    enough = 2 if kind == ("network", "dns") else min(2, (len(attempt.nodes) - 1) / 2)
    return next(iter(nodes)) if len(past - nodes) >= enough else None


def _own_node(roots: list[Finding], alive: list[Finding]) -> str | None:
    """The one node that reports what no node is blamed for by itself, where it is the node's own by what else tells
    so there, and nowhere else (`node_by`): a full disk that others don't write to.
    """
    reporting = {node for f in roots for node in f.nodes}
    if len(reporting) != 1 or not all(f.rule.node_by for f in roots):
        return None
    by = {node for f in alive if any(listed(f.rule.id, root.rule.node_by) for root in roots) for node in f.nodes}
    return next(iter(reporting)) if by == reporting else None


def blamed(finding: Finding) -> tuple[str, ...]:
    """Nodes that the finding alone would blame."""
    if finding.rule.blames == "none":
        return ()
    if finding.rule.blames == "peer":
        return tuple(sorted({p.peer for p in finding.placed if p.peer}))
    return (finding.node,) if finding.node else ()
