"""Wrong settings, programs that hang, print too much or refuse: told in words, within the time limit."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from connectors.base import CollectRequest, ConfigError, Connector, ConnectorError, Limits
from connectors.http import Deadline
from connectors.registry import Registry
from connectors.slurm.config import SlurmConfig
from connectors.slurm.connector import SlurmConnector
from connectors.slurm.runner import CommandError, Runner, Trouble
from engine.model import Attempt, Workload
from tests.connectors.slurm.conftest import gather, told
from tests.connectors.slurm.standin import Accounting

NOW = int(time.time())


def program(folder: Path, name: str, script: str) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return file


def run(script: str, folder: Path, seconds: float = 20.0, name: str = "sacct", **options: Any) -> bytes:
    program(folder, name, script)
    return Runner(bin_dir=str(folder), seconds=seconds).run([name], Deadline(60), **options)


def test_it_is_a_connector_that_the_registry_makes() -> None:
    connector = Registry.from_config({"alpine": {"kind": "slurm"}}).get("alpine")
    assert isinstance(connector, Connector) and connector.name == "alpine"


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"sates": ["FAILED"]}, "unknown key 'sates'"),
        ({"states": ["FAILD"]}, "states: 'FAILD' is not one of"),
        ({"users": ["mlin,root"]}, "users: must be a name"),
        ({"partitions": ["--help"]}, "partitions: must be a name"),
        ({"users": [7]}, "users: must be a name"),
        ({"command_prefix": "ssh login1"}, "command_prefix: must be a list of words"),
        ({"environment": {"A-B": "c"}}, "environment: must map"),
        ({"call_seconds": 0}, "call_seconds: must be a number"),
        ({"roots": ["home"]}, "roots: home: must be an absolute path"),
        ({"roots": "/home"}, "roots: must be a list"),
        ({"slurmd_log": "/var/log/slurmd.log"}, "slurmd_log: must hold {node}"),
        ({"timezone": "Mars/Olympus"}, "timezone: 'Mars/Olympus' is no time zone"),
        ({"check_owner": "no"}, "check_owner: must be true or false"),
        ({"rest": {"url": "https://head1:6820"}}, "rest: token: is missing"),
        ({"rest": {"url": "https://head1:6820", "token": "eyJhbGciOi"}}, "a reference and not the secret itself"),
        ({"rest": {"url": "unix:run/x.sock"}}, "must be like unix:/run"),
        ({"rest": {"url": "unix:/run/x.sock", "version": "38"}}, "version: must be like"),
        ({"rest": {"url": "unix:/run/x.sock", "sockets": 1}}, "unknown key 'sockets'"),
    ],
)
def test_a_wrong_setting_is_told_with_its_key(config: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        SlurmConfig.parse({"name": "alpine", **config})
    assert says in str(refused.value) and str(refused.value).startswith("connector alpine: ")
    assert "\n" not in str(refused.value) and "eyJ" not in str(refused.value)


def test_a_program_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(CommandError, match="gave no answer within 1 s") as failure:
        run(f"sleep 60 & echo $! > {tmp_path}/child\nsleep 60", tmp_path / "bin", seconds=1)
    assert time.monotonic() - began < 5 and failure.value.temporary and failure.value.trouble is Trouble.SLOW
    child = int((tmp_path / "child").read_text())
    time.sleep(0.1)
    status = Path(f"/proc/{child}/status")
    assert not status.exists() or "State:\tZ" in status.read_text()


def test_a_program_that_left_a_child_with_its_output_open_is_not_waited_for(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(CommandError, match="no answer within 1 s"):
        run("sleep 60 &\necho done", tmp_path / "bin", seconds=1)
    assert time.monotonic() - began < 5


def test_a_program_that_prints_without_end_is_ended(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="more than 1000000 bytes") as failure:
        run("yes", tmp_path / "bin", max_bytes=1_000_000)
    assert failure.value.trouble is Trouble.TOO_LARGE


@pytest.mark.parametrize(
    ("script", "says", "temporary"),
    [
        ("echo 'sacct: error: Sending PersistInit msg: Connection refused' >&2; exit 1",
         "systemctl status slurmdbd", True),
        ("echo 'Slurm accounting storage is disabled' >&2; exit 1", "AccountingStorageType", False),
        ("echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1",
         "scontrol ping", True),
        ("echo 'sacct: error: Munge encode failed: Failed to access /run/munge' >&2; exit 1", "munged runs", False),
        ("echo 'error: Access/permission denied' >&2; exit 1", "AdminLevel=Operator", False),
        ("printf 'strange \\033[31m words\\n' >&2; exit 3", "ended with 3: strange ?[31m words", False),
        ("exit 4", "ended with 4: without a word", False),
    ],
)  # fmt: skip
def test_what_a_program_says_is_told_with_what_to_do(tmp_path: Path, script: str, says: str, temporary: bool) -> None:
    with pytest.raises(CommandError) as failure:
        run(script, tmp_path / "bin", name="scontrol" if "slurm_load" in script else "sacct")
    assert says in str(failure.value) and failure.value.temporary is temporary
    assert str(failure.value).isprintable()


def test_a_program_that_is_not_there_is_told_with_where_to_set_it(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="set bin_dir or command_prefix"):
        Runner(bin_dir=str(tmp_path)).run(["sacct"], Deadline(5))
    with pytest.raises(CommandError, match="nossh can not be run"):
        Runner(prefix=("nossh", "login1")).run(["sacct"], Deadline(5))


def test_ssh_that_fails_is_told_apart_from_slurm(tmp_path: Path) -> None:
    for words, says in (
        ("mlin@login1: Permission denied (publickey).", "the key is not accepted"),
        ("ssh: Could not resolve hostname login1", "can not be resolved"),
        ("Host key verification failed.", "known_hosts"),
        ("ssh: connect to host login1 port 22: Connection timed out", "can not be reached"),
    ):
        ssh = program(tmp_path / "bin", "ssh", f"echo '{words}' >&2; exit 255")
        with pytest.raises(CommandError) as failure:
            Runner(prefix=(str(ssh), "login1")).run(["sacct"], Deadline(5))
        assert says in str(failure.value) and str(failure.value).startswith("command_prefix: ")


def test_words_reach_the_program_as_they_are_also_through_the_shell_of_ssh(tmp_path: Path) -> None:
    program(tmp_path / "bin", "sacct", 'for word in "$@"; do printf "%s|" "$word"; done; echo "$TZ"')
    ssh = program(tmp_path / "bin", "ssh", 'shift\nexec sh -c "$*"')  # as sshd does
    words = ["sacct", "a b", "$(touch hacked)", "`id`", "x;y", "\x1f", "'", "--format=%s"]
    expected = "".join(f"{word}|" for word in words[1:]) + "UTC\n"
    for prefix in ((), (str(ssh), "login1"), ("nice",)):
        runner = Runner(prefix=prefix, bin_dir=str(tmp_path / "bin"))
        assert runner.run(words, Deadline(10), environment={"TZ": "UTC"}).decode() == expected
    assert not Path("hacked").exists()


def test_secrets_of_this_process_are_not_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgres://faultline:hunter2@db/faultline")
    assert b"hunter2" not in run("env", tmp_path / "bin")


def test_garbage_instead_of_a_table_is_an_error(tmp_path: Path) -> None:
    program(
        tmp_path / "bin", "sacct", '[ "$1" = --helpformat ] && echo JobID State && exit\necho "<html>Sign in</html>"'
    )
    with pytest.raises(ConnectorError, match=r"sacct printed no table: <html>Sign in</html>"):
        list(SlurmConnector.from_config({"bin_dir": str(tmp_path / "bin")}).find({}))
    program(tmp_path / "bin", "sacct", "echo Usage: sacct FILE")
    with pytest.raises(ConnectorError, match="is sacct Slurm's own"):
        list(SlurmConnector.from_config({"bin_dir": str(tmp_path / "bin")}).find({}))


def test_when_nothing_answers_the_collection_is_to_be_tried_again(tmp_path: Path) -> None:
    for name in ("sacct", "scontrol", "squeue"):
        program(tmp_path / "bin", name, "echo 'Connection refused' >&2; exit 1")
    connector = SlurmConnector.from_config({"bin_dir": str(tmp_path / "bin"), "roots": [str(tmp_path)]})
    attempt = Attempt(workload=Workload(id="7"), nodes=("gx-01",))
    with (
        connector.collect(CollectRequest(attempt=attempt, ref="7@1")) as collected,
        pytest.raises(ConnectorError) as failure,
    ):
        list(collected.streams())
    assert failure.value.temporary


def collected_of(tmp_path: Path, accounting: Accounting, **config: Any) -> Any:
    """What is collected of the only job, where slurmctld has forgotten it."""
    accounting.write()
    for name in ("scontrol", "squeue"):
        program(accounting.folder, name, "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    connector = SlurmConnector.from_config(accounting.settings(roots=[str(tmp_path)], **config))
    found = told(list(connector.find({})))
    return {key: gather(connector, one) for key, one in found.items()}


def test_a_forgotten_jobs_files_are_found_by_its_command_line(tmp_path: Path) -> None:
    accounting = Accounting(tmp_path / "bin")
    line = "sbatch -o logs/%x-%j.out train.sh"
    accounting.add("7", NOW - 100, WorkDir=tmp_path, SubmitLine=line, UID=os.getuid())
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "train-7.out").write_text("hello\n")
    [gathered] = collected_of(tmp_path, accounting).values()
    assert gathered.contents["applog/train-7.out"] == b"hello\n"
    assert (gathered.reports["applog"].status, gathered.reports["scheduler"].status) == ("ok", "ok")
    assert "MinJobAge" in gathered.reports["scheduler"].note
    assert str(tmp_path / "logs" / "train-7.out") in gathered.reports["applog"].query


def test_a_later_runs_output_is_not_taken_for_an_earlier_ones(tmp_path: Path) -> None:
    accounting = Accounting(tmp_path / "bin")
    same = {"WorkDir": tmp_path, "SubmitLine": "sbatch -o run-%r.out -e same.err x", "UID": os.getuid()}
    accounting.add("7", NOW - 1000, Submit=NOW - 1100, **same)
    accounting.add("7", NOW - 300, Submit=NOW - 990, **same)
    for name, changed in (("run-0.out", NOW - 1000), ("run-1.out", NOW - 300), ("same.err", NOW - 300)):
        (tmp_path / name).write_text(name)
        os.utime(tmp_path / name, (changed, changed))
    gathered = collected_of(tmp_path, accounting)
    first, second = gathered["7", 1], gathered["7", 2]
    assert [name for name in first.contents if "applog" in name] == ["applog/run-0.out"]
    assert first.reports["applog"].status == "partial"
    assert "same.err was written to by a later run of the job" in first.reports["applog"].note
    assert [name for name in second.contents if "applog" in name] == ["applog/run-1.out", "applog/same.err"]
    assert second.reports["applog"].status == "ok"


def test_a_link_to_a_secret_is_not_followed_and_another_users_file_not_read(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    accounting = Accounting(tmp_path / "work" / "bin")
    (tmp_path / "secret").write_text("not yours")
    (tmp_path / "work" / "a.out").symlink_to(tmp_path / "secret")
    (tmp_path / "work" / "b.out").write_text("somebody else's")
    other = os.getuid() + 1
    accounting.add("1", NOW - 100, WorkDir=tmp_path / "work", SubmitLine="sbatch -o a.out x", UID=os.getuid())
    accounting.add("2", NOW - 90, WorkDir=tmp_path / "work", SubmitLine="sbatch -o b.out x", UID=other)
    gathered = collected_of(tmp_path / "work", accounting)
    for key, says in ((("1", 1), "leads out"), (("2", 1), f"not to the job's user {other}")):
        assert not [name for name in gathered[key].contents if "applog" in name]
        assert gathered[key].reports["applog"].status == "missing" and says in gathered[key].reports["applog"].note
    allowed = collected_of(tmp_path / "work", accounting, check_owner=False)
    assert allowed["2", 1].contents["applog/b.out"] == b"somebody else's"


def test_without_roots_no_file_is_read_and_the_report_says_how(tmp_path: Path) -> None:
    accounting = Accounting(tmp_path / "bin")
    accounting.add("7", NOW - 100, WorkDir=tmp_path)
    accounting.write()
    connector = SlurmConnector.from_config(accounting.settings())
    [found] = told(list(connector.find({}))).values()
    report = gather(connector, found).reports["applog"]
    assert (report.status, report.note) == (
        "missing", "no output was read: name the folders that jobs write to in roots",
    )  # fmt: skip


def test_of_a_log_that_is_longer_than_its_limit_beginning_and_end_are_read(tmp_path: Path) -> None:
    accounting = Accounting(tmp_path / "bin")
    accounting.add("7", NOW - 100, WorkDir=tmp_path, SubmitLine="sbatch -o big.out x", UID=os.getuid())
    accounting.write()
    (tmp_path / "big.out").write_text("".join(f"{number:07} iteration\n" for number in range(200_000)))
    connector = SlurmConnector.from_config(accounting.settings(roots=[str(tmp_path)]))
    [found] = told(list(connector.find({}))).values()
    gathered = gather(connector, found, limits=Limits(stream_bytes=2_000_000))
    lines = gathered.contents["applog/big.out"].splitlines()
    assert (lines[0], lines[-1]) == (b"0000000 iteration", b"0199999 iteration")
    assert lines == sorted(lines) and {len(line) for line in lines} == {17} and len(lines) * 18 <= 2_000_000
    assert gathered.reports["applog"].status == "partial"
    assert "big.out has 3600000 bytes, more than there is room for: its first" in gathered.reports["applog"].note


def test_a_log_of_two_gigabytes_is_opened_and_not_read(tmp_path: Path) -> None:
    accounting = Accounting(tmp_path / "bin")
    accounting.add("7", NOW - 100, WorkDir=tmp_path, SubmitLine="sbatch -o big.out x", UID=os.getuid())
    accounting.write()
    with (tmp_path / "big.out").open("wb") as big:
        big.truncate(2 * 1024**3)
    connector = SlurmConnector.from_config(accounting.settings(roots=[str(tmp_path)]))
    [found] = told(list(connector.find({}))).values()
    began = time.monotonic()
    with connector.collect(CollectRequest(attempt=found.attempt, ref=found.ref)) as collected:
        [stream] = [stream for stream in collected.streams() if stream.name.startswith("applog/")]
        assert stream.size == 2 * 1024**3
        with stream.open() as content:
            assert len(content.read(1 << 20)) == 1 << 20
    assert time.monotonic() - began < 5
