"""A whole installation as one file for another one: every row and raw stream, whatever the version of PostgreSQL.

Rows are taken in one snapshot, so that an export beside working workers is of one moment. A stream that is removed
meanwhile is missing in the file; `verify` after the import says so. For nightly backups pg_dump is quicker
(docs/operators.md); this is for moving.
"""

from __future__ import annotations

import json
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import zstandard
from django.apps import apps
from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management.color import no_style
from django.db import DataError, IntegrityError, connection, models, transaction
from django.db.migrations.recorder import MigrationRecorder

from triage.blobs.disk import make_folders, put_in_place
from triage.models import Attempt, Stream
from triage.services.sources import blob_store

SCHEMA = "faultline.instance/1"
LEFT_OUT = frozenset({"sessions.Session"})
"""Whoever was signed in signs in again."""


class InstanceRefused(ValueError):
    """It can't be exported or imported; one line that says why."""


def export_instance(path: Path, *, streams: bool = True) -> dict[str, int]:
    """Writes everything to a new .tar. Returns rows by table, and blobs. Raises InstanceRefused, OSError."""
    if path.exists():
        raise InstanceRefused(f"{path} exists already")
    draft = path.with_name(f".{path.name}.part")
    try:
        with transaction.atomic(), tarfile.open(draft, "w") as tar, tempfile.TemporaryDirectory() as scratch:
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            counts = {}
            migrations = _migrations()
            for model in _models():
                file = Path(scratch) / "rows"
                counts[model._meta.label] = _copy_out(model, file)
                tar.add(file, f"rows/{model._meta.label}.zst")
            if streams:
                counts["blobs"] = _add_blobs(tar)
            manifest = {
                "schema": SCHEMA,
                "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
                "migrations": migrations,
                "counts": counts,
            }
            file = Path(scratch) / "manifest"
            file.write_text(json.dumps(manifest, indent=1, sort_keys=True))
            tar.add(file, "manifest.json")
        put_in_place(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    return counts


def import_instance(path: Path) -> dict[str, int]:
    """Takes an export into an installation that has nothing yet: all of it or, when anything is wrong, no row of it.

    Raises InstanceRefused.
    """
    if Attempt.objects.exists() or get_user_model().objects.exists():
        raise InstanceRefused("this installation is not empty: import into a new database, right after `migrate`")
    try:
        with tarfile.open(path) as tar:
            members = {member.name: member for member in tar.getmembers() if member.isreg()}
            if "manifest.json" not in members:
                raise InstanceRefused(f"{path}: is no export, or was cut off: manifest.json is missing")
            manifest = json.loads(_open(tar, members["manifest.json"]).read())
            _check(manifest, path)
            for name, member in members.items():
                if name.startswith("blobs/"):
                    _take_blob(tar, member, name.removeprefix("blobs/"))
            with transaction.atomic(), connection.cursor() as cursor:
                with _without_triggers(cursor):
                    _empty(cursor)
                    for model in _models():
                        rows = _copy_in(cursor, model, _open(tar, members[f"rows/{model._meta.label}.zst"]))
                        if rows != manifest["counts"][model._meta.label]:
                            raise InstanceRefused(f"{path}: rows of {model._meta.label} are missing")
                for statement in connection.ops.sequence_reset_sql(no_style(), _models()):
                    cursor.execute(statement)
    except InstanceRefused:
        raise
    except (tarfile.TarError, zstandard.ZstdError, LookupError, EOFError, ValueError, TypeError) as error:
        raise InstanceRefused(f"{path}: is damaged: {error}") from None
    except (DataError, IntegrityError) as error:
        raise InstanceRefused(f"{path}: is damaged: {' '.join(str(error).split())}") from None
    counts: dict[str, int] = manifest["counts"]
    return counts


def _models() -> list[type[models.Model]]:
    """Every table with rows of its own, also those between two models."""
    found = [
        model
        for model in apps.get_models(include_auto_created=True)
        if model._meta.managed and not model._meta.proxy and model._meta.label not in LEFT_OUT
    ]
    return sorted(found, key=lambda model: model._meta.label)


def _columns(model: type[models.Model]) -> str:
    """What can be written: not what the database generates."""
    fields = [field for field in model._meta.local_concrete_fields if not field.generated]
    return ", ".join(connection.ops.quote_name(field.column) for field in fields)


def _copy_out(model: type[models.Model], file: Path) -> int:
    query = f"COPY (SELECT {_columns(model)} FROM {connection.ops.quote_name(model._meta.db_table)}) TO STDOUT"  # nosec B608
    with connection.cursor() as cursor, file.open("wb") as raw, zstandard.ZstdCompressor().stream_writer(raw) as out:
        with cursor.copy(query) as copy:
            for block in copy:
                out.write(block)
        return int(cursor.rowcount)


def _copy_in(cursor: Any, model: type[models.Model], packed: Any) -> int:
    table = connection.ops.quote_name(model._meta.db_table)
    reader = zstandard.ZstdDecompressor().stream_reader(packed)
    with connection.wrap_database_errors, cursor.copy(f"COPY {table} ({_columns(model)}) FROM STDIN") as copy:
        while block := reader.read(1 << 20):
            copy.write(block)
    return int(cursor.rowcount)


def _add_blobs(tar: tarfile.TarFile) -> int:
    store, added = blob_store(), 0
    for key in Stream.objects.exclude(blob="").order_by("blob").values_list("blob", flat=True).distinct().iterator():
        try:
            tar.add(store.path(key), f"blobs/{key}")
            added += 1
        except FileNotFoundError:
            continue  # pruned meanwhile
    return added


def _take_blob(tar: tarfile.TarFile, member: tarfile.TarInfo, key: str) -> None:
    place = blob_store().path(key)  # refuses what is no key
    make_folders(place.parent, settings.FAULTLINE_DATA_DIR)
    draft = place.with_name(f".{place.name}.part")
    with draft.open("wb") as out:
        shutil.copyfileobj(_open(tar, member), out)
    put_in_place(draft, place)


def _open(tar: tarfile.TarFile, member: tarfile.TarInfo) -> Any:
    content = tar.extractfile(member)
    assert content is not None, "only regular files are asked for"
    return content


def _check(manifest: Any, path: Path) -> None:
    if not isinstance(manifest, dict) or manifest.get("schema") != SCHEMA:
        schema = manifest.get("schema") if isinstance(manifest, dict) else None
        raise InstanceRefused(f"{path}: is not an export of this kind: {schema!r}")
    theirs, ours = set(manifest["migrations"]), set(_migrations())
    if theirs != ours:
        new, old = sorted(theirs - ours), sorted(ours - theirs)
        raise InstanceRefused(
            f"{path}: is of another version: " + "; ".join(
                part for part in (
                    f"this one lacks {', '.join(new[:3])}" if new else "",
                    f"that one lacked {', '.join(old[:3])}" if old else "",
                ) if part
            ) + ". Import with the version that exported, then upgrade"
        )  # fmt: skip


def _migrations() -> list[str]:
    return sorted(f"{app}.{name}" for app, name in MigrationRecorder(connection).applied_migrations())


def _empty(cursor: Any) -> None:
    """What `migrate` wrote: permissions, content types."""
    tables = ", ".join(connection.ops.quote_name(model._meta.db_table) for model in _models())
    cursor.execute(f"TRUNCATE {tables} CASCADE")


@contextmanager
def _without_triggers(cursor: Any) -> Iterator[None]:
    """What triggers would write is in the export."""
    tables = [connection.ops.quote_name(model._meta.db_table) for model in _models()]
    for table in tables:
        cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
    yield
    cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")  # else the tables can't be altered again
    for table in tables:
        cursor.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")
