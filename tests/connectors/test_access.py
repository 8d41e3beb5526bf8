"""Files are read through allowed folders only, whatever a job's owner made of the path."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

import pytest

from connectors.access import Refused, Roots


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    (home / "a.out").write_text("mine\n")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("not yours\n")
    return home


@pytest.fixture
def roots(home: Path) -> Roots:
    return Roots([(str(home), home)])


def read(roots: Roots, path: Path | str, owner: int | None = None) -> str:
    with roots.open(roots.local(str(path)), owner) as content:
        return content.read().decode()


def test_a_file_in_a_root_is_read(roots: Roots, home: Path) -> None:
    assert read(roots, home / "a.out") == "mine\n"
    assert read(roots, f"{home}/x/../a.out") == "mine\n"


def test_a_link_inside_of_the_roots_is_followed(roots: Roots, home: Path) -> None:
    (home / "b.out").symlink_to(home / "a.out")
    assert read(roots, home / "b.out") == "mine\n"


def test_the_folder_may_have_another_name_here(home: Path) -> None:
    roots = Roots([("/gpfs/home", home), ("/gpfs", Path("/nowhere"))])
    assert read(roots, "/gpfs/home/a.out") == "mine\n"
    with pytest.raises(Refused, match="does not exist here"):
        read(roots, "/gpfs/other/a.out")


@pytest.mark.parametrize("how", ["link", "folder", "dots", "absolute", "prefix", "chain"])
def test_nothing_leads_out(roots: Roots, home: Path, tmp_path: Path, how: str) -> None:
    secret = tmp_path / "secret"
    (tmp_path / "home-of-another").mkdir()
    (tmp_path / "home-of-another" / "key").write_text("not yours\n")
    (home / "link").symlink_to(secret / "key")
    (home / "folder").symlink_to(secret)
    (home / "chain").symlink_to(home / "folder")
    path = {
        "link": home / "link", "folder": home / "folder" / "key", "dots": f"{home}/../secret/key",
        "absolute": secret / "key", "prefix": f"{home}-of-another/key", "chain": home / "chain" / "key",
    }[how]  # fmt: skip
    with pytest.raises(Refused, match=r"leads out|outside"):
        read(roots, path)


def test_what_was_opened_is_checked_and_not_what_the_path_is_now(roots: Roots, home: Path, tmp_path: Path) -> None:
    """A link that is swapped between a check and the opening gains nothing: the check is of the open file."""
    (home / "job.out").symlink_to(tmp_path / "secret" / "key")
    path = roots.local(str(home / "job.out"))
    descriptor = os.open(path, os.O_RDONLY)
    (home / "job.out").unlink()
    (home / "job.out").write_text("innocent\n")
    try:
        assert not roots._inside(descriptor, path)
    finally:
        os.close(descriptor)
    assert read(roots, home / "job.out") == "innocent\n"


def test_only_plain_files_are_read_and_nothing_is_waited_for(roots: Roots, home: Path) -> None:
    os.mkfifo(home / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(home / "socket"))
        for name in ("fifo", "socket", ""):
            with pytest.raises(Refused):
                read(roots, home / name)


def test_a_file_of_another_user_is_not_read(roots: Roots, home: Path) -> None:
    mine = os.getuid()
    assert read(roots, home / "a.out", owner=mine) == "mine\n"
    with pytest.raises(Refused, match=f"belongs to user {mine} and not to the job's user {mine + 1}"):
        read(roots, home / "a.out", owner=mine + 1)


def test_a_file_that_is_gone_and_one_that_may_not_be_read_are_told_apart(roots: Roots, home: Path) -> None:
    with pytest.raises(Refused, match="not mounted here"):
        read(roots, home / "gone.out")
    (home / "a.out").chmod(0)
    if os.geteuid() != 0:
        with pytest.raises(Refused, match="give it read access"):
            read(roots, home / "a.out")


def test_files_of_all_tasks_are_found_with_what_their_names_tell(roots: Roots, home: Path, tmp_path: Path) -> None:
    for node, rank in (("gx-01", 0), ("gx-02", 1)):
        (home / node).mkdir()
        (home / node / f"rank-{rank}.log").write_text(str(rank))
        (home / node / "other.log").touch()
    (home / "gx-03").symlink_to(tmp_path / "secret")
    base = str(home).strip("/").split("/")
    pattern = re.compile(r"(?P<node>gx-0[12])")
    found = list(roots.matching([*base, pattern, re.compile(r"rank-(?P<rank>\d+)\.log")]))
    assert [(path.name, groups) for path, groups in found] == [
        ("rank-0.log", {"node": "gx-01", "rank": "0"}),
        ("rank-1.log", {"node": "gx-02", "rank": "1"}),
    ]
    with pytest.raises(Refused, match="leads out"):
        list(roots.matching([*base, re.compile(r"gx-0\d"), re.compile(r".*")]))


def test_without_proc_the_file_is_compared(
    roots: Roots, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(path: str) -> str:
        raise OSError(f"{path}: no /proc")

    monkeypatch.setattr("connectors.access.os.readlink", none)
    assert read(roots, home / "a.out") == "mine\n"
    assert not roots._inside(os.open(tmp_path / "secret" / "key", os.O_RDONLY), home / "a.out")
