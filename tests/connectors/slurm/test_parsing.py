"""What a real Slurm 22.05 printed (recorded/), and what else it may print."""

from __future__ import annotations

import pytest

from connectors.slurm.history import executions, sacct_text
from connectors.slurm.parser import (
    DELIMITER,
    JobId,
    NotSacct,
    Row,
    compress_nodes,
    expand_nodes,
    parse_rows,
    parse_time,
    row_of_scontrol,
    scontrol_records,
)
from engine.facts import read_facts
from engine.model import Attempt, Workload
from engine.records import gpus_per_node
from tests.connectors.slurm.conftest import RECORDED

SACCT = (RECORDED / "sacct.txt").read_bytes()
IDS = dict(line.split() for line in (RECORDED / "ids.txt").read_text().splitlines())


def rows(content: bytes = SACCT) -> list[Row]:
    found = list(parse_rows(content.splitlines(keepends=True)))
    assert not [row for row in found if isinstance(row, str)]
    return [row for row in found if isinstance(row, Row)]


def attempts() -> dict[tuple[str, int], Attempt]:
    return {(one.workload, one.number): one.attempt() for one in executions(rows())}


def test_every_recorded_row_is_read() -> None:
    found = rows()
    assert len(found) == len(SACCT.splitlines()) - 1
    assert {row.cluster for row in found} == {"alpine"}
    assert {row.user for row in found if row.id.step is None} == {"mlin"}


def test_a_job_with_a_bar_in_its_name_is_read_whole() -> None:
    python = attempts()[IDS["python"], 1]
    assert (python.workload.name, python.state, python.exit_code) == ("py|train", "FAILED", "1:0")
    assert python.nodes == ("n1", "n2", "n3", "n4")
    assert python.started_at and python.ended_at and python.ended_at - python.started_at == 3


def test_the_recorded_requeue_is_two_attempts_and_the_het_job_one() -> None:
    found = attempts()
    assert [found[IDS["requeued"], number].state for number in (1, 2)] == ["REQUEUED", "CANCELLED by 0"]
    assert found[IDS["het"], 1].nodes == ("n1", "n2")
    assert [found[f"{IDS['array']}_{task}", 1].exit_code for task in range(3)] == ["0:0", "1:0", "2:0"]
    never = found[IDS["never"], 1]
    assert (never.started_at, never.nodes, never.reason) == (None, (), "JobHeldUser")


def test_what_is_kept_for_the_engine_is_read_by_it_with_states_of_steps() -> None:
    memory = next(one for one in executions(rows()) if one.workload == IDS["memory"])
    facts = read_facts("scheduler/sacct.txt", sacct_text(memory).encode(), Attempt(workload=Workload(id="1")))
    states = {fact.fields["JobID"]: fact.fields["State"] for fact in facts}
    job = IDS["memory"]
    assert states == {job: "FAILED", f"{job}.batch": "FAILED", f"{job}.0": "OUT_OF_MEMORY"}
    assert all(fact.stamp and fact.stamp.offset == 0 for fact in facts)
    python = next(one for one in executions(rows()) if one.workload == IDS["python"])
    facts = read_facts("scheduler/sacct.txt", sacct_text(python).encode(), Attempt(workload=Workload(id="1")))
    assert facts[0].fields["JobName"] == "py/train" and facts[0].fields["Cluster"] == "alpine"


def test_names_may_hold_line_breaks() -> None:
    broken = SACCT.replace(b"py|train", b"py\ntrain\n\nagain")
    names = {row.name for row in rows(broken)}
    assert "py\ntrain\n\nagain" in names and len(rows(broken)) == len(rows())


def test_a_greeting_before_the_table_is_passed_over() -> None:
    assert len(rows(b"Welcome to login1!\nToday: maintenance\n" + SACCT)) == len(rows())


def test_what_is_no_table_is_told_with_its_first_words() -> None:
    with pytest.raises(NotSacct, match="Permission to run sacct was denied"):
        list(parse_rows([b"Permission to run sacct was denied\n"]))


def test_a_record_that_is_cut_off_is_told_and_the_others_are_read() -> None:
    found = list(parse_rows(SACCT[:-40].splitlines(keepends=True)))
    assert [row for row in found if isinstance(row, str)] == [found[-1]]
    assert "cut off" in str(found[-1]) and len(found) == len(rows())


def test_a_record_with_a_strange_id_is_told_and_the_others_are_read() -> None:
    strange = SACCT.replace(f"{IDS['node']}{DELIMITER}".encode(), f"12x{DELIMITER}".encode(), 1)
    found = list(parse_rows(strange.splitlines(keepends=True)))
    assert len([row for row in found if isinstance(row, str) and "no job id" in row]) == 1
    assert len(found) == len(rows())


@pytest.mark.parametrize(
    ("text", "job", "workload", "asked"),
    [
        ("123", JobId(123), "123", "123"),
        ("123.batch", JobId(123, None, None, "batch"), "123", "123"),
        ("123_4.0", JobId(123, "4", None, "0"), "123_4", "123_4"),
        ("123_[5-9,12%2]", JobId(123, "[5-9,12%2]"), "123_[5-9,12%2]", "123"),
        ("123+1.extern", JobId(123, None, 1, "extern"), "123", "123"),
        ("4294967294.4294967291", JobId(4294967294, None, None, "4294967291"), "4294967294", "4294967294"),
    ],
)
def test_job_ids(text: str, job: JobId, workload: str, asked: str) -> None:
    found = JobId.parse(text)
    assert (found, found.workload, found.asked) == (job, workload, asked)


@pytest.mark.parametrize("text", ["", "abc", "12;rm", "12 13", "-1", "12_", "12_x", "--help"])
def test_what_is_no_job_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no job id"):
        JobId.parse(text)


def test_times_are_seconds_or_utc_or_unknown() -> None:
    assert (
        parse_time("1796031218")
        == parse_time("2026-11-30T09:33:38")
        == parse_time("2026-11-30T09:33:38Z")
        == 1796031218
    )
    assert parse_time("2026-11-30T18:33:38+09:00") == 1796031218
    assert [parse_time(text) for text in ("Unknown", "None", "N/A", "", "0", "soon")] == [None] * 6


def test_node_lists_compressed_or_not() -> None:
    assert expand_nodes("gx-[01-03,07],login") == ("gx-01", "gx-02", "gx-03", "gx-07", "login")
    assert expand_nodes("r[1-2]n[1-2]") == ("r1n1", "r1n2", "r2n1", "r2n2")
    assert expand_nodes("a,b,a") == ("a", "b")
    assert expand_nodes("None assigned") == expand_nodes("(null)") == expand_nodes("") == ()
    assert expand_nodes("gx-[1-") == ("gx-[1-",)
    assert len(expand_nodes("n[1-99999999]")) == 1, "not expanded beyond all measure"
    assert expand_nodes(compress_nodes(["n10", "n9", "x"])) == ("n9", "n10", "x")


def test_gpus_a_node() -> None:
    assert gpus_per_node("billing=8,cpu=8,gres/gpu=16,mem=1T,node=2", 2) == 8
    assert gpus_per_node("cpu=8,gres/gpu:a100=4,gres/gpu:h100=4", 1) == 8
    assert gpus_per_node("cpu=8,gres/gpu:h100=8,gres/gpu=8", 2) == 4
    assert gpus_per_node("cpu=8,node=2", 2) is None


def test_scontrols_records_with_paths_that_look_like_fields() -> None:
    text = (RECORDED / "job-python.txt").read_text().replace("/scratch/mlin/slurm-1005.out", "/scratch/a B=c/x y.out")
    [(_, fields)] = scontrol_records(text)
    assert fields["StdOut"] == "/scratch/a B=c/x y.out"
    assert (fields["JobState"], fields["Reason"], fields["ExitCode"]) == ("FAILED", "NonZeroExitCode", "1:0")
    row = row_of_scontrol(fields)
    assert row and (row.uid, row.user, row.nodes) == (20031, "mlin", ("n1", "n2", "n3", "n4"))
    array = [row_of_scontrol(fields) for _, fields in scontrol_records((RECORDED / "job-array.txt").read_text())]
    assert sorted(row.id.workload for row in array if row) == [f"{IDS['array']}_{task}" for task in range(3)]
    assert len(scontrol_records((RECORDED / "nodes.txt").read_text())) == 4


def _again(row: bytes, submit: int, *changes: tuple[bytes, bytes]) -> bytes:
    cells = row.split(DELIMITER.encode())
    for index, seconds in ((10, 0), (11, 5), (12, 65)):
        cells[index] = str(submit + seconds).encode()
    changed = DELIMITER.encode().join(cells)
    for old, new in changes:
        assert old in changed
        changed = changed.replace(old, new)
    return changed


def test_a_job_id_that_is_used_again_is_another_workload() -> None:
    header, *_ = SACCT.splitlines()
    job = next(line for line in SACCT.splitlines() if line.startswith(IDS["completed"].encode()))
    ended = int(job.split(DELIMITER.encode())[12])
    lines = [
        header, job, _again(job, ended + 20), _again(job, ended + 90_000), _again(job, ended + 90_300),
        _again(job, ended + 90_400, (b"mlin", b"okafor"), (b"20031", b"20044")),
    ]  # fmt: skip
    found = executions(rows(b"\n".join(lines)))
    first = IDS["completed"]
    assert [(one.workload.split("@")[0], one.number) for one in found] == [(first, n) for n in (1, 2, 1, 2, 1)]
    names = [one.workload for one in found]
    assert names[0] == names[1] == first and names[2] == names[3] and len(set(names)) == 3
    assert names[4].startswith(f"{first}@2026") and found[4].attempt().workload.user == "okafor"
    assert [one.followed for one in found] == [True, False, True, False, False]
    assert len({one.ref for one in found}) == 5
