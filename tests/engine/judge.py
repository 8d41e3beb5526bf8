"""Holds diagnoses against labels, and prints how many were right: ``python -m tests.engine.judge [--markdown]``.

The worst answer is a false blame: a domain that is not the label's, or a node that has done nothing. An answer that
leaves open what the evidence decides is only missed.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from engine.bundle import open_bundle
from engine.diagnose import diagnose
from engine.model import Diagnosis
from tests.engine.evidence import Evidence, case, labels, ruleset
from tests.engine.variants import VARIANTS

FURTHER = Path(__file__).parent / "further"
RIGHT, FALSE_BLAME, MISSED = "right", "false blame", "missed"
Label = dict[str, Any]

_CARRIED_BY = {
    "aer": {"pcie", "kernel"},
    "edac": {"kernel", "memory"},
    "cublas": {"cuda"},
    "hip": {"cuda", "amd"},
    "composer": {"launcher"},
    "torchrun": {"torchrun", "pytorch"},
    "gloo": {"gloo", "pytorch"},
    "numerical": {"numerical", "python", "pytorch"},
    "throughput": {"metric", "throughput"},
    "ib": {"ib", "network", "roce", "mlx5"},
    "launcher": {"launcher", "deepspeed", "lightning", "accelerate", "mpi"},
    "lustre": {"fs"},
    "fs": {"fs", "storage", "lustre", "nfs"},
    "kernel": {"kernel", "host"},
    "hung_task": {"kernel"},
    "nfs": {"fs"},
    "ucx": {"mpi"},
    "kueue": {"k8s"},
    "srun": {"slurm"},
    "exit": {"k8s", "slurm"},
    "sigterm": {"pytorch", "slurm", "python", "k8s"},
}
"""Short name of a signal in a label -> families of rules that carry it, where they are not of the same name."""


@dataclass(frozen=True)
class Judgement:
    verdict: str
    complaints: tuple[str, ...]


def judge(label: Label, diagnosis: Diagnosis) -> Judgement:
    """The verdict on one diagnosis, and everything in it that the label sees otherwise."""
    accepted = [label, *(label.get("also_ok") or [])]
    right_domain = any(diagnosis.domain == one["domain"] for one in accepted)
    right_cause = any(
        diagnosis.domain == one["domain"] and one.get("sub_domain") in (None, "none", diagnosis.sub_domain)
        for one in accepted
    )
    guilty = set((label.get("root") or {}).get("nodes") or [])
    named = named_nodes(diagnosis)
    right_nodes = named in [guilty, *(set(nodes) for nodes in label.get("also_ok_nodes") or [])]
    complaints = []
    if not right_cause:
        said = f"{diagnosis.domain}/{diagnosis.sub_domain}"
        complaints.append(f"says {said}, not {label['domain']}/{label.get('sub_domain')}")
    if not right_nodes:
        complaints.append(f"names {sorted(named) or 'no node'}, not {sorted(guilty) or 'none'}")
    if diagnosis.outcome != label.get("outcome"):
        complaints.append(f"outcome {diagnosis.outcome}, not {label.get('outcome')}")
    if lost := lost_symptoms(label, diagnosis):
        complaints.append(f"symptoms not kept: {', '.join(lost)}")
    if right_cause and right_nodes:
        return Judgement(RIGHT, tuple(complaints))
    accuses = diagnosis.root_cause is not None and named - guilty
    wrongly = not right_domain and diagnosis.domain != "unattributed"
    return Judgement(FALSE_BLAME if accuses or wrongly else MISSED, tuple(complaints))


def named_nodes(diagnosis: Diagnosis) -> set[str]:
    """The nodes that a reader of the diagnosis would look at first: the root's, without a root the suspects."""
    if diagnosis.root_cause is not None:
        return set(diagnosis.root_cause.nodes)
    return {affected.node for affected in diagnosis.affected_nodes if affected.role == "suspect"}


def lost_symptoms(label: Label, diagnosis: Diagnosis) -> list[str]:
    """Signals that the label wants to see as symptoms and that the diagnosis does not show."""
    shown = {symptom.rule.split(".")[0] for symptom in diagnosis.symptoms}
    wanted = [(name, name.rstrip("0123456789")) for name in label.get("symptoms") or []]
    return [name for name, family in wanted if not shown & _CARRIED_BY.get(family, {family})]


@dataclass(frozen=True)
class Judged:
    name: str
    label: Label
    judgement: Judgement
    group: str = "case"
    """case, variant, further or family."""


def judge_all() -> Iterator[Judged]:
    """Every stored case, then every variant of one."""
    for name, label in labels().items():
        yield Judged(name, label, judge(label, case(name).diagnosed()))
    for variant in VARIANTS:
        yield Judged(variant.name, variant.label, judge(variant.label, variant.evidence().diagnosed()), "variant")


def judge_further() -> Iterator[Judged]:
    """Every attempt that was written without knowledge of the engine."""
    for name, label in yaml.safe_load((FURTHER / "labels.yaml").read_text()).items():
        with open_bundle(FURTHER / f"{name}.tar.zst") as bundle:
            found = judge(label, diagnose(bundle.attempt, bundle.streams, ruleset()))
        yield Judged(name, label, found, "further")


def judge_families() -> Iterator[Judged]:
    """An attempt of each family of rules, changed in seven ways."""
    from tests.engine.families import base, changes, chosen  # it judges by this module's own names

    for family in sorted(chosen()):
        for change in changes(family):
            if change.name not in base(family).exempt:
                found = change.evidence().diagnosed()
                said = change.complaints(found)
                wrong = FALSE_BLAME if found.root_cause is not None else MISSED
                verdict = Judgement(wrong if said else RIGHT, tuple(said))
                kind = "a source is missing" if change.name.startswith("without ") else change.name
                yield Judged(f"{family}: {change.name}", {"change": kind}, verdict, "family")


_HEX, _NUMBER, _SPACE = re.compile(r"0x[0-9a-fA-F]+|\b[0-9a-f]{8,}\b"), re.compile(r"\d+"), re.compile(r"\s+")


def line_templates(attempts: Iterable[Evidence]) -> set[str]:
    """Different lines of the attempts, numbers and hosts aside: how much the figures rest on."""
    found: set[str] = set()
    for attempt in attempts:
        hosts = sorted((re.escape(node) for node in attempt.nodes), key=len, reverse=True)
        host = re.compile("|".join(hosts) or r"(?!)")
        for name, content in attempt.files.items():
            if name.startswith(("applog/", "syslog/", "scheduler/")):
                lines = set(content.decode("utf-8", "replace").splitlines())
                found |= {_SPACE.sub(" ", _NUMBER.sub("N", _HEX.sub("H", host.sub("NODE", line)))) for line in lines}
    return found


def table(judged: Iterable[Judged], key: str) -> list[str]:
    """Lines of a Markdown table: verdicts by one key of the label."""
    counts: dict[str, Counter[str]] = {}
    for one in judged:
        counts.setdefault(str(one.label.get(key)), Counter())[one.judgement.verdict] += 1
    rows = [f"| {key} | attempts | right | false blame | missed |", "|---|---:|---:|---:|---:|"]
    for name, count in [*sorted(counts.items()), ("**all**", sum(counts.values(), Counter()))]:
        rows.append(f"| {name} | {count.total()} | {count[RIGHT]} | {count[FALSE_BLAME]} | {count[MISSED]} |")
    return rows


def report(judged: list[Judged]) -> str:
    """The whole account in Markdown."""
    cases, further, variants, families = (
        [one for one in judged if one.group == group] for group in ("case", "further", "variant", "family")
    )
    seen = yaml.safe_load((FURTHER / "first-sight.yaml").read_text())
    templates = len(line_templates(case(name) for name in labels()))
    out = [
        "# How often the verdict is right",
        "",
        "Written by `python -m tests.engine.judge --markdown`. An attempt counts as **right** when domain, sub-domain",
        "and the nodes that are named are those of the label, as **false blame** when another domain or an innocent",
        "node is named, and as **missed** when what the evidence decides was left open.",
        "",
        f"The labelled attempts hold {templates} different lines, numbers and host names aside.",
        "",
        *(["## Labelled attempts, by domain", "", *table(cases, "domain"), ""]),
        *(["## Labelled attempts, by difficulty", "", *table(cases, "difficulty"), ""]),
        "## Attempts written without knowledge of the engine, by domain",
        "",
        "Other clusters, layouts, wordings and faults. What they showed to be wrong was mended, so this is what holds",
        "now; how they were judged at first sight is below.",
        "",
        *table(further, "domain"),
        "",
        *("## The same at first sight, before anything was mended for them: of 100", ""),
        *("| set | right | false blame |", "|---|---:|---:|"),
        *(f"| {one['set']} | {one['right']} | {one.get('false_blame', 'not counted')} |" for one in seen),
        "",
        "## Attempts changed on purpose",
        "",
        "The same attempts with the cause removed, on another node, before the start or after the end, with a source",
        "missing or a clock that is wrong; by the domain that is right after the change.",
        "",
        *table(variants, "domain"),
        "",
        "## An attempt of each family of rules, changed in seven ways",
        "",
        "Of every family that can decide one attempt that it decides. After a change that takes the cause away nobody",
        "may be blamed for it; after one that doesn't, the verdict must stay.",
        "",
        *table(families, "change"),
    ]
    wrong = [one for one in judged if one.judgement.verdict != RIGHT]
    if wrong:
        out += ["", "## Not right", ""]
        out += [f"- {one.name}: {one.judgement.verdict}: {'; '.join(one.judgement.complaints)}" for one in wrong]
    return "\n".join(out) + "\n"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.engine.judge", description=__doc__)
    parser.add_argument("--markdown", action="store_true", help="print docs/accuracy.md instead of one line a case")
    args = parser.parse_args(arguments)
    judged = [*judge_all(), *judge_further(), *judge_families()]
    if args.markdown:
        print(report(judged), end="")
        return 0
    for one in judged:
        if one.judgement.complaints:
            print(f"{one.judgement.verdict:11} {one.name}: {'; '.join(one.judgement.complaints)}")
    tally = Counter(one.judgement.verdict for one in judged)
    print(f"{tally[RIGHT]} right, {tally[FALSE_BLAME]} false blame, {tally[MISSED]} missed of {len(judged)}")
    return 0 if tally[RIGHT] == len(judged) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
