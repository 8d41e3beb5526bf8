"""What to do next: the rule's own advice, else what follows from the domain."""

from __future__ import annotations

from collections.abc import Sequence

from engine.model import AffectedNode, Outcome, Recommendation, RootCause
from engine.told import Told


def recommend(told: Told, root: RootCause | None, affected: Sequence[AffectedNode]) -> Recommendation:
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
    if told.choice.shared:
        nodes = ", ".join(told.choice.shared)
        text = f"Look at what these nodes share (switch, rail, server) before the next start: {nodes}."
        return Recommendation(action="investigate", text=text, references=rule.references)
    if rule.blames == "none" and len(root.nodes) == 1:
        text = f"Only {root.nodes[0]} says so: restart without it, and compare its set-up with another node's."
        return Recommendation(
            action="restart_excluding", exclude_nodes=root.nodes, text=text, references=rule.references
        )
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
