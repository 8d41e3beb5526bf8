"""What stands in the way of a demo is said in one line that tells what to do."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from triage.supervisor.ports import free_port

ROOT = Path(__file__).resolve().parents[2]


def demo(folder: Path, **env: str) -> tuple[int, str]:
    """Run a demo that can't start; its exit code and the last line that it says."""
    base = {name: value for name, value in os.environ.items() if name not in ("PORT", "DATABASE_URL", "REDIS_URL")}
    done = subprocess.run(
        [sys.executable, "-m", "triage.supervisor", "demo", "--folder", str(folder)],
        cwd=ROOT,
        env={**base, "PORT": str(free_port()), **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in done.stderr
    assert "ready" not in done.stdout
    return done.returncode, done.stderr.strip().splitlines()[-1]


def test_a_port_in_use_names_another_one(place: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, said = demo(place / "demo", PORT=str(port))
    assert code == 1
    expected = f"port {port} is in use by another program: choose another one with `make demo PORT={port + 1}`"
    assert said == f"faultline: {expected}"


@pytest.mark.parametrize("port", ["http", "0", "70000", "-1"])
def test_a_port_that_is_none_is_named(place: Path, port: str) -> None:
    code, said = demo(place / "demo", PORT=port)
    assert code == 1
    assert said == f"faultline: PORT: {port!r} is no port: a number from 1 to 65535"


def test_a_folder_that_cannot_be_written_is_named(place: Path) -> None:
    if os.geteuid() == 0:  # root may write anywhere but into the kernel's own file systems
        folder = Path("/sys/faultline")
    else:
        place.chmod(0o555)
        folder = place / "demo"
    code, said = demo(folder)
    assert code == 1
    assert said.startswith(f"faultline: cannot write to {folder} (")
    assert "faultline demo --folder DIR" in said


def test_a_file_in_place_of_the_folder_is_named(place: Path) -> None:
    (place / "demo").touch()
    code, said = demo(place / "demo")
    assert code == 1
    assert said == f"faultline: {place / 'demo'} is a file where a folder is needed: move it away"


def test_data_of_another_postgres_version_is_not_touched(place: Path) -> None:
    data = place / "demo" / "postgres"
    data.mkdir(parents=True)
    (data / "PG_VERSION").write_text("15\n")
    code, said = demo(place / "demo")
    assert code == 1
    assert f"the data in {data} was made by PostgreSQL 15 and this is PostgreSQL 18" in said
    assert f"mv {data} {data}-15" in said
    assert [path.name for path in data.iterdir()] == ["PG_VERSION"]


def test_a_folder_without_a_version_is_no_data_directory(place: Path) -> None:
    data = place / "demo" / "postgres"
    data.mkdir(parents=True)
    code, said = demo(place / "demo")
    assert code == 1
    assert said.startswith(f"faultline: {data} holds no PostgreSQL data: move it away")


def test_a_second_demo_on_the_same_folder_names_the_first(place: Path) -> None:
    folder = place / "demo"
    folder.mkdir()
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("4711\n")
        lock.flush()
        code, said = demo(folder)
    assert code == 1
    assert said.startswith(f"faultline: another demo (process 4711) already runs on {folder}: ")


def test_with_both_urls_set_nothing_is_embedded(place: Path) -> None:
    """The given database isn't there, so the demo ends; it has not put another one in its place."""
    folder = place / "demo"
    nowhere = f"127.0.0.1:{free_port()}"
    code, said = demo(folder, DATABASE_URL=f"postgresql://a:b@{nowhere}/c", REDIS_URL=f"redis://{nowhere}/0")
    assert code == 1
    assert said == f"faultline: migrating the database: failed with exit code 1; see {folder}/log/migrate.log"
    assert {path.name for path in folder.iterdir()} <= {"lock", "log", "env", "secret-key", "data", "static", "metrics"}
