"""Logs in folders are found by patterns, cut to the attempt's time, and never looked for outside of the roots."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import zstandard

from connectors.base import CollectionReport, CollectRequest, ConfigError, Limits
from connectors.files.connector import FilesConnector
from engine.diagnose import diagnose
from engine.model import Attempt, Source, Stream, Workload
from engine.ruleset import load_ruleset

START = datetime(2026, 11, 3, 2, 0, tzinfo=UTC).timestamp()
END = START + 3600
NODES = ("gx-01", "gx-02.alpine.example")
SYSLOG = {"source": "syslog", "path": "logs:{node}/syslog*"}
APPLOG = {"source": "applog", "path": "logs:jobs/{job_id}/*.log"}


def attempt(nodes: tuple[str, ...] = NODES, **workload: str) -> Attempt:
    facts = {"id": "4242", "name": "llama-7b", "user": "ada", "scheduler": "slurm", **workload}
    return Attempt(
        workload=Workload(**facts), state="FAILED", exit_code="1:0", started_at=START, ended_at=END, nodes=nodes
    )


class Found:
    """What one collection gave."""

    def __init__(self, root: Path, patterns: list[dict[str, Any]], of: Attempt, limits: Limits, **config: Any) -> None:
        connector = FilesConnector.from_config(
            {"roots": {"logs": str(root)}, "patterns": patterns, "timezone": "UTC", **config}
        )
        self.contents: dict[str, bytes] = {}
        self.streams: dict[str, Stream] = {}
        with connector.collect(CollectRequest(attempt=of, ref="", limits=limits)) as collected:
            for stream in collected.streams():
                with stream.open() as content:
                    self.contents[stream.name] = content.read()
                if stream.size >= 0:
                    assert len(self.contents[stream.name]) == stream.size
                self.streams[stream.name] = stream
            self.reports: dict[str, CollectionReport] = {report.source: report for report in collected.reports()}

    def report(self, source: str) -> tuple[str, str]:
        return self.reports[source].status, self.reports[source].note


Collect = Callable[..., Found]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    return tmp_path / "logs"


@pytest.fixture
def collect(root: Path) -> Collect:
    def run(*patterns: dict[str, Any], of: Attempt | None = None, limits: Limits | None = None, **config: Any) -> Found:
        return Found(root, list(patterns), of or attempt(), limits or Limits(), **config)

    return run


def write(root: Path, name: str, content: str | bytes, at: float = END) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    os.utime(path, (at, at))
    return path


def syslog(node: str, first: float, last: float, step: float = 1.0, zone: str = "UTC", text: str = "CRON job") -> str:
    """Lines as rsyslog writes them: without year and zone."""
    lines, at = [], first
    while at <= last:
        stamp = datetime.fromtimestamp(at, ZoneInfo(zone))
        lines.append(f"{stamp:%b} {stamp.day:2} {stamp:%H:%M:%S} {node} systemd[1]: {text} {int(at)}\n")
        at += step
    return "".join(lines)


def times(content: bytes) -> list[int]:
    return [int(line.rsplit(b" ", 1)[1]) for line in content.splitlines()]


# --- finding ----------------------------------------------------------------------------------------------------------


def test_files_of_the_job_and_of_its_nodes_are_found_and_no_others(root: Path, collect: Collect) -> None:
    write(root, "jobs/4242/train.log", "step 1\n")
    write(root, "jobs/4243/train.log", "another job\n")
    write(root, "jobs/4242/.hidden.log", "no\n")
    for node in ("gx-01", "gx-02", "gx-03", "gx-011"):
        write(root, f"{node}/syslog", syslog(node, START, START + 5))
    found = collect(APPLOG, SYSLOG)
    assert sorted(found.contents) == ["applog/jobs/4242/train.log", "syslog/gx-01/syslog", "syslog/gx-02/syslog"]
    nodes = {name: stream.node for name, stream in found.streams.items()}
    assert nodes["syslog/gx-01/syslog"] == "gx-01"
    assert nodes["syslog/gx-02/syslog"] == "gx-02.alpine.example"  # as the scheduler calls it
    assert found.report("applog") == ("ok", "") and found.report("syslog") == ("ok", "")
    assert found.reports["applog"].query == "logs:jobs/4242/*.log"


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("logs:{user}/{name}-{job_id}.out", ["ada/llama-7b-4242.out"]),
        (
            "logs:dumps/{job_id}/nccl_trace_rank_{rank}",
            ["dumps/4242/nccl_trace_rank_0", "dumps/4242/nccl_trace_rank_11"],
        ),
        ("logs:by-host/{node}-dmesg.log", ["by-host/gx-01-dmesg.log", "by-host/gx-02.alpine.example-dmesg.log"]),
        ("logs:mixed/*{node}*.txt", ["mixed/2026-gx-01.txt", "mixed/x.gx-02.y.txt"]),
        ("logs:deep/**/{node}.log", ["deep/a/b/gx-02.log", "deep/gx-01.log"]),
        ("logs:q/r?nk.log", ["q/rank.log"]),
        ("logs:twice/{node}/{node}.log", ["twice/gx-01/gx-01.log"]),
    ],
)
def test_placeholders_and_wildcards(root: Path, collect: Collect, path: str, names: list[str]) -> None:
    for name in (
        "ada/llama-7b-4242.out", "ada/llama-7b-4243.out", "dumps/4242/nccl_trace_rank_0",
        "dumps/4242/nccl_trace_rank_11", "dumps/4242/nccl_trace_rank_x", "by-host/gx-01-dmesg.log",
        "by-host/gx-02.alpine.example-dmesg.log", "by-host/gx-1-dmesg.log", "mixed/2026-gx-01.txt",
        "mixed/x.gx-02.y.txt", "mixed/gx-012.txt", "deep/gx-01.log", "deep/a/b/gx-02.log", "deep/a/.b/gx-02.log",
        "q/rank.log", "q/raank.log", "twice/gx-01/gx-01.log", "twice/gx-01/gx-02.log",
    ):  # fmt: skip
        write(root, name, "a line\n")
    found = collect({"source": "flight_recorder", "path": path})
    assert sorted(found.contents) == [f"flight_recorder/{name}" for name in names]


def test_a_rank_in_the_name_is_the_streams_rank(root: Path, collect: Collect) -> None:
    write(root, "dumps/4242/nccl_trace_rank_11", "{}")
    found = collect({"source": "flight_recorder", "path": "logs:dumps/{job_id}/nccl_trace_rank_{rank}"})
    (stream,) = found.streams.values()
    assert (stream.rank, stream.source) == (11, Source.FLIGHT_RECORDER)


def test_a_file_that_two_patterns_find_is_read_once(root: Path, collect: Collect) -> None:
    write(root, "jobs/4242/a.log", "x\n")
    (root / "jobs/4242/b.log").hardlink_to(root / "jobs/4242/a.log")
    found = collect(APPLOG, {"source": "applog", "path": "logs:jobs/{job_id}/a*"})
    assert list(found.contents) == ["applog/jobs/4242/a.log"]


# --- the roots --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["../secret", "..", "a/../../secret", "x\0y", "."])
def test_a_job_name_that_is_no_plain_name_is_not_put_into_a_path(root: Path, collect: Collect, name: str) -> None:
    write(root.parent, "secret/out.log", "not yours\n")
    found = collect({"source": "applog", "path": "logs:{name}/out.log"}, of=attempt(name=name))
    assert found.contents == {}
    status, note = found.report("applog")
    assert status == "missing" and "the attempt has no name that could be in a path" in note


@pytest.mark.parametrize("link", ["jobs/4242/stolen.log", "jobs/4242"])
def test_links_that_lead_out_are_told_of_and_not_followed(root: Path, collect: Collect, link: str) -> None:
    write(root.parent, "secret/stolen.log", "not yours\n")
    (root / link).parent.mkdir(parents=True, exist_ok=True)
    target = "secret/stolen.log" if link.endswith(".log") else "secret"
    (root / link).symlink_to(root.parent / target)
    write(root, "other/ok.log", "mine\n")
    found = collect(APPLOG, {"source": "applog", "path": "logs:other/ok.log"})
    assert list(found.contents.values()) == [b"mine\n"]
    status, note = found.report("applog")
    assert status == "partial" and "leads out of the allowed folders and was not followed" in note


def test_a_link_inside_of_the_root_is_followed(root: Path, collect: Collect) -> None:
    write(root, "store/1.log", "mine\n")
    (root / "jobs/4242").mkdir(parents=True)
    (root / "jobs/4242/a.log").symlink_to(root / "store/1.log")
    assert list(collect(APPLOG).contents.values()) == [b"mine\n"]


@pytest.fixture
def as_nobody() -> Iterator[Path]:
    """A folder, and rights as a plain user has them: root may read everything."""
    with tempfile.TemporaryDirectory(prefix="logs-") as folder:
        Path(folder).chmod(0o755)
        me = os.geteuid()
        try:
            yield Path(folder)
        finally:
            os.seteuid(me)


def test_what_may_not_be_read_is_told_with_what_to_do(as_nobody: Path) -> None:
    write(as_nobody, "jobs/4242/a.log", "x\n").chmod(0)
    write(as_nobody, "jobs/4242/b.log", "y\n")
    (as_nobody / "gx-01").mkdir(mode=0o700)
    if os.geteuid() == 0:
        os.seteuid(65534)
    else:
        (as_nobody / "gx-01").chmod(0)
    found = Found(as_nobody, [APPLOG, SYSLOG], attempt(), Limits())
    assert found.report("syslog")[0] == "missing" and "give it read access" in found.report("syslog")[1]
    assert list(found.contents.values()) == [b"y\n"]
    status, note = found.report("applog")
    assert status == "partial" and "give it read access" in note


def test_a_folder_that_is_not_mounted_is_told_and_the_others_are_read(root: Path, collect: Collect) -> None:
    write(root, "jobs/4242/a.log", "x\n")
    found = collect(APPLOG, {"source": "syslog", "path": "gone:{node}/*"},
                    roots={"logs": str(root), "gone": str(root / "nowhere")})  # fmt: skip
    assert found.report("applog")[0] == "ok"
    status, note = found.report("syslog")
    assert status == "missing" and note.endswith(
        "does not exist here: create it, mount its file system, or correct roots"
    )


def test_nodes_without_a_file_are_named(root: Path, collect: Collect) -> None:
    write(root, "gx-01/syslog", syslog("gx-01", START, START + 5))
    status, note = collect(SYSLOG).report("syslog")
    assert status == "ok" and "no syslog of gx-02.alpine.example (1 of 2 nodes)" in note


# --- cutting ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York"])
def test_a_log_of_days_is_cut_to_the_attempts_window(root: Path, collect: Collect, zone: str) -> None:
    whole = syslog("gx-01", START - 2 * 86_400, END + 86_400, step=5, zone=zone)
    write(root, "gx-01/syslog", whole, at=END + 86_400)
    found = collect(SYSLOG, timezone=zone)
    kept = times(found.contents["syslog/gx-01/syslog"])
    assert kept == [at for at in times(whole.encode()) if START - 900 <= at <= END + 600]


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, bz2.compress, zstandard.compress])
def test_a_compressed_log_is_cut_to_blocks_around_the_window(
    root: Path, collect: Collect, pack: Callable[[bytes], bytes]
) -> None:
    ending = {gzip.compress: "gz", lzma.compress: "xz", bz2.compress: "bz2", zstandard.compress: "zst"}[pack]
    whole = syslog("gx-01", START - 2 * 86_400, END + 86_400, step=5).encode()
    write(root, f"gx-01/syslog.1.{ending}", pack(whole), at=END + 86_400)
    (content,) = collect(SYSLOG).contents.values()
    kept = times(content)
    assert {at for at in times(whole) if START - 900 <= at <= END + 600} <= set(kept)
    assert len(content) < 900_000 < len(whole) and kept == sorted(kept)


def test_without_a_zone_the_window_is_wide_enough_for_any(root: Path, collect: Collect) -> None:
    whole = syslog("gx-01", START - 3 * 86_400, END + 3 * 86_400, step=60, zone="Asia/Tokyo")
    write(root, "gx-01/syslog", whole, at=END + 3 * 86_400)
    (content,) = collect(SYSLOG, timezone=None).contents.values()
    kept = set(times(content))
    assert {at for at in times(whole.encode()) if START - 900 <= at <= END + 600} <= kept
    assert len(kept) < len(times(whole.encode())) / 3


def test_files_that_were_written_last_before_the_window_are_passed_over(root: Path, collect: Collect) -> None:
    write(root, "gx-01/syslog.2", syslog("gx-01", START - 90_000, START - 80_000, step=60), at=START - 80_000)
    write(root, "gx-01/syslog.1", syslog("gx-01", START - 8000, START + 100), at=START + 100)
    write(root, "gx-01/syslog", syslog("gx-01", START + 101, END + 9000), at=END + 9000)
    found = collect(SYSLOG, of=attempt(("gx-01",)))
    assert list(found.contents) == ["syslog/gx-01/syslog", "syslog/gx-01/syslog.1"]
    both = times(found.contents["syslog/gx-01/syslog.1"]) + times(found.contents["syslog/gx-01/syslog"])
    assert both == list(range(int(START) - 900, int(END) + 601))


def test_what_tells_no_time_is_taken_whole(root: Path, collect: Collect) -> None:
    dmesg = "".join(f"[{n}.000001] usb 1-1: new device\n" for n in range(5000))
    write(root, "gx-01/syslog", dmesg)
    assert collect(SYSLOG).contents["syslog/gx-01/syslog"] == dmesg.encode()


@pytest.mark.parametrize("year", [2024, 2025])
def test_the_turn_of_a_year_is_no_border(root: Path, year: int) -> None:
    start = datetime(year, 12, 31, 23, 30, tzinfo=UTC).timestamp()
    of = Attempt(workload=Workload(id="1"), started_at=start, ended_at=start + 3600, nodes=("gx-01",))
    whole = syslog("gx-01", start - 20_000, start + 20_000, step=2)
    write(root, "gx-01/syslog", whole, at=start + 20_000)
    found = Found(root, [SYSLOG], of, Limits())
    kept = times(found.contents["syslog/gx-01/syslog"])
    assert (kept[0], kept[-1]) == (int(start) - 900, int(start) + 4200) and kept == list(
        range(kept[0], kept[-1] + 1, 2)
    )


# --- what grows, what is packed, what is damaged ----------------------------------------------------------------------


def test_a_file_that_grows_while_it_is_read_has_an_end(root: Path, collect: Collect) -> None:
    path = write(root, "jobs/4242/a.log", "line\n" * 1000, at=time.time())
    stop = threading.Event()

    def grow() -> None:
        with path.open("a") as out:
            while not stop.is_set():
                out.write("line\n" * 100)
                out.flush()

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        found = collect(APPLOG)
    finally:
        stop.set()
        thread.join()
    content = found.contents["applog/jobs/4242/a.log"]
    assert len(content) >= 5000
    assert found.report("applog") == ("ok", "a.log is still written to: read as it is now")


def test_a_bug_report_is_read_unpacked_with_its_node(root: Path, collect: Collect) -> None:
    xid = "[ 100.000001] NVRM: Xid (PCI:0000:61:00): 79, GPU has fallen off the bus.\n"
    write(root, "bug/gx-01-nvidia-bug-report.log.gz", gzip.compress(xid.encode()))
    found = collect({"source": "syslog", "path": "logs:bug/{node}-nvidia-bug-report.log.gz", "cut": False})
    (stream,) = found.streams.values()
    assert (stream.node, list(found.contents.values())) == ("gx-01", [xid.encode()])
    assert found.report("syslog")[0] == "ok"


def test_an_archives_members_are_streams_of_their_own(root: Path, collect: Collect) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, text in (("report/dmesg", "[ 1.000001] x\n"), ("report/nvidia-smi.txt", "ok\n")):
            info = tarfile.TarInfo(name)
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    write(root, "bug/gx-01.tar.gz", packed.getvalue())
    found = collect({"source": "applog", "path": "logs:bug/{node}.tar.gz"})
    assert {name: (s.source.value, s.node) for name, s in found.streams.items()} == {
        "syslog/bug/gx-01.tar.gz/report/dmesg": ("syslog", "gx-01"),
        "applog/bug/gx-01.tar.gz/report/nvidia-smi.txt": ("applog", "gx-01"),
    }


def test_an_archive_that_would_leave_its_folder_is_refused(root: Path, collect: Collect) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("../../evil"))
    write(root, "bug/gx-01.tar", packed.getvalue())
    status, note = collect({"source": "applog", "path": "logs:bug/{node}.tar"}).report("applog")
    assert status == "missing" and "leaves the bundle" in note


def test_a_damaged_compressed_log_gives_what_stands_before_the_damage(root: Path, collect: Collect) -> None:
    whole = gzip.compress(syslog("gx-01", START - 60, END, step=1).encode())
    write(root, "gx-01/syslog.1.gz", whole[: len(whole) // 2])
    found = collect(SYSLOG)
    assert times(found.contents["syslog/gx-01/syslog.1.gz"])[0] == START - 60
    status, note = found.report("syslog")
    assert status == "partial" and "syslog.1.gz is damaged, read up to there" in note


def test_limits_give_partial_reports(root: Path, collect: Collect) -> None:
    for number in range(5):
        write(root, f"jobs/4242/{number}.log", "x" * 99 + "\n")
    few = collect(APPLOG, SYSLOG, limits=Limits(streams=2))
    assert len(few.contents) == 2
    assert few.report("applog") == ("partial", "more than 2 streams: the rest was left out")
    assert few.report("syslog") == ("missing", "more than 2 streams: the rest was left out")
    small = collect(APPLOG, limits=Limits(bytes=250))
    assert len(small.contents) == 2 and small.report("applog")[0] == "partial"
    late = collect(APPLOG, limits=Limits(seconds=-1))
    assert not late.contents and "not finished within" in late.report("applog")[1]


LONG = "".join(f"{number:07} iteration\n" for number in range(200_000))
"""3.6 MB."""


@pytest.mark.parametrize("limits", [Limits(bytes=2_000_000), Limits(stream_bytes=2_000_000)], ids=["all", "each"])
def test_of_a_log_that_is_longer_than_its_limit_beginning_and_end_are_read(
    root: Path, collect: Collect, limits: Limits
) -> None:
    write(root, "jobs/4242/train.log", LONG)
    found = collect(APPLOG, limits=limits)
    lines = found.contents["applog/jobs/4242/train.log"].decode().splitlines(keepends=True)
    assert all(len(line) == 18 for line in lines)
    numbers = [int(line[:7]) for line in lines]
    gap = next(at for at, number in enumerate(numbers) if at != number)
    assert numbers == [*range(gap), *range(numbers[gap], 200_000)]
    assert 400_000 < gap * 18 <= 500_000 and 1_999_900 < len(numbers) * 18 <= 2_000_000
    status, note = found.report("applog")
    assert status == "partial" and note == (
        "train.log has 3600000 bytes, more than there is room for: "
        f"its first {gap * 18} and its last {(len(numbers) - gap) * 18} were read"
    )


def test_of_a_nodes_log_the_end_of_the_attempts_window_is_read(root: Path, collect: Collect) -> None:
    write(root, "gx-01/syslog", syslog("gx-01", START - 60, END + 3600, step=0.02, text="CRON job" + "x" * 200))
    found = collect(SYSLOG, limits=Limits(stream_bytes=2_000_000), timezone="UTC")
    last = times(found.contents["syslog/gx-01/syslog"])
    assert (
        (last[0], last[-1]) == (START - 60, END + 600)
        and last == sorted(last)
        and len(found.contents["syslog/gx-01/syslog"]) <= 2_000_000
    )
    assert found.report("syslog")[0] == "partial"


# --- with the engine --------------------------------------------------------------------------------------------------


def test_the_engine_finds_the_node_at_fault_in_them(root: Path, collect: Collect) -> None:
    lines = syslog("gx-02", START - 40_000, END - 60, step=20)
    stamp = datetime.fromtimestamp(END - 55, UTC)
    lines += f"{stamp:%b} {stamp.day:2} {stamp:%H:%M:%S} gx-02 kernel: NVRM: Xid (PCI:0000:61:00): 79, pid=1, GPU has fallen off the bus.\n"  # noqa: E501
    write(root, "gx-02/syslog", lines + syslog("gx-02", END, END + 40_000, step=20), at=END + 40_000)
    write(root, "jobs/4242/a.log", "iteration 10 | loss 2.0\nRuntimeError: CUDA error: unspecified launch failure\n")
    of = attempt()
    connector = FilesConnector.from_config(
        {"roots": {"logs": str(root)}, "patterns": [APPLOG, SYSLOG], "timezone": "UTC"}
    )
    with connector.collect(CollectRequest(attempt=of, ref="")) as collected:
        found = diagnose(of, list(collected.streams()), load_ruleset())
    assert (found.domain, [node.node for node in found.affected_nodes if node.role == "cause"]) == (
        "hardware", ["gx-02.alpine.example"],
    )  # fmt: skip


# --- configuration and check ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ({"source": "syslog"}, "patterns[0]: path: is missing"),
        ({"source": "metric", "path": "logs:x"}, "patterns[0]: source: must be one of applog, syslog, scheduler"),
        ({"source": "syslog", "path": "{node}/syslog"}, "path: must begin with a root and a colon"),
        ({"source": "syslog", "path": "other:x"}, "path: must begin with a root and a colon, like logs:{node}/syslog*; "
         "roots: logs"),
        ({"source": "syslog", "path": "logs:../etc/passwd"}, "must be a path below the root"),
        ({"source": "syslog", "path": "logs:/etc/passwd"}, "must be a path below the root"),
        ({"source": "syslog", "path": "logs:{host}/x"}, "{host} is not one of workload, job_id"),
        ({"source": "syslog", "path": "logs:a/**"}, "** stands for folders"),
        ({"source": "syslog", "path": "logs:x", "colour": 1}, "patterns[0]: unknown key 'colour'"),
        ({"source": "syslog", "path": "logs:x", "before": -1}, "patterns[0]: before: must be a number from 0"),
        ("logs:x", "patterns[0]: must have source and path"),
    ],
)  # fmt: skip
def test_a_wrong_pattern_is_told_by_its_key(pattern: object, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        FilesConnector.from_config({"roots": {"logs": "/logs"}, "patterns": [pattern]})
    assert says in str(refused.value)


def test_check_says_which_root_is_missing(root: Path) -> None:
    good = FilesConnector.from_config({"roots": {"logs": str(root)}}).check()
    assert (good.status, good.note, good.query) == ("ok", "", f"logs: {root}")
    gone = FilesConnector.from_config({"roots": {"logs": str(root), "gone": str(root / "gone")}}).check()
    assert gone.status == "partial" and f"roots.gone: {root}/gone does not exist here: create it" in gone.note
    (root / "file").write_text("x")
    lost = FilesConnector.from_config({"roots": {"logs": str(root / "file")}}).check()
    assert lost.status == "error" and "is no folder: correct roots" in lost.note
