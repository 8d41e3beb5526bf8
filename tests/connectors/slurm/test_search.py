"""Nothing is missed or told twice: over restarts, late records, clock changes and answers that are too large."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

from connectors.base import ConnectorError, FindProblem, Found, FoundAttempt
from connectors.slurm.connector import SlurmConnector
from tests.connectors.slurm.conftest import told
from tests.connectors.slurm.standin import Accounting

NOW = int(time.time())


@pytest.fixture
def accounting(tmp_path: Path) -> Accounting:
    return Accounting(tmp_path / "bin")


def connector(accounting: Accounting, **config: Any) -> SlurmConnector:
    return SlurmConnector.from_config(accounting.settings(**config))


def search(connector: SlurmConnector, cursor: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
    steps = list(connector.find(cursor))
    return [f"{workload}/{number}" for workload, number in told(steps)], steps[-1].cursor


def test_two_thousand_attempts_are_told_once_however_often_the_search_is_broken_off(accounting: Accounting) -> None:
    for job in range(1, 2001):
        accounting.add(str(job), NOW - 3000 + job)
    accounting.write()
    slurm, choose = connector(accounting), random.Random(7)
    cursor: dict[str, Any] = {}
    seen: dict[tuple[str, str], int] = {}
    ends: list[float] = []
    for _ in range(8):
        steps = slurm.find(cursor)
        taken: list[Found] = []
        most = choose.choice([1, 150, 400, 5000])
        for step in steps:
            taken.append(step)
            if isinstance(step.found, FoundAttempt):
                key = (step.found.ref, step.found.content_key)
                seen[key] = seen.get(key, 0) + 1
                ends.append(step.found.attempt.ended_at or 0)
            cursor = step.cursor
            if len(taken) >= most:
                break
    rest, cursor = search(slurm, cursor)
    for workload in rest:
        key = next((key for key in seen if key[0].split("@")[0] == workload.split("/")[0]), (workload, ""))
        seen[key] = seen.get(key, 0) + 1
    assert len(seen) == 2000
    # the cursor is written less often when it is long: what was told since is told again, with the same content key
    assert sum(count - 1 for count in seen.values()) < 8 * 25
    assert search(slurm, cursor)[0] == []


def test_a_record_that_reaches_accounting_late_is_found(accounting: Accounting) -> None:
    accounting.add("1", NOW - 600)
    accounting.write()
    slurm = connector(accounting, overlap_minutes=30)
    first, cursor = search(slurm, {})
    accounting.add("2", NOW - 1500)
    accounting.add("3", NOW - 600)
    accounting.write()
    second, cursor = search(slurm, cursor)
    assert (first, second) == (["1/1"], ["2/1", "3/1"])
    assert search(slurm, cursor)[0] == []


def test_while_nothing_ends_the_search_goes_on_from_where_it_was(accounting: Accounting) -> None:
    slurm = connector(accounting, since_hours=1)
    _, cursor = search(slurm, {})
    cursor = {**cursor, "position": NOW - 40 * 86400, "from": NOW - 40 * 86400}  # a search of 40 days ago
    accounting.add("1", NOW - 20 * 86400)
    accounting.write()
    assert search(slurm, cursor)[0] == ["1/1"]


def test_a_clock_that_was_wrong_makes_nothing_be_missed(
    accounting: Accounting, monkeypatch: pytest.MonkeyPatch
) -> None:
    accounting.add("1", NOW - 600)
    accounting.write()
    slurm = connector(accounting)
    real = time.time
    with monkeypatch.context() as patch:
        patch.setattr("connectors.slurm.search.time.time", lambda: real() + 30 * 86400)
        assert search(connector(accounting, since_hours=24 * 60), {})[0] == ["1/1"]
        _, cursor = search(slurm, {"position": NOW - 700, "from": NOW - 700, "told": {}})
    accounting.add("2", NOW - 300)
    accounting.write()
    found, cursor = search(slurm, cursor)
    assert found == ["2/1"]
    with monkeypatch.context() as patch:
        patch.setattr("connectors.slurm.search.time.time", lambda: real() - 30 * 86400)
        assert search(slurm, cursor)[0] == []
    assert search(slurm, cursor)[0] == []


def test_a_record_from_the_far_future_does_not_blind_the_search(accounting: Accounting) -> None:
    accounting.add("1", NOW + 80_000)
    accounting.add("2", NOW - 100)
    accounting.write()
    slurm = connector(accounting)
    first, cursor = search(slurm, {})
    accounting.add("3", NOW - 50)
    accounting.write()
    second, cursor = search(slurm, cursor)
    assert sorted(first) == ["1/1", "2/1"] and second == ["3/1"]
    assert search(slurm, cursor)[0] == []


def test_a_corrected_record_is_told_again_with_another_content_key(accounting: Accounting) -> None:
    row = accounting.add("1", NOW - 600)
    accounting.write()
    slurm = connector(accounting)
    steps = list(slurm.find({}))
    row["ExitCode"] = "9:0"
    accounting.write()
    again = list(slurm.find(steps[-1].cursor))
    keys = [step.found.content_key for step in (*steps, *again) if isinstance(step.found, FoundAttempt)]
    assert len(keys) == 2 and keys[0] != keys[1]


def test_a_window_that_gives_too_much_is_asked_for_in_parts(tmp_path: Path) -> None:
    accounting = Accounting(tmp_path / "bin", longest_window=4 * 3600)
    for hour in range(20):
        accounting.add(str(100 + hour), NOW - hour * 3600 - 60)
    accounting.write()
    found, _ = search(connector(accounting, call_seconds=0.7), {})
    assert found == [f"{100 + hour}/1" for hour in reversed(range(20))]
    windows = [call for call in accounting.calls() if "--starttime" in call]
    assert 5 < len(windows) < 40


def test_one_minute_that_gives_too_much_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    accounting = Accounting(tmp_path / "bin", longest_window=1)
    with pytest.raises(ConnectorError, match="restrict states, partitions or accounts") as failure:
        search(connector(accounting, call_seconds=0.2), SlurmConnector.cursor_since(NOW - 50))
    assert failure.value.temporary


def test_requeues_are_counted_by_records_from_before_the_window(accounting: Accounting) -> None:
    accounting.add("7", NOW - 90_000, State="NODE_FAIL", Submit=NOW - 90_300)
    accounting.add("7", NOW - 89_000, State="PREEMPTED", Submit=NOW - 89_990)
    accounting.add("7", NOW - 100, State="FAILED", Submit=NOW - 88_990)
    accounting.write()
    assert search(connector(accounting, since_hours=1), {})[0] == ["7/3"]


def test_a_heterogeneous_job_is_told_when_its_last_component_has_ended(accounting: Accounting) -> None:
    accounting.add("5+0", NOW - 100, JobIDRaw="5", NodeList="a1")
    late = accounting.add("5+1", None, JobIDRaw="6", NodeList="b1", State="RUNNING", Submit=NOW - 170)
    accounting.write()
    slurm = connector(accounting)
    found, cursor = search(slurm, {})
    late["End"], late["State"] = str(NOW - 90), "CANCELLED"
    accounting.write()
    again, _ = search(slurm, cursor)
    assert (found, again) == ([], ["5/1"])


def test_running_attempts_are_told_once_and_again_when_they_end(accounting: Accounting) -> None:
    row = accounting.add("9", None, State="RUNNING", ExitCode="0:0")
    accounting.write()
    slurm = connector(accounting, states=["RUNNING", "FAILED"])
    first, cursor = search(slurm, {})
    second, cursor = search(slurm, cursor)
    row["State"], row["End"] = "FAILED", str(NOW - 30)
    accounting.write()
    third, cursor = search(slurm, cursor)
    assert (first, second, third) == (["9/1"], [], ["9/1"])


def test_a_record_that_is_not_understood_is_told_once(accounting: Accounting) -> None:
    accounting.add("1", NOW - 600)
    accounting.write(raw=["what\x1fis\x1fthis"])
    slurm = connector(accounting)
    steps = list(slurm.find({}))
    problems = [step.found for step in steps if isinstance(step.found, FindProblem)]
    assert len(problems) == 1 and "what|is|this" in problems[0].message
    assert list(told(steps)) == [("1", 1)]
    assert not [step.found for step in slurm.find(steps[-1].cursor) if step.found]
