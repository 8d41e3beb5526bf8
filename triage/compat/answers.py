"""A diagnosis in the words of the attribution service."""

from __future__ import annotations

from typing import Any

from engine.model import Outcome
from triage.models import Attempt
from triage.selectors.recommendations import Advice, advise

MODULE = "log_analyzer"
SOURCE = "faultline"
STOP, RESTART, CONTINUE, UNKNOWN, TIMEOUT = "STOP", "RESTART", "CONTINUE", "UNKNOWN", "TIMEOUT"
_RESUME = {
    STOP: "STOP - DONT RESTART IMMEDIATE",
    RESTART: "RESTART IMMEDIATE",
    CONTINUE: "NO ACTION",
    UNKNOWN: "UNKNOWN",
}


def action_of(advice: Advice, outcome: str) -> str:
    """STOP where a restart meets the same fault or somebody wanted the end, RESTART where it can help."""
    if advice.action in ("restart", "restart_excluding"):
        return RESTART
    if advice.action == "none":
        return CONTINUE if outcome == Outcome.SUCCEEDED else STOP
    if advice.action == "stop" or advice.retry_can_help is False:
        return STOP
    return UNKNOWN


def result_of(attempt: Attempt) -> dict[str, Any]:
    """The answer for an attempt that is diagnosed."""
    diagnosis = attempt.diagnosis
    assert diagnosis is not None
    contract, advice = diagnosis.contract, advise(attempt)
    action = action_of(advice, diagnosis.outcome)
    excluded = ", ".join(node.node for node in advice.exclude_nodes)
    explanation = advice.reason + (f" Leave out: {excluded}." if excluded else "")
    root = contract["root_cause"]
    primary = [root["title"]] if root else [entry["title"] for entry in contract["candidates"]]
    item = {
        "raw_text": "\n".join([attempt.title, *contract["reasoning"], f"Recommendation: {explanation}"]),
        "auto_resume": _RESUME[action],
        "auto_resume_explanation": explanation,
        "attribution_text": " ".join(filter(None, [attempt.title + ".", root["why"] if root else ""])),
        "checkpoint_saved_flag": int(_saved(contract)),
        "action": action,
        "primary_issues": primary or [attempt.title],
        "secondary_issues": list(dict.fromkeys(entry["title"] for entry in contract["symptoms"])),
    }
    return {
        "status": "completed",
        "result": {
            "module": MODULE,
            "state": "completed",
            "result_id": f"{SOURCE}-{attempt.pk}-{diagnosis.pk}",
            "result": [item],
        },
        "recommendation": {"action": action, "reason": explanation, "source": SOURCE},
        "candidate_recommendation": {"action": UNKNOWN, "source": ""},
    }


def in_words(attempt: Attempt) -> dict[str, Any]:
    """The answer for an attempt whose triage came to no end: complete, without advice."""
    return {
        "status": "completed",
        "result": {
            "module": MODULE,
            "state": "failed",
            "result_id": f"{SOURCE}-{attempt.pk}",
            "result": [],
            "error": attempt.triage_reason,
        },
        "recommendation": {"action": UNKNOWN, "reason": attempt.triage_reason, "source": SOURCE},
    }


def pending(state: str, *, in_flight: bool = False) -> dict[str, Any]:
    """No answer yet. `state` timeout: it was waited for as long as may be."""
    reason = "The diagnosis is not finished yet: ask again." if in_flight else ""
    return {
        "status": "in_flight" if in_flight else "pending",
        "result": {"module": MODULE, "state": state, "result_id": "", "result": []},
        "recommendation": {"action": TIMEOUT if state == "timeout" else UNKNOWN, "reason": reason, "source": SOURCE},
    }


def _saved(contract: dict[str, Any]) -> bool:
    """Whether the log shows that a checkpoint was written."""
    return any(item["rule"] == "progress.checkpoint-saved" for item in contract["evidence"]) or any(
        entry["kind"] == "progress" and "checkpoint saved" in entry["title"].lower() for entry in contract["timeline"]
    )
