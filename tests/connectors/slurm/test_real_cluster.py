"""Against a real Slurm of four nodes: every end is found once, as it was, and diagnosed from what was collected."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from connectors.base import ConnectorError, FoundAttempt, Limits
from connectors.slurm.connector import SlurmConnector
from engine.ruleset import Ruleset
from tests.connectors.slurm.conftest import Slurm, gather, told
from tests.peers.slurm.cluster import program

ENDS = {
    "python": ("FAILED", "1:0", ("n1", "n2", "n3", "n4"), "failed", "software", "user_code"),
    "memory": ("FAILED", "1:0", ("n2",), "failed", "software", "host_oom"),
    "limit": ("TIMEOUT", "0:0", ("n1",), "timed_out", "scheduler", "time_limit"),
    "cancelled": ("CANCELLED by 65534", "0:0", ("n1",), "cancelled", "scheduler", "cancelled"),
    "node": ("NODE_FAIL", "0:0", ("n3", "n4"), "failed", "scheduler", "node_failure"),
    "completed": ("COMPLETED", "0:0", ("n2",), "succeeded", "unattributed", "none"),
}


@pytest.fixture(scope="session")
def found(slurm: Slurm) -> dict[tuple[str, int], FoundAttempt]:
    """What the first search told."""
    return told(list(slurm.connector().find({})))


def one(slurm: Slurm, found: dict[tuple[str, int], FoundAttempt], word: str, number: int = 1) -> FoundAttempt:
    return found[slurm.jobs.ids[word], number]


@pytest.mark.parametrize("word", sorted(ENDS))
def test_each_end_is_found_as_it_was(slurm: Slurm, found: dict[tuple[str, int], FoundAttempt], word: str) -> None:
    attempt = one(slurm, found, word).attempt
    state, code, nodes, *_ = ENDS[word]
    if word == "memory" and not slurm.cluster.cgroups:
        code = "9:0"  # Slurm's own sampling kills the whole job
    assert (attempt.state, attempt.exit_code, attempt.nodes) == (state, code, nodes)
    assert (attempt.workload.scheduler, attempt.workload.cluster, attempt.workload.user, attempt.workload.queue) == (
        "slurm", "alpine-prod", "nobody", "gpu",
    )  # fmt: skip
    assert attempt.started_at and attempt.ended_at
    # in UTC, although the cluster's clock shows the time of Tokyo
    assert slurm.jobs.began - 2 <= attempt.started_at <= attempt.ended_at <= slurm.jobs.ended + 2


@pytest.mark.parametrize("word", sorted(ENDS))
def test_what_is_collected_of_each_end_gives_the_right_diagnosis(
    slurm: Slurm, found: dict[tuple[str, int], FoundAttempt], rules: Ruleset, word: str
) -> None:
    gathered = gather(slurm.connector(), one(slurm, found, word), rules)
    diagnosis = gathered.diagnosis
    assert diagnosis is not None
    assert (diagnosis.outcome, diagnosis.domain, diagnosis.sub_domain) == ENDS[word][3:]
    assert gathered.reports["scheduler"].status == "ok", gathered.reports["scheduler"].note
    assert gathered.reports["applog"].status in ("ok", "empty"), gathered.reports["applog"].note
    assert {"scheduler/sacct.txt", "scheduler/scontrol-job.txt", "scheduler/slurmctld.log"} <= set(gathered.contents)
    assert sum(report.streams for report in gathered.reports.values()) == len(gathered.contents)


def test_each_tasks_own_log_is_read_with_its_rank(
    slurm: Slurm, found: dict[tuple[str, int], FoundAttempt], rules: Ruleset
) -> None:
    gathered = gather(slurm.connector(), one(slurm, found, "python"), rules)
    job = slurm.jobs.ids["python"]
    ranks = {name: stream.rank for name, stream in gathered.streams.items() if "/train-" in name}
    assert ranks == {f"applog/train-{job}-{rank}.log": rank for rank in range(4)}
    assert b"KeyError: 'layer.7.weight'" in gathered.contents[f"applog/train-{job}-2.log"]
    root = gathered.diagnosis and gathered.diagnosis.root_cause
    assert root and root.ranks == (2,)


def test_the_lost_node_is_blamed(slurm: Slurm, found: dict[tuple[str, int], FoundAttempt], rules: Ruleset) -> None:
    gathered = gather(slurm.connector(), one(slurm, found, "node"), rules)
    root = gathered.diagnosis and gathered.diagnosis.root_cause
    assert root and root.nodes == ("n4",)
    assert b"on failed node n4" in gathered.contents["scheduler/slurmctld.log"]


def test_a_requeued_job_is_two_attempts(slurm: Slurm, found: dict[tuple[str, int], FoundAttempt]) -> None:
    first, second = (one(slurm, found, "requeued", number).attempt for number in (1, 2))
    assert (first.state, second.state) == ("REQUEUED", "CANCELLED by 0")
    assert first.ended_at and second.started_at and first.ended_at <= second.started_at
    assert (slurm.jobs.ids["requeued"], 3) not in found


def test_a_requeued_attempt_gets_no_words_of_its_successor(
    slurm: Slurm, found: dict[tuple[str, int], FoundAttempt], rules: Ruleset
) -> None:
    gathered = gather(slurm.connector(), one(slurm, found, "requeued"), rules)
    assert gathered.diagnosis and gathered.diagnosis.outcome == "cancelled"
    sacct = gathered.contents["scheduler/sacct.txt"].decode()
    assert "REQUEUED" in sacct and "CANCELLED by 0" not in sacct
    assert "scheduler/scontrol-job.txt" not in gathered.contents
    assert "slurmctld tells of a later run of the job (CANCELLED" in gathered.reports["scheduler"].note
    last = gather(slurm.connector(), one(slurm, found, "requeued", 2))
    assert "scheduler/scontrol-job.txt" in last.contents


def test_array_tasks_are_attempts_of_their_own(slurm: Slurm, found: dict[tuple[str, int], FoundAttempt]) -> None:
    job = slurm.jobs.ids["array"]
    states = {task: found[f"{job}_{task}", 1].attempt for task in range(3)}
    assert [(a.state, a.exit_code) for a in states.values()] == [
        ("COMPLETED", "0:0"),
        ("FAILED", "1:0"),
        ("FAILED", "2:0"),
    ]
    gathered = gather(slurm.connector(), found[f"{job}_2", 1])
    details = gathered.contents["scheduler/scontrol-job.txt"].decode()
    assert details.count("JobName=") == 1 and "ArrayTaskId=2" in details
    assert f"applog/slurm-{job}_2.out" in gathered.contents
    assert f"{job}_1" not in gathered.contents["scheduler/sacct.txt"].decode()
    assert b"_1(" not in gathered.contents["scheduler/slurmctld.log"]


def test_a_heterogeneous_job_is_one_attempt_on_all_its_nodes(
    slurm: Slurm, found: dict[tuple[str, int], FoundAttempt]
) -> None:
    attempt = one(slurm, found, "het").attempt
    assert (attempt.state, attempt.exit_code, attempt.nodes) == ("FAILED", "3:0", ("n1", "n2"))
    sacct = gather(slurm.connector(), one(slurm, found, "het")).contents["scheduler/sacct.txt"].decode()
    assert f"{slurm.jobs.ids['het']}+0|" in sacct and f"{slurm.jobs.ids['het']}+1|" in sacct


def test_a_job_that_was_cancelled_before_it_began_has_no_nodes(
    slurm: Slurm, found: dict[tuple[str, int], FoundAttempt], rules: Ruleset
) -> None:
    held = one(slurm, found, "never")
    assert (held.attempt.state, held.attempt.nodes, held.attempt.started_at) == ("CANCELLED by 0", (), None)
    gathered = gather(slurm.connector(), held, rules)
    diagnosis = gathered.diagnosis
    assert diagnosis and (diagnosis.outcome, diagnosis.sub_domain) == ("cancelled", "cancelled")
    assert "never began" in gathered.reports["applog"].note


def test_the_next_search_tells_nothing_again_and_a_new_end_once(
    slurm: Slurm, found: dict[tuple[str, int], FoundAttempt]
) -> None:
    connector = slurm.connector()
    steps = list(connector.find({}))
    assert told(steps).keys() == found.keys()
    half = steps[len(steps) // 2].cursor
    rest = told(list(connector.find(half)))
    assert rest and rest.keys() < found.keys()
    assert told(list(connector.find(steps[-1].cursor))) == {}
    job = slurm.cluster.submit("#!/bin/bash\nsleep 2\nexit 4\n", "-n1", "-J", "new")
    slurm.cluster.wait_for(lambda: "FAILED" in slurm.cluster.state(job), "end")
    time.sleep(1)
    late = list(connector.find(steps[-1].cursor))
    assert [(key, one.attempt.exit_code) for key, one in told(late).items()] == [((job, 1), "4:0")]
    assert told(list(connector.find(late[-1].cursor))) == {}


def test_only_what_is_asked_for_is_found(slurm: Slurm, found: dict[tuple[str, int], FoundAttempt]) -> None:
    limited = told(list(slurm.connector(states=["timeout", "NODE_FAIL"]).find({})))
    assert limited.keys() == {(slurm.jobs.ids["limit"], 1), (slurm.jobs.ids["node"], 1)}
    assert told(list(slurm.connector(users=["daemon"]).find({}))) == {}
    assert told(list(slurm.connector(partitions="gpu", users=["nobody"]).find({}))).keys() >= found.keys()
    with pytest.raises(ConnectorError, match="whom that host does not know"):
        list(slurm.connector(users=["nosuchuser"]).find({}))


def test_back_fill_begins_where_it_is_told_to(slurm: Slurm) -> None:
    limit = slurm.jobs.ids["limit"]
    ended = told(list(slurm.connector().find({})))[limit, 1].attempt.ended_at
    assert ended is not None
    later = told(list(slurm.connector().find(SlurmConnector.cursor_since(ended))))
    assert (limit, 1) in later and (slurm.jobs.ids["completed"], 1) not in later


def test_a_file_outside_of_the_roots_is_not_read(slurm: Slurm, found: dict[tuple[str, int], FoundAttempt]) -> None:
    gathered = gather(slurm.connector(roots=[str(slurm.cluster.work / "logs")]), one(slurm, found, "memory"))
    assert not [name for name in gathered.contents if name.startswith("applog/")]
    report = gathered.reports["applog"]
    assert report.status == "missing" and "lies outside of the allowed folders" in report.note


def test_limits_give_partial_reports(slurm: Slurm, found: dict[tuple[str, int], FoundAttempt]) -> None:
    python = one(slurm, found, "python")
    few = gather(slurm.connector(), python, limits=Limits(streams=3))
    assert len(few.contents) == 3
    assert (
        few.reports["applog"].status in ("partial", "missing") and "more than 3 streams" in few.reports["applog"].note
    )
    small = gather(slurm.connector(), python, limits=Limits(bytes=1500))
    assert sum(map(len, small.contents.values())) <= 1500
    assert "1500 bytes" in small.reports["scheduler"].note + small.reports["applog"].note
    late = gather(slurm.connector(), python, limits=Limits(seconds=0.0))
    assert not late.contents
    assert late.reports["scheduler"].status == "error" and "time limit" in late.reports["scheduler"].note


def test_the_cluster_is_asked_through_a_command_prefix(
    slurm: Slurm, found: dict[tuple[str, int], FoundAttempt]
) -> None:
    away = slurm.connector(command_prefix=["nice", "-n", "5"])
    assert told(list(away.find({}))).keys() >= found.keys()
    # what ssh does: the words become one line for a shell on the other side
    ssh = slurm.cluster.folder / "bin" / "ssh"
    ssh.parent.mkdir(exist_ok=True)
    ssh.write_text('#!/bin/sh\nshift\nexec env -i PATH="$PATH" sh -c "$*"\n')
    ssh.chmod(0o755)
    far = slurm.connector(command_prefix=[str(ssh), "login1"])
    assert told(list(far.find({}))).keys() >= found.keys()
    assert far.check().status == "ok"
    gathered = gather(far, one(slurm, found, "memory"))
    assert gathered.reports["scheduler"].status == "ok", gathered.reports["scheduler"].note


def test_a_check_says_that_all_is_well_or_what_is_not(slurm: Slurm) -> None:
    report = slurm.connector().check()
    assert (report.status, report.note) == ("ok", "")
    lost = slurm.connector(roots=["/nowhere/at/all"]).check()
    assert lost.status == "partial" and "mount it" in lost.note
    astray = slurm.connector(environment={"SLURM_CONF": "/nowhere/slurm.conf"}).check(seconds=3)
    assert astray.status == "error" and "set environment.SLURM_CONF" in astray.note


def test_an_operator_without_root_sees_all_jobs_and_a_plain_user_none(
    slurm: Slurm, found: dict[tuple[str, int], FoundAttempt]
) -> None:
    """What docs/connectors/slurm.md asks for, on a cluster with PrivateData=jobs."""
    prefix = ["setpriv", "--reuid=daemon", "--regid=nogroup", "--clear-groups"]
    connector = slurm.connector(command_prefix=prefix)
    assert told(list(connector.find({}))) == {}
    report = connector.check()
    assert report.status == "empty" and "PrivateData hides them" in report.note
    slurm.cluster.run("sacctmgr", "-i", "add", "account", "faultline", "description=reads", "organization=ops")
    slurm.cluster.run("sacctmgr", "-i", "add", "user", "daemon", "account=faultline", "adminlevel=operator")
    slurm.cluster.wait_for(lambda: bool(told(list(connector.find({})))), "right to read", 20)
    assert told(list(connector.find({}))).keys() >= found.keys()
    gathered = gather(connector, one(slurm, found, "python"))
    assert gathered.reports["scheduler"].status == "ok", gathered.reports["scheduler"].note
    assert "scheduler/scontrol-job.txt" in gathered.contents


def test_slurmrestd_tells_the_same(slurm: Slurm, found: dict[tuple[str, int], FoundAttempt], rules: Ruleset) -> None:
    if program("slurmrestd") is None:
        pytest.skip("slurmrestd is not installed")
    folder = Path(slurm.cluster.folder) / "rest"
    folder.mkdir(exist_ok=True)
    shutil.chown(folder, "root")
    unsafe = "disable_user_check,disable_unshare_sysv,disable_unshare_files"
    place = folder / "rest.sock"
    slurm.cluster.serve(
        "slurmrestd", ["-a", "rest_auth/local", f"unix:{place}"], {"SLURMRESTD_SECURITY": unsafe}, user="root"
    )
    slurm.cluster.wait_for(place.exists, "slurmrestd")
    connector = slurm.connector(rest={"url": f"unix:{place}"}, timezone="Asia/Tokyo", check_owner=True)
    assert connector.check().status == "ok", connector.check().note
    rest = told(list(connector.find({})))
    ours = {key: value for key, value in rest.items() if key in found}
    assert ours.keys() == found.keys()
    for key, by_rest in ours.items():
        by_sacct = found[key].attempt
        for name in ("nodes", "started_at", "ended_at"):
            assert getattr(by_rest.attempt, name) == getattr(by_sacct, name), (key, name)
        assert by_rest.attempt.state.split()[0] == by_sacct.state.split()[0], key
        assert by_rest.attempt.exit_code in (by_sacct.exit_code, None), key
    # 22.05 says that a failed job's exit code was 0
    assert one(slurm, rest, "python").attempt.exit_code is None
    for word in ("memory", "limit", "node"):
        gathered = gather(connector, one(slurm, rest, word), rules)
        assert gathered.diagnosis
        assert (gathered.diagnosis.domain, gathered.diagnosis.sub_domain) == ENDS[word][4:], gathered.reports
    astray = slurm.connector(rest={"url": "unix:/nowhere/rest.sock"})
    assert "can not be reached" in astray.check().note


# the last ones: they take the cluster's servers away


def test_without_accounting_controller_and_logs_still_tell(
    slurm: Slurm, found: dict[tuple[str, int], FoundAttempt], rules: Ruleset
) -> None:
    slurm.cluster.stop_accounting()
    try:
        gathered = gather(slurm.connector(), one(slurm, found, "memory"), rules)
        assert gathered.diagnosis and gathered.diagnosis.sub_domain == "host_oom"
        report = gathered.reports["scheduler"]
        assert report.status == "partial" and "systemctl status slurmdbd" in report.note
        assert gathered.reports["applog"].status == "ok"
        with pytest.raises(ConnectorError, match="slurmdbd can not be reached") as failure:
            list(slurm.connector().find({}))
        assert failure.value.temporary
    finally:
        slurm.cluster.start_accounting()


def test_without_a_controller_nothing_waits_longer_than_its_limit(
    slurm: Slurm, found: dict[tuple[str, int], FoundAttempt], rules: Ruleset
) -> None:
    slurm.cluster.stop_controller()
    began = time.monotonic()
    gathered = gather(slurm.connector(call_seconds=3), one(slurm, found, "python"), rules)
    assert time.monotonic() - began < 8, "each of its questions waited, or one for too long"
    report = gathered.reports["scheduler"]
    assert report.status == "partial"
    assert "gave no answer within 3 s" in report.note or "slurmctld can not be reached" in report.note
    assert gathered.diagnosis and gathered.diagnosis.sub_domain == "user_code"
    checked = slurm.connector(call_seconds=3).check()
    assert checked.status == "error" and "slurmctld" in checked.note
