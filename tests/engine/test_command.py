"""The command line: bundles, loose logs, pipes, and exit codes for scripts."""

from __future__ import annotations

import io
import json
import sys
import tarfile
from pathlib import Path

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


def test_a_folder_of_logs_is_told_how_it_is_diagnosed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "slurm-48213.out").write_text(CRASH)
    assert cli.main(["diagnose", str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert str(tmp_path) in told and "attempt.yaml: is missing; without one, name each log file of one job" in told
