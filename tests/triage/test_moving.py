"""A backup is worth what a restore gives: both are done here, with the real programs, into a database of its own."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import zstandard
from django.conf import settings as project
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder

from tests.triage.conftest import Fleet
from tests.triage.test_retention import triaged
from triage.models import Attempt
from triage.services.comments import add_comment
from triage.services.instance import InstanceRefused, export_instance
from triage.supervisor.errors import DemoError
from triage.supervisor.postgres import _find_install

pytestmark = pytest.mark.django_db(transaction=True)
Manage = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def lived_in(tmp_path: Path, django_user_model: type[User]) -> Attempt:
    """An installation with attempts, people and what they said."""
    ada = django_user_model.objects.create_user("ada", password="correct horse battery")
    attempt = triaged(tmp_path, "1")
    triaged(tmp_path, "2", applog__train_log="RuntimeError: \\t tab, \\\\ and ünïcode\n")
    add_comment(attempt, ada, "the third time\nthis week")
    return attempt


@pytest.fixture
def elsewhere(tmp_path: Path, data_dir: Path, settings: object) -> Iterator[Manage]:
    """`elsewhere("migrate")`: manage.py of another installation on the same server, with an empty database."""
    name = f"elsewhere_{os.getpid()}"
    with connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE IF EXISTS {name}")
        cursor.execute(f"CREATE DATABASE {name} TEMPLATE template0")
    url = Fleet(data_dir, tmp_path).environment["DATABASE_URL"]
    url = urlsplit(url)._replace(path=f"/{name}").geturl()
    environment = {**os.environ, "DATABASE_URL": url, "FAULTLINE_DATA_DIR": str(tmp_path / "elsewhere")}

    def manage(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "manage.py", *words], cwd=project.BASE_DIR, env=environment, capture_output=True, text=True
        )

    manage.url = url  # type: ignore[attr-defined]
    manage.data = tmp_path / "elsewhere"  # type: ignore[attr-defined]
    yield manage
    with connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE {name} WITH (FORCE)")


def program(name: str) -> str:
    """Of PostgreSQL; the one that belongs to the server, where that is embedded."""
    try:
        return str(_find_install() / "bin" / name)
    except DemoError:
        found = shutil.which(name)
        assert found, f"{name} is not on the PATH"
        return found


SAID = (
    "from triage.models import *; from django.contrib.auth.models import User; import json; print(json.dumps(["
    "sorted([a.workload.workload_id, a.domain, a.search, a.diagnosis.contract['title'], a.lost_gpu_hours] "
    "for a in Attempt.objects.all()), [c.text for c in Comment.objects.all()], TimelineEvent.objects.count(), "
    "Incident.objects.get().attempts_count, User.objects.get(username='ada').check_password('correct horse battery')]))"
)


def answered(manage: Manage, *words: str) -> str:
    done = manage(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_backup_is_restored_as_the_operators_manual_says(
    lived_in: Attempt, elsewhere: Manage, tmp_path: Path, data_dir: Path
) -> None:
    here = Fleet(data_dir, tmp_path).environment["DATABASE_URL"]
    dump = tmp_path / "faultline.dump"
    subprocess.run([program("pg_dump"), "--format=custom", f"--file={dump}", f"--dbname={here}"], check=True)
    subprocess.run(["cp", "-a", str(data_dir / "blobs"), str(tmp_path / "blobs.backup")], check=True)

    url, data = elsewhere.url, elsewhere.data  # type: ignore[attr-defined]
    restore = [program("pg_restore"), "--no-owner", "--exit-on-error", f"--dbname={url}", str(dump)]
    subprocess.run(restore, check=True)
    data.mkdir()
    subprocess.run(["cp", "-a", str(tmp_path / "blobs.backup"), str(data / "blobs")], check=True)

    answered(elsewhere, "migrate", "--check")
    assert "5 streams" in (words := answered(elsewhere, "verify")) and " 0 problems" in words
    assert "ünïcode" not in answered(elsewhere, "shell", "--no-imports", "-c", SAID)  # it is in the log alone
    shutil.rmtree(data / "blobs")
    assert elsewhere("verify").returncode == 1  # it looks


def test_an_installation_moves_whole_into_another(
    lived_in: Attempt, elsewhere: Manage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call_command("shell", "--no-imports", "-c", SAID)
    here = capsys.readouterr().out
    call_command("export_instance", str(tmp_path / "all.tar"))
    assert "3 streams exported" in capsys.readouterr().out  # of five, that hold three contents
    answered(elsewhere, "migrate", "--no-input")
    assert "3 streams imported" in answered(elsewhere, "import_instance", str(tmp_path / "all.tar"))
    assert answered(elsewhere, "shell", "--no-imports", "-c", SAID) == here
    assert "ada" in here and "the third time\\nthis week" in here
    assert " 0 problems" in answered(elsewhere, "verify")

    # it lives on: ids go on where they were, triggers are at work, and nothing is taken in twice
    bundle = next(Path("samples").resolve().glob("hw-nvlink*.tar.zst"))
    assert f"attempt {Attempt.objects.latest('pk').pk + 1} " in answered(elsewhere, "import_bundle", str(bundle))
    edit = "from triage.models import *; Diagnosis.objects.update(contract={})"
    assert "never edited" in elsewhere("shell", "--no-imports", "-c", edit).stderr
    again = elsewhere("import_instance", str(tmp_path / "all.tar"))
    assert again.returncode == 1 and "is not empty" in again.stderr


def test_what_is_no_whole_export_of_this_version_is_refused_and_leaves_nothing(
    lived_in: Attempt, elsewhere: Manage, tmp_path: Path
) -> None:
    whole = tmp_path / "all.tar"
    export_instance(whole, streams=False)
    with pytest.raises(InstanceRefused, match="exists already"):
        export_instance(whole)
    with pytest.raises(CommandError, match="is not empty"):
        call_command("import_instance", str(whole))
    (tmp_path / "half.tar").write_bytes(whole.read_bytes()[:20_000])
    answered(elsewhere, "migrate", "--no-input")
    half = elsewhere("import_instance", str(tmp_path / "half.tar"))
    assert half.returncode == 1 and ("is damaged" in half.stderr or "was cut off" in half.stderr)
    count = "from triage.models import *; print(Cluster.objects.count())"
    assert answered(elsewhere, "shell", "--no-imports", "-c", count) == "0\n"
    applied = MigrationRecorder(connection).applied_migrations()
    newest, before = sorted((name for app, name in applied if app == "triage"), reverse=True)[:2]
    answered(elsewhere, "migrate", "triage", before, "--no-input")
    older = elsewhere("import_instance", str(whole))
    assert older.returncode == 1 and f"this one lacks triage.{newest}" in older.stderr
    assert "Traceback" not in older.stderr


DAMAGED: dict[str, dict[str, bytes]] = {
    "no text": {"manifest.json": b"\xff\xfe{"},
    "no object": {"manifest.json": b"[1, 2]"},
    "no migrations": {"manifest.json": b'{"schema": "faultline.instance/1"}'},
    "migrations of another kind": {"manifest.json": b'{"schema": "faultline.instance/1", "migrations": 7}'},
    "a blob that leads out": {"manifest.json": b"", "blobs/../../out": b"x"},
    "rows that are none": {"manifest.json": b"", "rows/account.EmailAddress.zst": zstandard.compress(b"no\trow\n")},
}


@pytest.mark.parametrize("members", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_export_is_refused_in_one_line(members: dict[str, bytes], tmp_path: Path) -> None:
    migrations = sorted(".".join(key) for key in MigrationRecorder(connection).applied_migrations())
    sound = json.dumps({"schema": "faultline.instance/1", "migrations": migrations, "counts": {}}).encode()
    with tarfile.open(tmp_path / "all.tar", "w") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content or sound)
            tar.addfile(member, io.BytesIO(content or sound))
    with pytest.raises(CommandError, match=r"is damaged|is not an export") as refused:
        call_command("import_instance", str(tmp_path / "all.tar"))
    assert len(str(refused.value).splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["all.tar"]
