"""The daemons' logs: cut to the attempt's time, its job and its nodes, in the cluster's zone."""

from __future__ import annotations

import gzip
import io
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast
from zoneinfo import ZoneInfo

import pytest

from connectors.slurm.daemonlog import Clock, Mine, NoTimes, cut, rotations
from connectors.slurm.parser import parse_time
from tests.connectors.slurm.conftest import RECORDED

CONTROLLER = RECORDED / "slurmctld.log"
ALWAYS = (0.0, 4e9)
UTC = Clock(0.0)


def lines(path: Path, mine: Mine, window: tuple[float, float] = ALWAYS, clock: Clock = UTC) -> list[str]:
    opened = partial(cast("type[BinaryIO]", open), path, "rb")
    return [line.decode() for line in cut(opened, path.name, *window, clock, mine.in_controller)]


def keep_all(line: bytes) -> bool:
    return True


def cut_text(text: str, window: tuple[float, float], clock: Clock = UTC) -> str:
    return b"".join(cut(lambda: io.BytesIO(text.encode()), "x.log", *window, clock, keep_all)).decode()


def test_of_the_controllers_lines_only_those_of_the_job_and_its_nodes_are_kept() -> None:
    found = lines(CONTROLLER, Mine(1003, None, {1003}, {"n3", "n4"}))
    assert any("on failed node n4" in line for line in found)
    assert any("node n4 reason set to" in line for line in found)
    others = [line for line in found if "JobId=" in line and "JobId=1003" not in line]
    assert others == []


def test_array_tasks_and_components_are_told_apart() -> None:
    array = Mine(1008, "2", {1008}, {"n2"})
    assert array.in_controller(b"[..] _job_complete: JobId=1008_2(1008) WEXITSTATUS 2")
    assert not array.in_controller(b"[..] _job_complete: JobId=1008_1(1013) WEXITSTATUS 1")
    assert array.in_controller(b"[..] requeue JobId=1008_* due to")
    assert array.on_node(b"[..] [1008.batch] done with job") and not array.on_node(b"[..] [1013.batch] done with job")
    het = Mine(1009, None, {1009, 1010}, {"n1", "n2"})
    assert het.in_controller(b"[..] _job_complete: JobId=1009+1(1010) done")
    assert not het.in_controller(b"[..] _job_complete: JobId=1012+1(1013) done")


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        (b"error: Nodes gx-[07-12] not responding, setting DOWN", True),
        (b"error: Nodes gx-[01-02,11] not responding", False),
        (b"update_node: node gx-100 state set to DOWN", False),
        (b"update_node: node gx-10 state set to DOWN", True),
        (b"update_node: node agx-10 state set to DOWN", False),
        (b"Node gx-10.cluster.example now responding", True),
        (b"backfill: beginning", False),
        (b"sched: Allocate JobId=77 NodeList=gx-10 #CPUs=8", False),
        (b"slurmstepd: error: *** JOB 42 ON gx-10 CANCELLED AT x ***", True),
        (b"slurmstepd: error: *** STEP 421.0 ON gx-10 CANCELLED AT x ***", False),
        (b"launch task StepId=42.0 request from UID:20031", True),
    ],
)
def test_lines_name_nodes_and_jobs_in_many_ways(line: bytes, kept: bool) -> None:
    assert Mine(42, None, {42}, {"gx-10"}).in_controller(line) is kept


def test_a_nodes_log_is_kept_but_for_the_lines_about_other_jobs() -> None:
    mine = Mine(1006, None, {1006}, {"n2"})
    node = RECORDED / "slurmd-n2.log"
    found = [line for line in node.read_bytes().splitlines() if mine.on_node(line)]
    assert any(b"oom-kill event" in line for line in found) and any(b"slurmd version" in line for line in found)
    assert not any(b"1008" in line or b"[1007.batch]" in line for line in found)


def test_lines_get_the_zone_of_the_cluster() -> None:
    window = (parse_time("2026-11-30T09:43:00") or 0, parse_time("2026-11-30T09:44:00") or 0)
    text = (
        "[2026-11-30T18:42:59.999] before\n[2026-11-30T18:43:58.869] in\n  continued\n[2026-11-30T18:44:01.000] after\n"
    )
    assert cut_text(text, window, Clock(ZoneInfo("Asia/Tokyo"))) == "[2026-11-30T18:43:58.869+09:00] in\n  continued\n"
    assert cut_text(text, window, Clock(9 * 3600.0)).startswith("[2026-11-30T18:43:58.869+09:00] in")
    assert cut_text(text, window) == "", "taken for UTC"
    own = "[2026-11-30T18:43:58+09:00] in\n[2026-11-30T09:43:58.5Z] too\n"
    assert cut_text(own, window) == own
    assert cut_text("[2026-11-30T09:43:58.869] in\n", window, Clock(None)) == "[2026-11-30T09:43:58.869] in\n"


def test_a_change_of_summer_time_in_between_is_known() -> None:
    zurich = Clock(ZoneInfo("Europe/Zurich"))
    text = "[2026-10-25T01:30:00.000] summer\n[2026-10-25T03:30:00.000] winter\n"
    found = cut_text(text, (parse_time("2026-10-24T23:00:00") or 0, parse_time("2026-10-25T04:00:00") or 0), zurich)
    assert found == "[2026-10-25T01:30:00.000+02:00] summer\n[2026-10-25T03:30:00.000+01:00] winter\n"


class _Counted(io.BytesIO):
    total = 0

    def readline(self, size: int | None = -1, /) -> bytes:
        line = super().readline(size)
        self.total += len(line)
        return line


def test_a_large_log_is_not_read_from_its_beginning() -> None:
    base = parse_time("2026-11-30T00:00:00") or 0.0
    rows = [
        f"[2026-11-30T{s // 3600:02d}:{s // 60 % 60:02d}:{s % 60:02d}.000] line {s} {'x' * 80}\n" for s in range(80_000)
    ]
    content = _Counted("".join(rows).encode())
    found = list(cut(lambda: cast(BinaryIO, content), "slurmctld.log", base + 70_000, base + 70_010, UTC, keep_all))
    assert [line.split()[2] for line in found] == [str(second).encode() for second in range(70_000, 70_011)]
    assert content.total < 200_000


def test_a_log_without_times_says_so() -> None:
    with pytest.raises(NoTimes):
        cut_text("no time here\n" * 5, ALWAYS)
    assert cut_text("", ALWAYS) == ""


def test_older_parts_of_a_log_that_was_rotated_are_read_as_well(tmp_path: Path) -> None:
    import os

    log = tmp_path / "slurmctld.log"
    log.write_text("[2026-11-30T10:00:00.000] new\n")
    (tmp_path / "slurmctld.log.1").write_text("[2026-11-30T09:00:00.000] old\n")
    (tmp_path / "slurmctld.log-20261129.gz").write_bytes(gzip.compress(b"[2026-11-29T23:00:00.000] older\n"))
    (tmp_path / "slurmctld.log.2.gz").write_bytes(gzip.compress(b"[2026-11-01T00:00:00.000] ancient\n"))
    (tmp_path / "slurmctld.log.bak").write_text("[2026-11-30T09:00:00.000] copy\n")
    for name, at in ((".2.gz", 1000), ("-20261129.gz", 2000), (".1", 3000), ("", 4000)):
        os.utime(tmp_path / f"slurmctld.log{name}", (at, at))
    parts = rotations(log, since=1500)
    assert [part.name for part in parts] == ["slurmctld.log-20261129.gz", "slurmctld.log.1", "slurmctld.log"]
    text = b"".join(
        line
        for part in parts
        for line in cut(partial(io.FileIO, part), part.name, *ALWAYS, UTC, keep_all)  # type: ignore[arg-type]
    )
    assert [line.split()[1] for line in text.splitlines()] == [b"older", b"old", b"new"]
