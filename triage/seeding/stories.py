"""Diagnoses for the made-up fleet: the contract as the engine writes it, about rules that are in force."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Any

from engine import __version__
from engine.model import SCHEMA, UNATTRIBUTED, Role
from engine.rule import Rule
from engine.ruleset import Ruleset
from triage.seeding.world import Node, Try

DOMAINS = (
    ("software", 36),
    ("hardware", 20),
    ("scheduler", 17),
    ("network", 11),
    ("storage", 7),
    ("platform", 5),
    (UNATTRIBUTED, 4),
)
SYMPTOMS = (
    (
        "nccl.watchdog-timeout",
        "Collective timeout",
        "Watchdog caught collective operation timeout: WorkNCCL(SeqNum={n})",
    ),
    (
        "nccl.ib-completion-error",
        "InfiniBand completion, status 12",
        "NET/IB : Got completion from peer with status=12 opcode=0 len={n}",
    ),
    (
        "pytorch.elastic-failed",
        "The elastic agent stopped the workers",
        "torch.distributed.elastic: ChildFailedError, rank {n}",
    ),
)
COMMON = (
    "python.exception",
    "cuda.oom",
    "kernel.oom-kill",
    "xid.79",
    "xid.149",
    "xid.94",
    "xid.48",
    "xid.119",
    "sxid.20034",
    "slurm.time-limit",
    "slurm.preempted",
    "ib.link-down",
    "fs.lustre-evicted",
    "fs.nfs-not-responding",
    "k8s.evicted",
)
"""What is most often the reason, as far as the rules know these; the rest follows in an order by chance."""
SOURCES = ("applog", "syslog", "scheduler", "metric", "flight_recorder")
_HOLE = re.compile(r"\{(\w+)[^}]*\}")
_FILL = {"link": "10", "code": "79", "port": "1", "rank": "3", "error": "RuntimeError", "type": "RuntimeError"}


@dataclass(frozen=True)
class Cause:
    """A rule that may be a root, with a line that it matches."""

    rule: Rule
    line: str


class Storyteller:
    """Writes diagnoses. The same world and seed give the same."""

    def __init__(self, ruleset: Ruleset, random: Random) -> None:
        self.random = random
        self.ruleset = ruleset.fingerprint
        self.causes: dict[str, list[Cause]] = {}
        for matcher in ruleset.matchers:
            examples = {example.id or matcher.spec.id: example.line for example in matcher.spec.examples.match}
            for rule in matcher.rules():
                line = examples.get(rule.id)
                if rule.domain and rule.role in (Role.CAUSE, Role.EITHER) and line:
                    self.causes.setdefault(rule.domain, []).append(Cause(rule, line))
        for causes in self.causes.values():
            causes.sort(key=lambda cause: cause.rule.id)
            random.shuffle(causes)
            causes.sort(key=lambda cause: COMMON.index(cause.rule.id) if cause.rule.id in COMMON else len(COMMON))

    def tell(self, attempt: Try) -> dict[str, Any]:
        """The contract of one attempt."""
        if attempt.succeeded:
            return self._contract(attempt, "succeeded", UNATTRIBUTED, "none", "The attempt succeeded")
        weak = [node for node in attempt.nodes if node.weakness > 1]
        domain = self._domain(attempt, bool(weak))
        if domain == UNATTRIBUTED or domain not in self.causes:
            return self._unknown(attempt)
        causes = self.causes[domain]
        bad = weak[0] if weak else self.random.choice(attempt.nodes)
        if weak and domain == "hardware":  # a bad part fails in its own way
            cause = causes[sum(map(ord, bad.name)) % len(causes)]
        else:
            cause = causes[min(int(self.random.expovariate(0.15)), len(causes) - 1)]
        return self._blame(attempt, cause, bad)

    def _domain(self, attempt: Try, weak: bool) -> str:
        if attempt.outcome in ("preempted", "cancelled", "timed_out"):
            return "scheduler"
        if weak and self.random.random() < 0.2:
            return "hardware"
        return str(self.random.choices([name for name, _ in DOMAINS], [weight for _, weight in DOMAINS])[0])

    def _blame(self, attempt: Try, cause: Cause, node: Node) -> dict[str, Any]:
        rule, random = cause.rule, self.random
        device = random.choice(node.devices)
        title = _HOLE.sub(lambda hole: device if hole[1] == "device" else _FILL.get(hole[1], hole[1]), rule.title)
        on_node = rule.blames == "node"
        at = attempt.end - timedelta(seconds=random.randrange(20, 900))
        evidence = [self._evidence("e1", rule.id, "syslog" if on_node else "applog", node.name, at, cause.line, device)]
        symptoms, affected = self._symptoms(attempt, node, evidence, at)
        nodes = [node.name] if on_node else []
        contract = self._contract(
            attempt,
            attempt.outcome,
            str(rule.domain),
            str(rule.sub_domain),
            f"{title} on {node.name}" if on_node else title,
        )
        part = random.choice(("", "", "train", "data", "model", "optim")) if rule.domain == "software" else ""
        contract |= {
            "root_cause": {
                "rule": rule.id,
                "title": title,
                "nodes": nodes,
                "devices": [f"{node.name}/{device}"] if on_node else [],
                "ranks": [] if on_node else [random.randrange(8 * len(attempt.nodes))],
                "at": text_of(at),
                "evidence": ["e1"],
                "why": "It comes before everything else [e1], and explains it.",
            },
            "affected_nodes": [{"node": name, "role": "cause", "first_at": text_of(at)} for name in nodes] + affected,
            "symptoms": symptoms,
            "evidence": evidence,
            "timeline": self._timeline(attempt, node.name, title, at, symptoms),
            "reasoning": [f"{title} at {at:%H:%M:%S} [e1].", "Every other error is later, and this explains it."],
            "recommendation": {
                "action": "restart_excluding" if on_node else "stop",
                "exclude_nodes": nodes,
                "text": "",
                "references": [],
            },
            "fingerprint": _fingerprint(str(rule.domain), str(rule.sub_domain), rule.id, part),
        }
        return contract

    def _unknown(self, attempt: Try) -> dict[str, Any]:
        contract = self._contract(
            attempt,
            attempt.outcome,
            UNATTRIBUTED,
            "none",
            "No cause in the evidence: all ranks stopped in one collective",
        )
        evidence: list[dict[str, Any]] = []
        symptoms, affected = self._symptoms(attempt, attempt.nodes[0], evidence, attempt.end - timedelta(minutes=2))
        missing = self.random.sample(SOURCES[1:], self.random.choice((0, 1, 1, 1, 2)))
        reports = [
            {**one, "status": "missing", "streams": 0, "lines": 0} if one["source"] in missing else one
            for one in contract["coverage"]
        ]
        return contract | {
            "symptoms": symptoms,
            "affected_nodes": affected,
            "evidence": evidence,
            "coverage": reports,
            "reasoning": ["All ranks report the same, and nothing in the evidence came before."],
        }

    def _symptoms(
        self, attempt: Try, cause: Node, evidence: list[dict[str, Any]], at: datetime
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        others = [node for node in attempt.nodes if node is not cause][:8]
        symptoms, affected = [], []
        for rule, title, line in SYMPTOMS[: self.random.choice((1, 2, 3))] if others else ():
            node = self.random.choice(others)
            later = at + timedelta(seconds=self.random.randrange(1, 600))
            number = self.random.randrange(1, 90_000)
            ref = f"e{len(evidence) + 1}"
            evidence.append(self._evidence(ref, rule, "applog", node.name, later, line.format(n=number), None))
            symptoms.append(
                {
                    "rule": rule,
                    "title": title,
                    "nodes": [one.name for one in others],
                    "ranks": list(range(0, 8 * len(others), 3)),
                    "count": 1 + number % 60,
                    "first_at": text_of(later),
                    "last_at": text_of(attempt.end),
                    "explained_by": "root",
                    "evidence": [ref],
                }
            )
        for node in others:
            affected.append({"node": node.name, "role": "affected", "first_at": text_of(attempt.end)})
        return symptoms, affected

    def _evidence(
        self, ref: str, rule: str, source: str, node: str, at: datetime, text: str, device: str | None
    ) -> dict[str, Any]:
        line = self.random.randrange(40, 90_000)
        around = [
            f"{at:%b %d %H:%M:%S} {node} step {line + n} | loss 2.{n} | grad norm 1.{n}{line % 97}" for n in range(6)
        ]
        return {
            "id": ref,
            "rule": rule,
            "source": source,
            "stream": f"{source}/{node}.log",
            "line": line,
            "offset": line * 113,
            "at": text_of(at),
            "clock": "own",
            "node": node,
            "rank": None,
            "device": device,
            "text": text,
            "before": around[:3],
            "after": around[3:],
            "sha256": hashlib.sha256(f"{text}{line}".encode()).hexdigest(),
        }

    def _timeline(
        self, attempt: Try, node: str, title: str, at: datetime, symptoms: Sequence[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        entries = [
            {
                "at": text_of(attempt.start),
                "kind": "start",
                "node": None,
                "title": "The attempt starts",
                "evidence": [],
            },
            {"at": text_of(at), "kind": "cause", "node": node, "title": title, "evidence": ["e1"]},
        ]
        entries += [
            {
                "at": one["first_at"],
                "kind": "symptom",
                "node": one["nodes"][0],
                "title": one["title"],
                "evidence": one["evidence"],
            }
            for one in symptoms
        ]
        end = {"at": text_of(attempt.end), "kind": "end", "node": None, "title": "The attempt ends", "evidence": []}
        return [*sorted(entries, key=lambda entry: str(entry["at"])), end]

    def _contract(self, attempt: Try, outcome: str, domain: str, sub_domain: str, title: str) -> dict[str, Any]:
        job = attempt.job
        partial = not attempt.succeeded and self.random.random() < 0.25
        coverage = [
            {
                "source": source,
                "status": "partial" if partial and source == "metric" else "ok",
                "streams": len(attempt.nodes),
                "lines": 12_000,
                "bytes": 1_400_000,
                "first_at": text_of(attempt.start),
                "last_at": text_of(attempt.end),
                "note": "",
            }
            for source in SOURCES[:4]
        ]
        return {
            "schema": SCHEMA,
            "bundle": "",
            "attempt": {
                "workload": {
                    "id": job.id,
                    "name": job.name,
                    "scheduler": "slurm",
                    "cluster": "",
                    "user": job.user,
                    "queue": job.queue,
                },
                "number": attempt.number,
                "state": "COMPLETED" if attempt.succeeded else "FAILED",
                "exit_code": "0:0" if attempt.succeeded else "1:0",
                "reason": None,
                "started_at": text_of(attempt.start),
                "ended_at": text_of(attempt.end),
                "nodes": [node.name for node in attempt.nodes],
                "gpus_per_node": 8,
            },
            "outcome": outcome,
            "domain": domain,
            "sub_domain": sub_domain,
            "title": title,
            "root_cause": None,
            "candidates": [],
            "affected_nodes": [],
            "symptoms": [],
            "evidence": [],
            "timeline": [],
            "reasoning": [],
            "recommendation": {"action": "none", "exclude_nodes": [], "text": "", "references": []},
            "coverage": coverage,
            "fingerprint": _fingerprint(domain, sub_domain, "", outcome),
            "engine": {"version": __version__, "ruleset": self.ruleset},
        }


def _fingerprint(domain: str, sub_domain: str, rule: str, part: str) -> dict[str, Any]:
    parts = {"domain": domain, "sub_domain": sub_domain, "rule": rule}
    if part:
        parts["place"] = part
    key = hashlib.sha256(repr(sorted(parts.items())).encode()).hexdigest()[:32]
    return {"key": key, "parts": parts, "version": "1"}


def text_of(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
