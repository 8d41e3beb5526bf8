"""What ran on a node, and what it is blamed for, is kept a row each, and never says anything else than the attempts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from tests.triage import cast
from tests.triage.conftest import MakeAttempt
from triage.access.sight import Sight, seeing
from triage.models import Attempt, AttemptNode, Cluster
from triage.selectors.nodes import node_page
from triage.selectors.repeats import repeats
from triage.services.attempts import record_attempt
from triage.services.integrity import verify
from triage.services.verdicts import Answer, correct

pytestmark = pytest.mark.django_db


def on_nodes(attempt: Attempt) -> dict[str, tuple[bool, bool, bool]]:
    """Of each node: whether it ran there, failed, and blames it."""
    rows = AttemptNode.objects.filter(attempt=attempt).values_list("node", "ran", "failed", "blamed")
    return {node: (ran, failed, blamed) for node, ran, failed, blamed in rows}


def test_a_node_has_an_attempt_from_when_it_is_known_and_its_blame_from_the_diagnosis_on(
    diagnosed: MakeAttempt,
) -> None:
    known, _ = record_attempt(cast.facts("1", nodes=("gx-01", "gx-02", "gx-01")))
    assert on_nodes(known) == {"gx-01": (True, False, False), "gx-02": (True, False, False)}
    attempt = diagnosed("2", facts={"nodes": ("gx-01", "gx-02")}, nodes={"gx-02": "cause", "store-7": "suspect"})
    assert on_nodes(attempt) == {
        "gx-01": (True, True, False),
        "gx-02": (True, True, True),
        "store-7": (False, True, True),
    }, "a node may be to blame on which it never ran"


def test_what_a_person_says_counts_from_the_same_moment_on(diagnosed: MakeAttempt) -> None:
    attempt = diagnosed(nodes={"gx-02": "cause"})
    before = {node for node, (_, _, blamed) in on_nodes(attempt).items() if blamed}
    correct(
        attempt.pk,
        User.objects.create_user("ada"),
        diagnosis_id=attempt.diagnosis_id,
        seen=None,
        kind="wrong_cause",
        reason="the other end of the cable",
        answer=Answer(domain="hardware", sub_domain="gpu", title="Its cable", nodes=("gx-01",)),
    )
    after = {node for node, (_, _, blamed) in on_nodes(attempt).items() if blamed}
    assert (before, after) == ({"gx-02"}, {"gx-01"})


def test_what_is_taken_back_leaves_nothing(diagnosed: MakeAttempt) -> None:
    attempt = diagnosed()
    before = on_nodes(attempt)
    with pytest.raises(RuntimeError), transaction.atomic():
        Attempt.objects.filter(pk=attempt.pk).update(nodes=["elsewhere"])
        raise RuntimeError
    assert on_nodes(attempt) == before
    waiting, _ = record_attempt(cast.facts("2"))
    number = waiting.pk
    waiting.delete()
    assert not AttemptNode.objects.filter(attempt=number).exists()


def test_whatever_is_written_in_whatever_order_the_rows_say_what_the_attempts_say(diagnosed: MakeAttempt) -> None:
    random = Random(7)
    names = [f"gx-{number:02}" for number in range(6)]
    attempts = [diagnosed(str(number)) for number in range(8)]
    for _ in range(60):
        changes: list[dict[str, Any]] = [
            {"nodes": random.choices(names, k=random.randint(0, 4))},
            {"blamed_nodes": random.sample(names, random.randint(0, 2))},
            {"ended_at": random.choice([None, cast.END + timedelta(hours=random.randint(0, 50))])},
            {"started_at": random.choice([None, cast.START])},
            {"outcome": random.choice(["failed", "succeeded", ""])},
            {"queue": random.choice(["gpu", "cpu"])},
            {"triage_reason": "nothing that a node shows"},
        ]
        chosen = random.sample(changes, random.randint(1, 3))
        Attempt.objects.filter(pk__in=[one.pk for one in random.sample(attempts, 3)]).update(
            **{name: value for change in chosen for name, value in change.items()}
        )
    assert [text for text in verify().problems if "by node" in text] == []


def test_a_row_that_says_something_else_is_found(diagnosed: MakeAttempt) -> None:
    diagnosed()
    assert verify().problems == []
    AttemptNode.objects.filter(node="gx-02").update(blamed=False)
    (said,) = verify().problems
    assert said.endswith("where it ran, and what it blames, is not what is kept by node")
    AttemptNode.objects.all().delete()
    assert len(verify().problems) == 1
    assert len(verify(since=datetime.now(UTC) + timedelta(hours=1)).problems) == 0


def test_what_changes_nothing_that_a_node_shows_writes_nothing(diagnosed: MakeAttempt) -> None:
    attempt = diagnosed()
    before = set(AttemptNode.objects.values_list("pk", flat=True))
    Attempt.objects.filter(pk=attempt.pk).update(triage_reason="looked at again", triage_run=7)
    assert set(AttemptNode.objects.values_list("pk", flat=True)) == before


def test_a_node_shows_only_what_is_seen_of_it(diagnosed: MakeAttempt) -> None:
    diagnosed("1", facts={"queue": "ours"})
    diagnosed("2", facts={"queue": "theirs"})
    now = cast.END + timedelta(hours=1)
    whole = node_page("gx-02", now=now)
    cluster = Cluster.objects.get(name="c1")
    with seeing(Sight(everything=False, queues=frozenset({(cluster.pk, "ours")}))):
        part = node_page("gx-02", now=now)
    assert whole is not None and part is not None
    assert (whole.attempts, whole.blamed, part.attempts, part.blamed) == (2, 2, 1, 1)


def test_workloads_of_a_busy_node_are_those_of_its_newest_attempts_and_the_page_says_since_when(
    diagnosed: MakeAttempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        ended = cast.END + timedelta(minutes=number)
        diagnosed(str(number), facts={"name": f"job-{number}", "ended_at": ended.timestamp()})
    now = cast.END + timedelta(hours=1)
    page = node_page("gx-02", now=now)
    assert page is not None and page.workloads_since is None and len(page.workloads) == 4
    monkeypatch.setattr("triage.selectors.nodes.RECENT", 2)
    page = node_page("gx-02", now=now)
    assert page is not None and page.attempts == 4, "what is counted of the node itself is counted whole"
    assert {one.name for one in page.workloads} == {"job-2", "job-3"}
    assert page.workloads_since == cast.END + timedelta(minutes=2)


def test_a_node_is_said_to_come_again_by_how_often_it_was_to_blame(diagnosed: MakeAttempt) -> None:
    def at(days: float) -> dict[str, Any]:
        return {"ended_at": (cast.END + timedelta(days=days)).timestamp()}

    first = diagnosed("1", facts=at(0))
    second = diagnosed("2", facts=at(20))
    third = diagnosed("3", facts=at(21), nodes={"gx-02": "cause", "gx-01": "affected"})
    diagnosed("4", facts={**at(21), "cluster": "c2"})
    fine = diagnosed("5", facts=at(21), outcome="succeeded")
    found = repeats([first, second, third, fine])
    said = {pk: (one.node, one.times, one.days) for pk, one in found.items()}
    assert {pk: one for pk, one in said.items() if pk != fine.pk} == {
        second.pk: ("gx-02", 2, 30), third.pk: ("gx-02", 2, 7),
    }, "neither the other cluster's node of that name, nor an attempt that succeeded"  # fmt: skip


def test_a_page_of_a_node_asks_as_many_questions_of_many_attempts_as_of_one(diagnosed: MakeAttempt) -> None:
    def asked() -> int:
        with CaptureQueriesContext(connection) as queries:
            node_page("gx-02", now=cast.END + timedelta(hours=1))
        return len(queries)

    diagnosed("1")
    one = asked()
    for number in range(2, 22):
        diagnosed(str(number))
    assert asked() == one
