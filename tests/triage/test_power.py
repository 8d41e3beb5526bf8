"""The plug is pulled: what was acknowledged, or is named by a committed row, is on the disk.

A disk without power keeps what fsync() was called for: of a file the bytes that it had then, of a folder its names.
Here that is noted beside the real files, and compared with them whenever a service has done its transaction.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test import Client

from tests.api.conftest import new_attempt
from tests.triage import cast
from triage.blobs import BlobStore
from triage.models import Attempt
from triage.services.bundles import LooseDetails, import_bundle, import_loose_files
from triage.services.instance import export_instance, import_instance
from triage.services.tokens import create_token
from triage.services.triage import begin_triage
from triage.supervisor import postgres
from triage.tasks.collecting import collect

pytestmark = pytest.mark.django_db
ROOT = Path(__file__).resolve().parents[2]


class Disk:
    """What of a folder would be there after a power failure."""

    def __init__(self, root: Path, skip: Callable[[os.stat_result], bool]) -> None:
        root.mkdir(exist_ok=True)
        self.root, self.skip = root, skip
        self.files: dict[int, bytes] = {}
        self.folders: dict[int, dict[str, int]] = {root.stat().st_ino: {}}
        self.lost: list[str] = []
        self._fsync = os.fsync

    def fsync(self, handle: int) -> None:
        self._fsync(handle)
        facts, place = os.fstat(handle), Path(f"/proc/self/fd/{handle}")
        if self.skip(facts):
            return
        if stat.S_ISDIR(facts.st_mode):
            self.folders[facts.st_ino] = {entry.name: entry.inode() for entry in os.scandir(place)}
        else:
            self.files[facts.st_ino] = place.read_bytes()

    def look(self) -> None:
        """Notes what would be lost, but for drafts of what is still being received."""
        for file in self.root.rglob("*"):
            inside = file.relative_to(self.root)
            if not file.is_file() or "drafts" in inside.parts or any(part.startswith(".") for part in inside.parts):
                continue
            above = self.root
            for part in inside.parts:
                known = self.folders.get(above.stat().st_ino, {})
                above = above / part
                if known.get(part) != above.stat().st_ino:
                    self.lost.append(f"the name of {above.relative_to(self.root)}")
            if self.files.get(file.stat().st_ino) != file.read_bytes():
                self.lost.append(f"what is in {inside}")


Watch = Callable[..., Disk]


@pytest.fixture
def watch(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Watch:
    """A disk that is looked at before every commit, which is of a savepoint in a test; `skip` names what is not synced
    after all.
    """

    def make(skip: Callable[[os.stat_result], bool] = lambda facts: False) -> Disk:
        disk, commit = Disk(data_dir, skip), BaseDatabaseWrapper.savepoint_commit

        def look_and_commit(wrapper: Any, point: str) -> None:
            disk.look()
            commit(wrapper, point)

        monkeypatch.setattr(os, "fsync", disk.fsync)
        monkeypatch.setattr(BaseDatabaseWrapper, "savepoint_commit", look_and_commit)
        return disk

    return make


@pytest.fixture
def sender(django_user_model: Any) -> Client:
    user = django_user_model.objects.create_superuser("sender")
    token = create_token(user, "sender", ["ingest", "read"])[1]
    return Client(headers={"authorization": f"Bearer {token}"})


def bundle(sender: Client, tmp_path: Path) -> None:
    content = cast.archive(tmp_path / "a.tar.zst", cast.members()).read_bytes()
    answer = sender.post("/api/v1/bundles?name=a.tar.zst", content, content_type="application/octet-stream")
    assert answer.status_code in (201, 202), answer.content


def parts(sender: Client, tmp_path: Path) -> None:
    attempt = new_attempt(sender)
    for offset, piece in ((0, "one\n"), (4, "two\n")):
        answer = sender.put(
            f"/api/v1/attempts/{attempt}/observations/applog/gx-01/train.log?offset={offset}",
            piece, content_type="application/octet-stream",
        )  # fmt: skip
        assert answer.status_code in (200, 201), answer.content
    assert sender.post(f"/api/v1/attempts/{attempt}/diagnosis").status_code == 202


def loose(sender: Client, tmp_path: Path) -> None:
    import_loose_files([SimpleUploadedFile("train.log", cast.APPLOG.encode())], LooseDetails(state="FAILED"))


def collected(sender: Client | None, tmp_path: Path) -> None:
    attempt = import_bundle(cast.archive(tmp_path / "a.tar.zst", cast.members())).attempt
    begin_triage(attempt.pk)
    collect(attempt.collections.get().pk)
    assert attempt.streams.count() == 2


WAYS = (bundle, parts, loose, collected)


@pytest.mark.parametrize("way", WAYS)
def test_what_is_acknowledged_or_named_by_a_row_is_on_the_disk(
    way: Callable[[Client, Path], None], watch: Watch, sender: Client, tmp_path: Path
) -> None:
    disk = watch()
    way(sender, tmp_path)
    disk.look()
    assert disk.files and disk.lost == []


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("left_out", [stat.S_ISDIR, stat.S_ISREG])
def test_an_fsync_that_is_left_out_is_noticed(
    way: Callable[[Client, Path], None], left_out: Callable[[int], bool], watch: Watch, sender: Client, tmp_path: Path
) -> None:
    disk = watch(lambda facts: left_out(facts.st_mode))
    way(sender, tmp_path)
    disk.look()
    assert disk.lost


@pytest.mark.django_db(transaction=True)
def test_what_was_moved_is_on_the_disk_when_the_move_is_said_to_be_done(
    tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    collected(None, tmp_path)
    (tmp_path / "moved").mkdir()
    disk = Disk(tmp_path / "moved", lambda facts: False)
    with monkeypatch.context() as watched:
        watched.setattr(os, "fsync", disk.fsync)
        export_instance(tmp_path / "moved" / "all.tar")
        disk.look()
    assert disk.lost == []
    Attempt.objects.all().delete()
    settings.FAULTLINE_DATA_DIR = tmp_path / "new"
    disk = Disk(tmp_path / "new", lambda facts: False)
    monkeypatch.setattr(os, "fsync", disk.fsync)
    import_instance(tmp_path / "moved" / "all.tar")
    with connection.cursor() as cursor:  # as tests/conftest.py does: tables are emptied after a test
        cursor.execute("ALTER TABLE triage_auditentry DISABLE TRIGGER audit_is_never_emptied")
    disk.look()
    assert disk.lost == [] and len(list(BlobStore(tmp_path / "new" / "blobs").list_keys())) == 2


RISKY = ("fsync", "synchronous_commit", "full_page_writes")


def test_no_server_that_keeps_anything_is_told_to_forget() -> None:
    """A commit is acknowledged when it is on the disk: PostgreSQL's default, which only servers of tests change."""
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["postgres"]
    chart = "".join(path.read_text() for path in (ROOT / "deploy").rglob("*") if path.is_file())
    assert not [word for word in RISKY if word in str(compose) + chart]
    source = Path(postgres.__file__).read_text()
    assert [word for word in RISKY if source.count(word) != 1] == [], "once, in THROWAWAY"
    assert "THROWAWAY if self.throwaway else" in source
    with connection.cursor() as cursor:
        cursor.execute("SELECT name FROM pg_settings WHERE name = ANY(%s) AND source = 'client'", [list(RISKY)])
        assert cursor.fetchall() == [], "neither does Faultline for its own connections"


def test_a_disk_keeps_what_was_synced_and_nothing_else(tmp_path: Path) -> None:
    """Of the check itself."""
    disk = Disk(tmp_path / "d", lambda facts: False)
    with (tmp_path / "d" / "a").open("wb") as out:
        out.write(b"one")
        out.flush()
        disk.fsync(out.fileno())
        out.write(b"two")
    disk.look()
    assert disk.lost == ["the name of a", "what is in a"]
    assert io.BytesIO(disk.files.popitem()[1]).read() == b"one"
