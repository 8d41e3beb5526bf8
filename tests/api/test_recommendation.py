"""The answer for recovery controllers: never a node without a line against it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from tests.api.conftest import new_attempt, work
from tests.api.test_observations import ask, put
from tests.triage import cast
from tests.triage.conftest import MakeAttempt
from triage.models import Attempt
from triage.selectors.attempts import get_attempt
from triage.selectors.recommendations import Advice, advise
from triage.services import verdicts

pytestmark = pytest.mark.django_db


def told(
    named: list[str], lines: list[dict[str, Any]], *, action: str = "restart_excluding"
) -> Callable[[Attempt], Advice]:
    """Advice on an attempt whose diagnosis names these nodes and has these lines."""

    def of(attempt: Attempt) -> Advice:
        attempt = get_attempt(attempt.pk)
        assert attempt.diagnosis is not None
        contract = attempt.diagnosis.contract
        common = {"stream": "applog/a.log", "line": 1, "at": None, "device": None, "node": None, "text": ""}
        contract["evidence"] = [{"id": f"e{n}", **common, **line} for n, line in enumerate(lines, 1)]
        contract["root_cause"] |= {"nodes": named, "evidence": [f"e{n + 1}" for n in range(len(lines))]}
        contract["recommendation"] = {"action": action, "exclude_nodes": named, "text": "Do so.", "references": []}
        return advise(attempt)

    return of


def test_from_evidence_to_a_node_to_leave_out(api: Client) -> None:
    attempt = new_attempt(api)
    address = f"/api/v1/attempts/{attempt}/recommendation"
    fast = api.get(address).json()
    assert (fast["status"], fast["action"], fast["retry_can_help"]) == ("pending", "unknown", None)
    put(api, attempt, "syslog/gx-02.log", cast.SYSLOG)
    put(api, attempt, "applog/train.log", cast.APPLOG)
    ask(api, attempt)
    work(attempt)
    answer = api.get(address).json()
    assert (answer["action"], answer["retry_can_help"], answer["source"]) == ("restart_excluding", True, "engine")
    (excluded,) = answer["exclude_nodes"]
    assert excluded["node"] == "gx-02"
    assert any("Xid" in line["text"] and line["stream"] == "syslog/gx-02.log" for line in excluded["evidence"])


def test_a_node_that_no_line_carries_is_withheld(diagnosed: MakeAttempt) -> None:
    lines = [{"node": "gx-02"}, {"text": "lost contact with gx-03"}, {"text": "gx-044 is fine"}]
    advice = told(["gx-02", "gx-03", "gx-04"], lines)(diagnosed())
    assert [node.node for node in advice.exclude_nodes] == ["gx-02", "gx-03"]
    assert [node["node"] for node in advice.withheld_nodes] == ["gx-04"]
    assert advice.action == "restart_excluding"


def test_without_any_line_nothing_is_excluded(diagnosed: MakeAttempt) -> None:
    advice = told(["gx-02"], [{"text": "it began elsewhere"}])(diagnosed())
    assert (advice.action, advice.retry_can_help, advice.exclude_nodes) == ("investigate", None, ())


@pytest.mark.parametrize(
    ("action", "helps"), [("restart", True), ("stop", False), ("investigate", False), ("none", None)]
)
def test_whether_a_retry_can_help(diagnosed: MakeAttempt, action: str, helps: bool | None) -> None:
    assert told([], [], action=action)(diagnosed()).retry_can_help is helps


def test_a_person_s_correction_stands_above_the_engine(ada: Any, diagnosed: MakeAttempt) -> None:
    attempt = diagnosed()
    assert attempt.diagnosis_id is not None
    answer = verdicts.Answer("software", "user_code", "A typo in the config")
    common: dict[str, Any] = {"diagnosis_id": attempt.diagnosis_id, "seen": None, "kind": "wrong_cause"}
    verdicts.correct(attempt.pk, ada, reason="Seen in the diff.", answer=answer, **common)
    advice = advise(get_attempt(attempt.pk))
    assert (advice.source, advice.action, advice.exclude_nodes) == ("person", "stop", ())
    assert "A typo" in advice.reason


def test_evidence_is_read_in_its_context(api: Client) -> None:
    attempt = new_attempt(api)
    put(api, attempt, "syslog/gx-02.log", cast.SYSLOG)
    ask(api, attempt)
    work(attempt)
    evidence = api.get(f"/api/v1/attempts/{attempt}/evidence").json()["evidence"]
    one = api.get(f"/api/v1/attempts/{attempt}/evidence/{evidence[0]['id']}?before=5&after=5").json()
    assert (one["kept"], one["roles"]) == (True, ["root"])
    assert [line["number"] for line in one["lines"]] == [1, 2]
    coverage = {row["source"]: row for row in api.get(f"/api/v1/attempts/{attempt}/coverage").json()["coverage"]}
    assert coverage["syslog"]["status"] == "partial"
    assert "gx-01" in coverage["syslog"]["note"]
