"""A capture bundle, or loose log files, become an attempt that waits for triage.

The command, the upload form, the API and the watched folders all come through here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

import yaml
from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.core.files.uploadedfile import UploadedFile
from django.db import transaction

from connectors.base import FoundAttempt
from engine import model as engine
from engine.bundle import FOLDER_OF, BundleError, open_bundle
from engine.kinds import HEAD, describe
from engine.model import Source
from triage.models import Attempt, CollectionState, TriageState
from triage.services import spool
from triage.services.attempts import AttemptRefused, record_attempt
from triage.services.collecting import add_collection
from triage.services.triage import request_triage

FILES = "files"
"""The connector that reads bundles."""
SCHEDULERS = ("static", "slurm", "kueue")


class ImportRefused(ValueError):
    """What was given is no usable bundle; one line that names file and key."""


@dataclass(frozen=True)
class Imported:
    """What became of a bundle."""

    attempt: Attempt
    created: bool
    """Whether the attempt was not known before."""
    requested: bool
    """Whether triage was asked for; False when this very bundle had been received before."""


@dataclass(frozen=True)
class LooseDetails:
    """What is known of the attempt that loose log files belong to. Everything may be left out."""

    name: str = ""
    workload_id: str = ""
    scheduler: str = "static"
    cluster: str = ""
    user: str = ""
    nodes: Sequence[str] = ()
    started_at: datetime | None = None
    ended_at: datetime | None = None
    state: str = ""
    exit_code: str = ""
    gpus_per_node: int | None = None


def import_bundle(path: Path, *, actor: AbstractBaseUser | None = None) -> Imported:
    """A folder or archive on this machine. Raises ImportRefused, whose message names the path."""
    try:
        if path.is_dir():
            with spool.draft() as packed:
                spool.pack_folder(path, packed)
                return _receive(packed, path.name, actor)
        if not path.exists():
            raise ImportRefused("no such file or folder")
        suffix = spool.archive_suffix(path.name)
        with path.open("rb") as content, spool.draft(suffix) as copied:
            spool.copy(content, copied, limit=2**63)
            return _receive(copied, path.name, actor)
    except (ImportRefused, spool.SpoolError) as error:
        raise ImportRefused(f"{path}: {error}") from None
    except OSError as error:
        raise ImportRefused(f"{path}: {error.strerror or error}") from None


def import_upload(upload: UploadedFile, *, actor: AbstractBaseUser | None = None) -> Imported:
    """An archive that somebody uploaded. Raises ImportRefused, whose message names the file."""
    name = _plain_name(upload.name)
    try:
        suffix = spool.archive_suffix(name)
        with spool.draft(suffix) as copied:
            spool.copy(cast(BinaryIO, upload), copied, settings.FAULTLINE_MAX_UPLOAD_BYTES)
            return _receive(copied, name, actor)
    except (ImportRefused, spool.SpoolError) as error:
        raise ImportRefused(f"{name}: {error}") from None


def import_loose_files(
    uploads: Sequence[UploadedFile], details: LooseDetails, *, actor: AbstractBaseUser | None = None
) -> Imported:
    """Loose log files of one attempt: packed as a bundle, then received like one. Raises ImportRefused."""
    if not uploads:
        raise ImportRefused("no file was given")
    total = sum(upload.size or 0 for upload in uploads)
    if total > settings.FAULTLINE_MAX_UPLOAD_BYTES:
        raise ImportRefused(f"the files are larger than {settings.FAULTLINE_MAX_UPLOAD_BYTES} bytes together")
    if not total:
        raise ImportRefused("the files are empty")
    if details.scheduler not in SCHEDULERS:
        raise ImportRefused(f"scheduler: {details.scheduler!r} is not one of {', '.join(SCHEDULERS)}")
    if details.started_at and details.ended_at and details.ended_at < details.started_at:
        raise ImportRefused("ended_at: is before started_at")
    members = _members(uploads, details.nodes)
    label = _plain_name(uploads[0].name) + (f" and {len(uploads) - 1} more" if len(uploads) > 1 else "")
    with spool.draft() as packed:
        spool.pack_files(members, packed)
        manifest = _manifest(details, spool.sha256(packed))
        spool.pack_files([*members, ("attempt.yaml", BytesIO(manifest), len(manifest))], packed)
        return _receive(packed, label, actor)


def import_found(found: FoundAttempt, connector: str, *, actor: AbstractBaseUser | None = None) -> Imported:
    """An attempt that a connector found. Raises ImportRefused."""
    return _record(found.attempt, connector, found.ref, found.label, found.content_key, actor)


def _receive(draft: Path, label: str, actor: AbstractBaseUser | None) -> Imported:
    """A complete draft in the spool becomes an attempt, or adds to one. Raises ImportRefused when it can't be read."""
    try:
        with open_bundle(draft) as bundle:
            facts = bundle.attempt
            if not bundle.streams:
                raise ImportRefused("holds no log, only attempt.yaml")
    except BundleError as error:
        raise ImportRefused(" ".join(str(error).split())) from None
    received = spool.keep(draft)
    return _record(facts, FILES, received.ref, label, received.sha256, actor)


@transaction.atomic
def _record(
    facts: engine.Attempt, connector: str, ref: str, label: str, content_key: str, actor: AbstractBaseUser | None
) -> Imported:
    try:
        attempt, created = record_attempt(facts, actor=actor)
    except AttemptRefused as error:
        raise ImportRefused(str(error)) from None
    collection, news = add_collection(attempt, connector, ref, label=label, content_key=content_key, actor=actor)
    if not news and collection.state == CollectionState.DONE:
        spool.discard(ref)  # its streams are in the blob store already
    news = news or attempt.triage_state == TriageState.FAILED
    requested = news and request_triage(attempt.pk, reason=f"received {label}"[:200], actor=actor)
    attempt.refresh_from_db(fields=["triage_state", "triage_run"])
    return Imported(attempt, created, requested)


def _members(uploads: Sequence[UploadedFile], nodes: Sequence[str]) -> list[tuple[str, BinaryIO, int]]:
    members: dict[str, tuple[str, BinaryIO, int]] = {}
    for upload in uploads:
        name = _plain_name(upload.name)
        upload.seek(0)
        kind = describe(name, upload.read(HEAD), nodes)
        base = f"{kind.node}.log" if kind.source is Source.SYSLOG and kind.node else kind.base
        place, count = f"{FOLDER_OF[kind.source]}/{base}", 1
        while place in members:
            count += 1
            stem, dot, ending = base.partition(".")
            place = f"{FOLDER_OF[kind.source]}/{stem}-{count}{dot}{ending}"
        members[place] = (place, cast(BinaryIO, upload), upload.size or 0)
    return list(members.values())


def _manifest(details: LooseDetails, content: str) -> bytes:
    """attempt.yaml of loose files; without an id the content names the workload, so that the same files meet again."""
    workload = {
        "id": details.workload_id.strip() or f"upload-{content[:12]}",
        "name": details.name.strip(),
        "scheduler": details.scheduler,
        "cluster": details.cluster.strip(),
        "user": details.user.strip(),
    }
    attempt = {
        "number": 1,
        "state": details.state.strip(),
        "exit_code": details.exit_code.strip() or None,
        "started_at": _iso(details.started_at),
        "ended_at": _iso(details.ended_at),
        "nodes": [node.strip() for node in details.nodes if node.strip()],
        "gpus_per_node": details.gpus_per_node,
    }
    document = {
        "schema": 1,
        "workload": {key: value for key, value in workload.items() if value},
        "attempt": {key: value for key, value in attempt.items() if value not in (None, "", [])},
    }
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True).encode()


def _iso(at: datetime | None) -> str | None:
    if at is None:
        return None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC).isoformat()


def _plain_name(name: str | None) -> str:
    """The last part of a file name that a browser gave, without characters that mean something elsewhere."""
    base = PurePosixPath((name or "").replace("\\", "/")).name
    return re.sub(r"[^\w.+@=-]", "_", base).lstrip(".")[:200] or "file"
