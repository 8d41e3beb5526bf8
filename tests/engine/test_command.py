"""The command line: bundles, loose logs, pipes, and exit codes for scripts."""

from __future__ import annotations

import io
import json
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import zstandard

from engine import cli
from triage import client

SAMPLES = Path(__file__).parents[2] / "samples"
CANONICAL = SAMPLES / "hw-nvlink-xid149-node02.tar.zst"
XID = "2026-11-03T04:11:56+00:00 gx-02 kernel: NVRM: Xid (PCI:0000:61:00): 79, pid=1234, GPU has fallen off the bus.\n"
CRASH = """\
2026-11-03 04:11:54,433 rank 3 iteration 1525 | loss 2.1
[rank3]: Traceback (most recent call last):
[rank3]:   File "/home/ada/train.py", line 12, in <module>
[rank3]: KeyError: 'input_ids'
"""


def answers(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[dict[str, object]]]:
    code = cli.main(["diagnose", "--format", "json", *words])
    return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_log_file_alone_is_diagnosed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "slurm-48213.out"
    log.write_text(CRASH)
    code, (found,) = answers(capsys, str(log), "--state", "FAILED", "--job", "48213")
    assert (code, found["domain"]) == (0, "software")
    assert found["attempt"]["workload"]["id"] == "48213"  # type: ignore[index]


def test_what_a_pipe_brings_is_diagnosed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(CRASH.encode())))
    code, (found,) = answers(capsys, "-", "--state", "FAILED", "--exit-by-verdict")
    assert (code, found["domain"]) == (15, "software")


def test_several_logs_are_one_job_and_kernel_logs_are_told_by_their_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "out.log").write_text(CRASH.splitlines()[0])
    (tmp_path / "b" / "out.log").write_text(XID)
    paths = [str(tmp_path / name / "out.log") for name in "ab"]
    code, (found,) = answers(capsys, *paths, "--state", "FAILED", "--nodes", "gx-01,gx-02", "--exit-by-verdict")
    assert (code, found["domain"]) == (10, "hardware")
    assert found["root_cause"]["nodes"] == ["gx-02"]  # type: ignore[index]


def test_logs_without_a_year_are_of_the_year_that_the_other_logs_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with tarfile.open(fileobj=io.BytesIO(zstandard.ZstdDecompressor().decompress(CANONICAL.read_bytes()))) as archive:
        archive.extractall(tmp_path, filter="data")
    (bundle,) = tmp_path.iterdir()
    logs = [*(bundle / "applog").iterdir(), bundle / "syslog" / "node-02.log"]
    _, (found,) = answers(capsys, *map(str, sorted(logs)))
    assert (found["domain"], found["sub_domain"]) == ("hardware", "nvlink")
    assert found["root_cause"]["nodes"] == ["node-02"]  # type: ignore[index]
    assert found["root_cause"]["at"] == "2026-11-03T04:11:57.000000Z"  # type: ignore[index]
    assert found["reasoning"][0].startswith("No record tells how or when the attempt ended")  # type: ignore[index]


def test_an_empty_pipe_blames_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    code, (found,) = answers(capsys, "-", "--exit-by-verdict")
    assert (code, found["domain"]) == (20, "unattributed")


def test_without_the_option_a_diagnosis_is_a_success(capsys: pytest.CaptureFixture[str]) -> None:
    sample = str(next(SAMPLES.glob("hw-nvlink*.tar.zst")))
    assert answers(capsys, sample)[0] == 0
    assert answers(capsys, sample, "--exit-by-verdict")[0] == 10


def test_the_same_verdict_has_the_same_code_with_and_without_a_server() -> None:
    assert cli.VERDICTS == client.EXIT_CODES and cli.NOBODY == 20


def test_what_is_neither_text_nor_a_bundle_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "core.bin").write_bytes(b"\x7fELF\x00\x00\x01")
    assert cli.main(["diagnose", str(tmp_path / "core.bin"), str(tmp_path / "none.log")]) == 2
    told = capsys.readouterr().err
    assert "neither text nor a bundle" in told and "none.log: no such file or folder" in told


def test_the_file_that_is_wrong_is_named_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong, fine = tmp_path / "core.bin", tmp_path / "out.log"
    wrong.write_bytes(b"\x7fELF\x00\x00\x01")
    fine.write_text(CRASH)
    assert cli.main(["diagnose", str(wrong)]) == 2
    assert capsys.readouterr().err.startswith(f"{wrong}: neither text nor a bundle")
    assert cli.main(["diagnose", str(fine), str(wrong)]) == 2
    assert capsys.readouterr().err.startswith(f"{fine} {wrong}: {wrong}: neither text nor a bundle")


@pytest.mark.parametrize("name", ["kernel-gx-02.log", "gx-02.log", "gx-02.dmesg.log", "messages_gx-02.txt"])
@pytest.mark.parametrize("nodes", [[], ["--nodes", "gx-[01-02]"], ["--nodes", "gx-[01,02],login1"]])
def test_a_kernel_log_is_of_the_node_that_its_file_is_named_after(
    name: str, nodes: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "slurm-48213.out").write_text(CRASH.splitlines()[0])
    (tmp_path / name).write_text(XID)
    code, (found,) = answers(
        capsys,
        str(tmp_path / "slurm-48213.out"),
        str(tmp_path / name),
        "--state",
        "FAILED",
        "--exit-by-verdict",
        *nodes,
    )
    assert (code, found["domain"]) == (10, "hardware")
    assert found["root_cause"]["nodes"] == ["gx-02"]  # type: ignore[index]


def test_a_list_of_nodes_that_can_not_be_read_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["diagnose", str(tmp_path / "x.log"), "--nodes", "gx-[01-"])
    assert "'gx-[01-' is no list of nodes" in capsys.readouterr().err


# --- what somebody has who knows Slurm and nothing of bundles ---------------------------------------------------------

SACCT = """\
JobID|JobName|Partition|Account|AllocCPUS|State|ExitCode
48213|train|gpu|ml|64|TIMEOUT|0:0
48213.batch|batch||ml|32|CANCELLED|0:15
48213.0|python||ml|64|CANCELLED|0:15
"""
SCONTROL = """\
JobId=48213 JobName=train
   UserId=ada(1001) GroupId=ada(1001) MCS_label=N/A
   JobState={state} Reason={reason} Dependency=(null)
   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode={code}
   RunTime=04:00:12 TimeLimit=04:00:00 TimeMin=N/A
   StartTime=2026-11-02T16:11:42 EndTime=2026-11-02T20:12:10 Deadline=N/A
   NodeList=gx-[01-02]
   NumNodes=2 NumCPUs=64 NumTasks=16 CPUs/Task=4
   TRES=cpu=64,mem=1000G,node=2,billing=64,gres/gpu=16
"""
TIMEOUT = SCONTROL.format(state="TIMEOUT", reason="TimeLimit", code="0:0")
LOST = SCONTROL.format(state="NODE_FAIL", reason="NodeDown", code="1:0")
STEPS = "rank 3 iteration 1525 | loss 2.1\n"
PODS = {
    "apiVersion": "v1",
    "kind": "List",
    "items": [
        {
            "kind": "Pod",
            "metadata": {"name": "train-0"},
            "spec": {"nodeName": "gx-02"},
            "status": {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."},
        }
    ],
}


def written(folder: Path, **files: str) -> list[str]:
    """Files by their names, in which two underscores stand for a dot and one for a dash."""
    folder.mkdir(exist_ok=True)
    paths = [folder / name.replace("__", ".").replace("_", "-") for name in files]
    for path, content in zip(paths, files.values(), strict=True):
        path.write_text(content)
    return list(map(str, paths))


@pytest.mark.parametrize(
    "files",
    [{"sacct__txt": SACCT}, {"why__txt": SACCT}, {"job__txt": TIMEOUT}, {"sacct__txt": SACCT, "job": TIMEOUT}],
)
def test_what_slurm_says_of_the_job_is_read_as_such_whatever_its_file_is_called(
    files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, (found,) = answers(capsys, *written(tmp_path, slurm_48213__out=STEPS, **files), "--exit-by-verdict")
    assert (code, found["outcome"], found["sub_domain"]) == (14, "timed_out", "time_limit")
    attempt: dict[str, Any] = found["attempt"]  # type: ignore[assignment]
    assert (attempt["workload"]["id"], attempt["workload"]["name"], attempt["state"]) == ("48213", "train", "TIMEOUT")
    missing = [one["source"] for one in found["coverage"] if one["status"] == "missing"]  # type: ignore[attr-defined]
    assert "scheduler" not in missing


def test_nodes_and_their_gpus_are_taken_from_what_slurm_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, (found,) = answers(capsys, *written(tmp_path, job__txt=LOST, kernel_gx_02__log=XID))
    attempt: dict[str, Any] = found["attempt"]  # type: ignore[assignment]
    assert (attempt["nodes"], attempt["gpus_per_node"]) == (["gx-01", "gx-02"], 8)
    _, (found,) = answers(capsys, *written(tmp_path, job__txt=LOST), "--nodes", "gx-02", "--state", "FAILED")
    attempt = found["attempt"]  # type: ignore[assignment]
    assert (attempt["nodes"], attempt["state"]) == (["gx-02"], "FAILED"), "what is said by hand counts"


def test_times_that_slurm_prints_without_a_zone_order_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The cluster is eight hours behind UTC: its job ended after the GPU, though 20:12 stands before 04:11."""
    _, (found,) = answers(capsys, *written(tmp_path, job__txt=LOST, kernel_gx_02__log=XID, slurm_48213__out=STEPS))
    assert (found["domain"], found["root_cause"]["rule"]) == ("hardware", "xid.79")  # type: ignore[index]


def test_a_state_that_was_told_while_the_job_ran_says_nothing_of_its_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    running = SCONTROL.format(state="RUNNING", reason="None", code="0:0")
    _, (found,) = answers(capsys, *written(tmp_path, job__txt=running, slurm_48213__out=CRASH))
    assert found["domain"] == "software" and found["attempt"]["state"] == ""  # type: ignore[index]


def test_rows_of_other_jobs_are_not_about_this_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    others = "7|a|gpu|ml|8|TIMEOUT|0:0\n8|b|gpu|ml|8|OUT_OF_MEMORY|0:125\n"
    table = SACCT.splitlines()[0] + "\n" + others + "48213|train|gpu|ml|64|FAILED|1:0\n"
    _, (found,) = answers(capsys, *written(tmp_path, sacct__txt=table, slurm_48213__out=CRASH))
    assert (found["outcome"], found["domain"]) == ("failed", "software")
    assert "OUT_OF_MEMORY" not in str(found) and "TIMEOUT" not in str(found)
    _, (found,) = answers(
        capsys, *written(tmp_path, sacct__txt=SACCT.splitlines()[0] + "\n" + others, slurm_48213__out=CRASH)
    )
    assert found["domain"] == "software" and "tells of other jobs (7, 8) and not of 48213" in str(found["coverage"])
    (sacct,) = written(tmp_path, sacct__txt=table)
    assert cli.main(["diagnose", sacct]) == 2
    assert "the records tell of 3 jobs (7, 8, 48213): say which with --job" in capsys.readouterr().err
    assert answers(capsys, sacct, "--job", "7")[1][0]["outcome"] == "timed_out"


def test_pods_and_what_prometheus_answered_are_told_from_logs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    series = {"metric": {"__name__": "DCGM_FI_DEV_GPU_TEMP", "Hostname": "gx-02", "gpu": "0"}, "values": [[1e9, "40"]]}
    samples = {"status": "success", "data": {"resultType": "matrix", "result": [series]}}
    files = written(tmp_path, pods__json=json.dumps(PODS), dcgm__json=json.dumps(samples), out__log=STEPS)
    _, (found,) = answers(capsys, *files, "--state", "FAILED")
    assert found["sub_domain"] == "eviction"
    held = {one["source"] for one in found["coverage"] if one["status"] == "ok"}  # type: ignore[attr-defined]
    assert held >= {"scheduler", "metric", "applog"}


def packed(folder: Path) -> list[str]:
    """The folder as it is, and in archives with and without its own name."""
    for name, inside in (("all.tar.gz", "."), ("one.tar.gz", "job")):
        with tarfile.open(folder.parent / name, "w:gz") as archive:
            archive.add(folder, inside)
    return [str(folder), str(folder.parent / "all.tar.gz"), str(folder.parent / "one.tar.gz")]


def test_a_folder_or_archive_of_what_was_gathered_is_one_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path / "j", job__txt=LOST, slurm_48213__out=STEPS, gx_02__dmesg=XID, train__py="raise MemoryError()\n")
    (tmp_path / "j" / "model.pt").write_bytes(b"PK\x03\x04\x00\x00")
    for path in packed(tmp_path / "j"):
        code, (found,) = answers(capsys, path, "--exit-by-verdict")
        assert (code, found["root_cause"]["rule"]) == (10, "xid.79"), path  # type: ignore[index]
        assert found["attempt"]["workload"]["id"] == "48213"  # type: ignore[index]
        notes = {one["source"]: one["note"] for one in found["coverage"]}  # type: ignore[attr-defined]
        assert "no log by its name" in notes["train.py"] and "neither text" in notes["model.pt"]


def test_a_folder_with_logs_of_several_jobs_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path / "j", slurm_7__out=CRASH, slurm_8__out=CRASH, slurm_8__err=CRASH)
    assert cli.main(["diagnose", str(tmp_path / "j")]) == 2
    assert "holds logs of 2 jobs (7, 8): name the files of one job" in capsys.readouterr().err


def test_a_folder_without_a_log_is_told_what_a_bundle_needs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path / "j", train__py="raise MemoryError()\n")
    assert cli.main(["diagnose", str(tmp_path / "j")]) == 2
    told = capsys.readouterr().err
    assert str(tmp_path) in told and "attempt.yaml: is missing; without one, name each log file of one job" in told
