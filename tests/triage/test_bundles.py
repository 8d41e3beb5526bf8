"""A bundle, or loose files, become one attempt that waits for triage, however often and from wherever they come."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile

from engine.bundle import open_bundle
from tests.triage import cast
from tests.triage.test_verdicts import at_once
from triage.models import Attempt, Collection, CollectionState, Diagnosis, TimelineEvent, TriageState, Workload
from triage.services.bundles import (
    Imported,
    ImportRefused,
    LooseDetails,
    import_bundle,
    import_loose_files,
    import_upload,
)

pytestmark = pytest.mark.django_db


def spooled(data_dir: Path) -> list[str]:
    return sorted(path.name for path in (data_dir / "spool").iterdir())


def test_an_archive_becomes_an_attempt_that_waits(tmp_path: Path) -> None:
    imported = import_bundle(cast.archive(tmp_path / "a.tar.zst", cast.members()))
    attempt = imported.attempt
    assert imported.created and imported.requested
    assert (attempt.workload.workload_id, attempt.number, attempt.cluster.name, attempt.user) == (
        "48213",
        1,
        "c1",
        "ada",
    )
    assert (attempt.started_at, attempt.ended_at, tuple(attempt.nodes)) == (cast.START, cast.END, cast.NODES)
    assert attempt.triage_state == TriageState.PENDING
    (collection,) = attempt.collections.all()
    assert (collection.connector, collection.label, collection.state) == ("files", "a.tar.zst", CollectionState.PENDING)


def test_every_step_is_on_the_timeline_with_who_did_it(tmp_path: Path) -> None:
    ada = User.objects.create_user("ada")
    attempt = import_bundle(cast.archive(tmp_path / "a.tar.zst", cast.members()), actor=ada).attempt
    events = list(attempt.events.values_list("kind", "actor__username"))
    assert events == [("attempt.recorded", "ada"), ("evidence.received", "ada"), ("triage.requested", "ada")]


def test_a_folder_and_its_copy_with_another_name_are_the_same_bundle(tmp_path: Path, data_dir: Path) -> None:
    first = import_bundle(cast.folder(tmp_path / "one", cast.members()))
    again = import_bundle(cast.folder(tmp_path / "two", dict(reversed(cast.members().items()))))
    assert (again.attempt, again.created, again.requested) == (first.attempt, False, False)
    assert Collection.objects.count() == 1
    assert len(spooled(data_dir)) == 1


def test_labels_hidden_files_and_links_of_a_folder_are_left_out(tmp_path: Path, data_dir: Path) -> None:
    bundle = cast.folder(tmp_path / "one", cast.members(**{"expected.yaml": "x", ".git__config": "x"}))
    (tmp_path / "secret").write_text("not yours")
    (bundle / "applog" / "stolen.log").symlink_to(tmp_path / "secret")
    import_bundle(bundle)
    with open_bundle(next((data_dir / "spool").iterdir())) as received:
        assert sorted(stream.name for stream in received.streams) == ["applog/train.log", "syslog/gx-02.log"]


def test_the_same_bundle_twice_at_the_same_time_is_one_attempt(tmp_path: Path, transactional_db: None) -> None:
    path = cast.archive(tmp_path / "a.tar.zst", cast.members())
    done: list[Imported] = at_once([partial(import_bundle, path)] * 4)
    assert sum(imported.created for imported in done) == sum(imported.requested for imported in done) == 1
    assert (Workload.objects.count(), Attempt.objects.count(), Collection.objects.count()) == (1, 1, 1)
    assert TimelineEvent.objects.filter(kind="triage.requested").count() == 1


def test_another_bundle_of_the_same_attempt_adds_its_evidence(tmp_path: Path) -> None:
    first = import_bundle(cast.archive(tmp_path / "a.tar.zst", cast.members()))
    more = import_bundle(
        cast.archive(tmp_path / "b.tar.zst", cast.members(syslog__gx_01="Nov  3 04:00:00 gx-01 kernel: x\n"))
    )
    assert more.attempt == first.attempt
    assert not more.created
    assert first.attempt.collections.count() == 2


def test_what_the_scheduler_says_later_replaces_what_it_said_before(tmp_path: Path) -> None:
    import_bundle(cast.archive(tmp_path / "a.tar.zst", cast.members()))
    changed = cast.members()
    changed["attempt.yaml"] = changed["attempt.yaml"].replace(b"FAILED", b"NODE_FAIL")
    attempt = import_bundle(cast.archive(tmp_path / "b.tar.zst", changed)).attempt
    assert Attempt.objects.get(pk=attempt.pk).state == "NODE_FAIL"
    assert attempt.events.get(kind="attempt.changed").payload == {"changed": ["state"]}


def test_attempts_of_one_workload_are_told_apart_by_number(tmp_path: Path) -> None:
    first, second = (
        import_bundle(cast.archive(tmp_path / f"{n}.tar.zst", cast.members(number=n))).attempt for n in (1, 2)
    )
    assert first != second
    assert first.workload == second.workload


def a_tar(contents: dict[str, bytes], name: str = "a.tar") -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        with tarfile.open(folder / name, "w") as tar:
            for member, content in contents.items():
                info = tarfile.TarInfo(member)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
        return folder / name

    return write


def manifest_with(old: bytes, new: bytes) -> dict[str, bytes]:
    contents = cast.members()
    return {**contents, "attempt.yaml": contents["attempt.yaml"].replace(old, new)}


def a_bomb(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as zipped:
        zipped.writestr("attempt.yaml", cast.members()["attempt.yaml"])
        zipped.writestr("applog/zeros.log", b"0" * 200_000_000)
    return folder / "bomb.zip"


def a_cut_archive(folder: Path) -> Path:
    path = cast.archive(folder / "cut.tar.zst", cast.members(applog__big="x" * 100_000))
    path.write_bytes(path.read_bytes()[:-40])
    return path


def a_file(name: str, content: bytes = b"") -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / name).write_bytes(content)
        return folder / name

    return write


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda folder: folder / "absent.tar", "no such file"),
        (a_file("notes.txt"), "not an archive"),
        (a_file("empty.tar.zst"), "archive"),
        (a_file("noise.tar.gz", b"\x1f\x8b noise"), "damaged archive"),
        (a_cut_archive, "damaged archive"),
        (a_bomb, "unpacks to more than allowed"),
        (a_tar({"../../etc/cron.d/x": b"x", "attempt.yaml": b""}), "leaves the bundle"),
        (a_tar({"applog/a.log": b"x"}), "attempt.yaml: is missing"),
        (a_tar({"attempt.yaml": b"schema: 1\nworkload: {}\nattempt: {}\n"}), "workload.id"),
        (a_tar({"attempt.yaml": b"schema: 1\n  x: [\n"}), "not valid YAML"),
        (a_tar({"attempt.yaml": cast.members()["attempt.yaml"]}), "holds no log"),
        (a_tar(manifest_with(b"number: 1", b"number: 99999999999")), "attempt.number"),
        (a_tar(manifest_with(b"48213", b"4" * 300)), "workload.id"),
    ],
)  # fmt: skip
def test_a_bad_bundle_is_refused_in_one_line_and_leaves_nothing(
    tmp_path: Path, data_dir: Path, make: Callable[[Path], Path], says: str
) -> None:
    path = make(tmp_path)
    with pytest.raises(ImportRefused) as refused:
        import_bundle(path)
    assert says in str(refused.value)
    assert path.name in str(refused.value)
    assert "\n" not in str(refused.value)
    assert Attempt.objects.count() == 0
    assert not (data_dir / "spool").exists() or [n for n in spooled(data_dir) if n.startswith(".")] == []


def test_an_upload_larger_than_allowed_is_refused(settings: object, tmp_path: Path, data_dir: Path) -> None:
    settings.FAULTLINE_MAX_UPLOAD_BYTES = 100  # type: ignore[attr-defined]
    upload = SimpleUploadedFile("a.tar.zst", cast.archive(tmp_path / "a.tar.zst", cast.members()).read_bytes())
    with pytest.raises(ImportRefused, match="larger than 100 bytes"):
        import_upload(upload)
    assert spooled(data_dir) == []


def test_loose_files_become_a_bundle_by_what_they_are(data_dir: Path) -> None:
    uploads = [
        SimpleUploadedFile("slurm-48213.out", cast.APPLOG.encode()),
        SimpleUploadedFile("../../messages", cast.SYSLOG.encode()),
        SimpleUploadedFile("sacct.txt", b"JobID|State|ExitCode\n48213|FAILED|1:0\n"),
        SimpleUploadedFile("gx-01.rank-3.log", b"starting\n"),
    ]
    details = LooseDetails(name="llama", nodes=cast.NODES, started_at=cast.START, ended_at=cast.END, user="ada")
    imported = import_loose_files(uploads, details)
    with open_bundle(next((data_dir / "spool").iterdir())) as bundle:
        found = {stream.name: (stream.source.value, stream.node, stream.rank) for stream in bundle.streams}
    assert found == {
        "applog/slurm-48213.out": ("applog", None, None),
        "applog/gx-01.rank-3.log": ("applog", "gx-01", 3),
        "syslog/gx-02.log": ("syslog", "gx-02", None),
        "scheduler/sacct.txt": ("scheduler", None, None),
    }
    attempt = imported.attempt
    assert (attempt.workload.name, attempt.user, attempt.started_at) == ("llama", "ada", cast.START)
    assert attempt.workload.workload_id.startswith("upload-")


def test_the_same_loose_files_again_are_the_same_attempt() -> None:
    def give() -> Imported:
        return import_loose_files([SimpleUploadedFile("job.log", cast.APPLOG.encode())], LooseDetails(name="x"))

    first, again = give(), give()
    assert first.attempt == again.attempt
    assert (again.created, again.requested) == (False, False)


def test_loose_files_of_one_name_are_all_kept(data_dir: Path) -> None:
    import_loose_files(
        [SimpleUploadedFile("job.log", b"one\n"), SimpleUploadedFile("job.log", b"two\n")], LooseDetails()
    )
    with open_bundle(next((data_dir / "spool").iterdir())) as bundle:
        assert len(bundle.streams) == 2


@pytest.mark.parametrize(
    ("uploads", "details", "says"),
    [
        ([], LooseDetails(), "no file"),
        ([("a.log", b"")], LooseDetails(), "empty"),
        ([("a.log", b"x")], LooseDetails(scheduler="cron"), "scheduler"),
        ([("a.log", b"x")], LooseDetails(started_at=cast.END, ended_at=cast.START), "ended_at"),
    ],
)
def test_loose_files_that_make_no_attempt_are_refused(
    uploads: list[tuple[str, bytes]], details: LooseDetails, says: str
) -> None:
    with pytest.raises(ImportRefused, match=says):
        import_loose_files([SimpleUploadedFile(name, content) for name, content in uploads], details)


def test_times_of_loose_files_without_a_zone_are_utc() -> None:
    naive = datetime(2026, 11, 3, 2, 0)  # noqa: DTZ001 - that is the point
    attempt = import_loose_files([SimpleUploadedFile("a.log", b"x")], LooseDetails(started_at=naive)).attempt
    assert attempt.started_at == naive.replace(tzinfo=UTC)


def test_names_with_what_postgres_refuses_are_kept_readable(tmp_path: Path) -> None:
    manifest = cast.members()["attempt.yaml"].replace(b"name: llama-7b", b'name: "a\\0b"')
    attempt = import_bundle(cast.archive(tmp_path / "a.tar.zst", cast.members(**{"attempt.yaml": manifest}))).attempt
    assert attempt.workload.name == "a\ufffdb"
    assert Diagnosis.objects.count() == 0
