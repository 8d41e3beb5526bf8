"""Workloads become attempts: each admission is one, found once, with the nodes that it ran on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from connectors.base import ConnectorError, FindProblem, FoundAttempt
from connectors.kueue.connector import KueueConnector
from tests.connectors.kueue.cluster import NOW, admitted, condition, evicted, owner, pod, workload
from tests.fakes.kubernetes import FakeKubernetes, Fault

Connect = Callable[..., KueueConnector]


class Searcher:
    """Searches again and again from where the last search ended."""

    def __init__(self, connector: KueueConnector) -> None:
        self.connector, self.cursor = connector, {}  # type: ignore[var-annotated]
        self.problems: list[str] = []

    def __call__(self) -> list[FoundAttempt]:
        found = []
        for step in self.connector.find(self.cursor):
            self.cursor = step.cursor
            if isinstance(step.found, FoundAttempt):
                found.append(step.found)
            elif isinstance(step.found, FindProblem):
                self.problems.append(step.found.message)
        return found


def words(found: list[FoundAttempt]) -> list[tuple[str, int, str]]:
    return [(one.attempt.workload.name, one.attempt.number, one.attempt.state) for one in found]


def finished(when: float = NOW + 700, reason: str = "Failed", message: str = "1 Worker replica(s) failed") -> Any:
    return condition("Finished", True, reason, when, message)


def test_a_failed_job_is_found_with_nodes_gpus_exit_code_and_the_owners_reason(
    cluster: FakeKubernetes, connect: Connect
) -> None:
    cluster.put(workload("t5-xl", *admitted(), finished()))
    failed = owner("t5-xl")
    failed["status"]["conditions"] = [condition("Failed", True, "PyTorchJobFailed", NOW + 700)]
    cluster.put(failed)
    cluster.put(pod("t5-xl", 1, "gpu-b", exit_code=143))
    cluster.put(pod("t5-xl", 0, "gpu-a", exit_code=1))
    (found,) = Searcher(connect())()
    attempt = found.attempt
    assert attempt.workload.id == "research/pytorchjob-t5-xl-1f0c2"
    assert (attempt.workload.name, attempt.workload.queue, attempt.workload.user) == ("t5-xl", "research-lq", "ada")
    assert (attempt.workload.scheduler, attempt.workload.cluster) == ("kueue", "k2")
    assert (attempt.state, attempt.reason, attempt.exit_code) == ("Failed", "PyTorchJobFailed", "1")
    assert (attempt.started_at, attempt.ended_at) == (NOW, NOW + 700)
    assert (attempt.nodes, attempt.gpus_per_node) == (("gpu-a", "gpu-b"), 8)


def test_each_end_is_told_once_over_many_searches(cluster: FakeKubernetes, connect: Connect) -> None:
    search = Searcher(connect())
    cluster.put(workload("one", *admitted(), finished()))
    cluster.put(workload("two", *admitted()))
    assert words(search()) == [("one", 1, "Failed"), ("two", 1, "Running")]
    assert search() == []
    cluster.put(workload("two", *admitted(), finished(reason="Succeeded")))
    assert words(search()) == [("two", 1, "Succeeded")]
    assert search() == []


def test_a_preempted_workload_that_is_admitted_again_is_a_second_attempt(
    cluster: FakeKubernetes, connect: Connect
) -> None:
    search = Searcher(connect())
    cluster.put(workload("t5", *admitted()))
    assert words(search()) == [("t5", 1, "Running")]
    cluster.put(workload("t5", *admitted(), condition("Evicted", True, "Preempted", NOW + 50)))
    assert search() == []  # its pods are still being ended
    cluster.put(workload("t5", *evicted(NOW + 50)))
    (first,) = search()
    assert (first.attempt.state, first.attempt.reason) == ("Evicted/Preempted", "InCohortReclamation")
    assert (first.attempt.number, first.attempt.started_at, first.attempt.ended_at) == (1, NOW, NOW + 80)
    cluster.put(workload("t5", *admitted(NOW + 900)))
    assert words(search()) == [("t5", 2, "Running")]
    cluster.put(workload("t5", *evicted(NOW + 1000)))
    assert words(search()) == [("t5", 2, "Evicted/Preempted")]
    cluster.put(workload("t5", *admitted(NOW + 2000), finished(NOW + 3000)))
    assert words(search()) == [("t5", 3, "Failed")]
    assert search() == []


def test_an_eviction_and_admission_between_two_searches_is_not_missed(
    cluster: FakeKubernetes, connect: Connect
) -> None:
    search = Searcher(connect())
    cluster.put(workload("t5", *admitted()))
    search()
    cluster.put(workload("t5", *evicted(NOW + 50)))
    cluster.put(workload("t5", *admitted(NOW + 900)))
    assert words(search()) == [("t5", 1, "Evicted/Preempted"), ("t5", 2, "Running")]


def test_what_conditions_still_tell_of_an_earlier_cycle_is_told_after_the_history_is_gone(
    cluster: FakeKubernetes, connect: Connect
) -> None:
    search = Searcher(connect())
    cluster.put(workload("t5", *admitted()))
    search()
    cluster.put(workload("t5", *evicted(NOW + 50)))
    again = [
        *admitted(NOW + 900),
        condition("Evicted", False, "QuotaReserved", NOW + 899, "Previously: Preempted to accommodate a workload"),
        condition("Preempted", False, "QuotaReserved", NOW + 899, "Previously: Preempted to accommodate a workload"),
    ]
    cluster.put(workload("t5", *again))
    cluster.compact()
    first, second = search()
    assert words([first, second]) == [("t5", 1, "Evicted/Preempted"), ("t5", 2, "Running")]
    assert (first.attempt.started_at, first.attempt.ended_at) == (NOW, NOW + 899)


def test_kueues_own_count_of_evictions_numbers_the_attempts(cluster: FakeKubernetes, connect: Connect) -> None:
    stats = {"evictions": [{"reason": "Preempted", "underlyingCause": "", "count": 2},
                           {"reason": "PodsReadyTimeout", "underlyingCause": "WaitForStart", "count": 1}]}  # fmt: skip
    cluster.put(workload("t5", *admitted(), finished(), schedulingStats=stats))
    assert words(Searcher(connect())()) == [("t5", 4, "Failed")]


@pytest.mark.parametrize(
    ("reason", "state"),
    [
        ("DeactivatedDueToMaximumExecutionTimeExceeded", "DeadlineExceeded"),
        ("PodsReadyTimeout", "Evicted/PodsReadyTimeout"),
        ("NodeFailures", "Failed/NodeFailures"),
        ("Deactivated", "Evicted/Deactivated"),
    ],
)
def test_kueues_reason_for_an_eviction_is_the_state(
    cluster: FakeKubernetes, connect: Connect, reason: str, state: str
) -> None:
    cluster.put(workload("t5", *evicted(NOW, reason)))
    assert words(Searcher(connect())()) == [("t5", 1, state)]


def test_a_workload_that_never_ran_is_no_attempt(cluster: FakeKubernetes, connect: Connect) -> None:
    waits = condition("QuotaReserved", False, "Pending", NOW, "couldn't assign flavors to pod set worker")
    cluster.put(workload("waits", waits))
    cluster.put(workload("refused", waits, condition("Finished", True, "Failed", NOW, "admission check rejected")))
    cluster.put(workload("out", waits, condition("Evicted", True, "AdmissionCheck", NOW)))
    assert Searcher(connect())() == []


def test_older_words_for_the_end_are_understood(cluster: FakeKubernetes, connect: Connect) -> None:
    cluster.put(workload("a", *admitted(), finished(reason="JobFinished", message="Job finished successfully")))
    cluster.put(workload("b", *admitted(), finished(reason="JobFinished", message="Job has reached the limit")))
    assert words(Searcher(connect())()) == [("a", 1, "Succeeded"), ("b", 1, "Failed")]


def test_a_job_that_is_deleted_while_it_runs_ends_then(cluster: FakeKubernetes, connect: Connect) -> None:
    search = Searcher(connect())
    running = workload("t5", *admitted())
    cluster.put(running)
    search()
    cluster.delete(running)
    (found,) = search()
    assert words([found]) == [("t5", 1, "Deleted")]
    assert found.attempt.ended_at is not None and found.attempt.started_at == NOW


def test_a_job_that_ends_and_is_deleted_between_two_searches_keeps_its_end(
    cluster: FakeKubernetes, connect: Connect
) -> None:
    search = Searcher(connect())
    cluster.put(workload("t5", *admitted()))
    cluster.put(pod("t5", 0, "gpu-a"))
    search()
    cluster.put(pod("t5", 0, "gpu-a", exit_code=1))
    cluster.delete(pod("t5", 0, "gpu-a"))
    cluster.put(workload("t5", *admitted(), finished()))
    cluster.delete(workload("t5"))
    found = search()
    assert set(words(found)) == {("t5", 1, "Failed")}
    assert (found[0].attempt.nodes, found[0].attempt.exit_code) == (("gpu-a",), "1")
    assert search() == []


def test_a_running_job_that_vanished_with_the_history_is_told_of(cluster: FakeKubernetes, connect: Connect) -> None:
    search = Searcher(connect())
    cluster.put(workload("t5", *admitted()))
    search()
    cluster.delete(workload("t5"))
    cluster.compact()
    (found,) = search()
    assert (found.attempt.state, found.attempt.workload.name, found.attempt.workload.user) == ("Deleted", "t5", "ada")


@pytest.mark.parametrize("as_status", [False, True])
def test_410_gone_on_a_watch_leads_to_a_new_list_that_tells_only_what_is_new(
    cluster: FakeKubernetes, connect: Connect, as_status: bool
) -> None:
    cluster.gone_as_status = as_status
    search = Searcher(connect())
    for number in range(5):
        cluster.put(workload(f"old-{number}", *admitted(), finished()))
    assert len(search()) == 5
    cluster.put(workload("new", *admitted(), finished()))
    cluster.compact()
    assert words(search()) == [("new", 1, "Failed")]


def test_a_list_of_many_pages_is_whole_though_its_token_runs_out(cluster: FakeKubernetes, connect: Connect) -> None:
    for number in range(57):
        cluster.put(workload(f"job-{number:02}", *admitted(), finished()))
    connector = connect(page=10)
    names: list[str] = []
    cursor: dict[str, Any] = {}
    for step in connector.find(cursor):
        if isinstance(step.found, FoundAttempt):
            names.append(step.found.attempt.workload.name)
        if len(names) == 25:
            cluster.compact()  # in the middle of the third page
        cursor = step.cursor
    assert sorted(set(names)) == [f"job-{number:02}" for number in range(57)]
    assert Searcher(connector)().__len__() == 57
    assert list(connector.find(cursor))[-1].found is None


def test_a_search_that_is_broken_off_tells_the_rest_the_next_time(cluster: FakeKubernetes, connect: Connect) -> None:
    connector = connect()
    search = Searcher(connector)
    search()
    for number in range(6):
        cluster.put(workload(f"job-{number}", *admitted(), finished()))
    told = []
    for step in connector.find(search.cursor):
        search.cursor = step.cursor
        told.append(step.found)
        if len(told) == 3:
            break  # the worker dies here
    rest = search()
    names = [one.attempt.workload.name for one in [*told, *rest] if one]  # type: ignore[union-attr]
    assert sorted(set(names)) == [f"job-{number}" for number in range(6)]
    assert len(rest) == 3


def test_bookmarks_move_the_cursor_on(cluster: FakeKubernetes, connect: Connect) -> None:
    search = Searcher(connect())
    search()
    before = int(search.cursor["scopes"][""]["workloads"])
    for number in range(20):  # of no concern to workloads
        cluster.put(pod("other", number, "gpu-x"))
    search()
    assert int(search.cursor["scopes"][""]["workloads"]) >= before + 20


def test_the_newest_served_version_is_asked(cluster: FakeKubernetes, connect: Connect) -> None:
    cluster.kueue = ("v1beta1", "v1beta2")
    cluster.put(workload("t5", *admitted(), finished(), version="v1beta2"))
    assert words(Searcher(connect())()) == [("t5", 1, "Failed")]
    assert not any("/v1beta1/" in path for path, _ in cluster.requests)


def test_only_configured_namespaces_and_queues_are_asked(cluster: FakeKubernetes, connect: Connect) -> None:
    cluster.put(workload("mine", *admitted(), finished()))
    cluster.put(workload("other-queue", *admitted(), finished(), queue="x"))
    cluster.put(workload("other-namespace", *admitted(), finished(), namespace="else"))
    search = Searcher(connect(namespaces=["research"], queues=["research-lq"]))
    assert words(search()) == [("mine", 1, "Failed")]
    assert all("/namespaces/research/" in path for path, _ in cluster.requests)


def test_a_search_from_a_time_on_leaves_out_what_ended_before(cluster: FakeKubernetes, connect: Connect) -> None:
    cluster.put(workload("old", *admitted(NOW - 9000), finished(NOW - 8000)))
    cluster.put(workload("new", *admitted(), finished()))
    connector = connect()
    steps = list(connector.find(connector.cursor_since(NOW - 5000)))
    found = [step.found for step in steps if isinstance(step.found, FoundAttempt)]
    assert words(found) == [("new", 1, "Failed")]


# --- what can go wrong ------------------------------------------------------------------------------------------------


def test_a_cluster_without_kueue_says_so(cluster: FakeKubernetes, connect: Connect) -> None:
    cluster.kueue = ()
    with pytest.raises(ConnectorError, match=r"does not serve kueue\.x-k8s\.io: install Kueue"):
        Searcher(connect())()


def test_pods_that_may_not_be_read_are_a_problem_and_attempts_are_found_all_the_same(
    cluster: FakeKubernetes, connect: Connect
) -> None:
    cluster.denied = {("list", "pods"), ("watch", "pods")}
    cluster.put(workload("t5", *admitted(), finished()))
    search = Searcher(connect())
    assert words(search()) == [("t5", 1, "Failed")]
    assert len(search.problems) == 1
    assert "does not allow to list pods in all namespaces" in search.problems[0]
    assert 'cannot list resource "pods"' in search.problems[0] and "docs/connectors/kueue.md" in search.problems[0]


def test_too_many_requests_are_waited_for_as_asked(cluster: FakeKubernetes, connect: Connect) -> None:
    cluster.put(workload("t5", *admitted(), finished()))
    busy = '{"kind":"Status","status":"Failure","reason":"TooManyRequests","message":"too many requests","code":429}'
    cluster.faults.extend([Fault(429, busy, {"Retry-After": "1"})] * 2)
    assert words(Searcher(connect())()) == [("t5", 1, "Failed")]


def test_an_answer_that_breaks_off_is_asked_for_again(cluster: FakeKubernetes, connect: Connect) -> None:
    cluster.put(workload("t5", *admitted(), finished()))
    cluster.faults.append(Fault(0, cut=True))
    assert words(Searcher(connect())()) == [("t5", 1, "Failed")]
