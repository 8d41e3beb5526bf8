"""Evidence that arrives in parts: kept as files of one folder an attempt, which is a capture bundle like any other.

A part is first received whole into a draft and then appended under the observation's row lock; what a file has beyond
the recorded size is left from an append that was never acknowledged, and is cut off. Nothing is diagnosed until
somebody asks, or until nothing has come for FAULTLINE_QUIET_SECONDS.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path, PurePosixPath

import msgspec
import yaml
from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models import Count, Sum
from django.db.models.functions import Now

from engine.bundle import FOLDER_OF, BundleError, open_bundle, place_of
from engine.kinds import describe
from engine.model import Source
from triage.blobs.disk import make_folders, put_in_place, sync_folder
from triage.models import Attempt, EventKind, Observation, TriageState
from triage.services import spool
from triage.services.clock import database_now
from triage.services.collecting import add_collection
from triage.services.facts import engine_attempt
from triage.services.folders import private_folder
from triage.services.triage import request_triage

ROOT = "observed"
"""Name of the folder among the roots of the files connector."""
SOURCES = {folder: source for source, folder in FOLDER_OF.items()}
MAX_STREAMS = 10_000
MAX_NAME = 400
_PART = re.compile(r"[\w+@=-][\w.+@=-]*", re.ASCII)
_BLOCK = 1 << 20


class ObservationRefused(ValueError):
    """Something can't be received: `field` names it, `code` is invalid, conflict, gone or too_large."""

    def __init__(self, field: str, message: str, code: str = "invalid", offset: int | None = None) -> None:
        super().__init__(message)
        self.field, self.code, self.offset = field, code, offset


@dataclass(frozen=True)
class Appended:
    """What became of a part."""

    observation: Observation
    created: bool
    added: int
    """Bytes that were new; 0 for a part that was there already."""


def folder() -> Path:
    """Where observations lie; only the service's own user may look into it."""
    return private_folder("observed")


def stream_name(
    name: str, head: bytes, nodes: Sequence[str], *, source: str = "", node: str = "", rank: int | None = None
) -> str:
    """The name under which a stream is kept: it tells source, node and rank. Raises ObservationRefused."""
    parts = PurePosixPath(name).parts
    if not parts or len(name) > MAX_NAME or not all(_PART.fullmatch(part) for part in parts):
        rule = f"letters, digits and ._+@=- in parts divided by /, none of them hidden, at most {MAX_NAME} characters"
        raise ObservationRefused("name", f"must be like applog/train.log: {rule}")
    if name.endswith(("attempt.yaml", "expected.yaml")):
        raise ObservationRefused("name", "is what a bundle says of itself; state facts of the attempt instead")
    if source and source not in SOURCES and source not in set(Source):
        raise ObservationRefused("source", f"must be one of {', '.join(Source)}")
    if node and not _PART.fullmatch(node):
        raise ObservationRefused("node", "must be a host name")
    own = SOURCES.get(parts[0]) if len(parts) > 1 else None
    told = None
    if source:
        kind = SOURCES.get(source) or Source(source)
    elif own is not None:
        kind = own
    elif head:
        told = describe(name, head, nodes)
        kind, node = told.source, node or (told.node or "" if told.source is Source.SYSLOG else "")
    else:
        raise ObservationRefused("name", f"must begin with {'/, '.join(SOURCES)}/, or source must be given")
    rest = list(parts[1:] if own else parts)
    if told is not None:
        rest[-1] = told.base
    known = [*nodes, node] if node else list(nodes)
    at_node, at_rank = place_of("/".join([FOLDER_OF[kind], *rest]), kind, known)
    if rank is not None and at_rank != rank:
        rest[-1] = f"rank{rank}-{rest[-1]}"
    if node and at_node != node:
        rest = [f"{node}.log"] if kind is Source.SYSLOG and len(rest) == 1 else [node, *rest]
    return "/".join([FOLDER_OF[kind], *rest])


def append_part(
    attempt_id: int, name: str, draft: Path, *, offset: int | None = None, node: str = "",
    actor: AbstractBaseUser | None = None,
) -> Appended:  # fmt: skip
    """Adds a received part to a stream, at `offset` when it is given, else at the end. Raises ObservationRefused.

    A part that lies wholly within what is there, with the same bytes, changes nothing: a client may send it again.
    """
    with transaction.atomic():
        attempt = Attempt.objects.select_for_update(of=("self",)).select_related("workload", "cluster").get(
            pk=attempt_id
        )  # fmt: skip
        observation = Observation.objects.filter(attempt=attempt, name=name).first()
        if observation is None:  # no other is made meanwhile: the attempt's row is locked
            observation = Observation(attempt=attempt, name=name, node=node)
        created = observation.pk is None
        if observation.pruned_at is not None:
            raise ObservationRefused(
                "name", "its bytes were diagnosed and are no longer kept for appending: use another name", "gone"
            )
        size = draft.stat().st_size
        if offset is not None and offset != observation.size:
            _check_repeated(attempt, observation, draft, offset, size)
            return Appended(observation, False, 0)
        others = _check_room(attempt, size, created=created)
        if created and not others:
            _note_first(attempt, actor)
        _append(_path(attempt_id, name), observation.size, draft)
        observation.size += size
        observation.parts += 1
        observation.save()
        _wait_for_more(attempt)
        return Appended(observation, created, size)


def append_bundle(attempt_id: int, archive: Path, *, actor: AbstractBaseUser | None = None) -> list[Observation]:
    """Every stream of a capture bundle becomes an observation; one that is there with these bytes stays as it is.

    The bundle's own attempt.yaml is not looked at. Raises ObservationRefused.
    """
    kept: list[Observation] = []
    try:
        with open_bundle(archive) as bundle, spool.draft(".part") as draft:
            for stream in bundle.streams:
                with stream.open() as content:
                    spool.copy(content, draft, settings.FAULTLINE_MAX_UPLOAD_BYTES)
                name = (
                    stream.name
                    if stream.name.split("/", 1)[0] in SOURCES
                    else f"{FOLDER_OF[stream.source]}/{stream.name}"
                )
                for suffix in (".gz", ".zst", ".xz", ".bz2"):
                    name = name.removesuffix(suffix)  # its bytes are plain now
                name = stream_name(_plain(name), b"", bundle.attempt.nodes)
                kept.append(
                    append_part(attempt_id, name, draft, offset=0, node=stream.node or "", actor=actor).observation
                )
    except (BundleError, spool.SpoolError) as error:
        raise ObservationRefused("body", " ".join(str(error).split())) from None
    return kept


@transaction.atomic
def rewrite(attempt_id: int, name: str) -> None:
    """Forgets the bytes of a stream whose file was replaced; what is appended next is its beginning."""
    Attempt.objects.select_for_update().get(pk=attempt_id)
    Observation.objects.filter(attempt=attempt_id, name=name).update(size=0, pruned_at=None)


@transaction.atomic
def ask_for_diagnosis(
    attempt_id: int, *, again: bool = False, reason: str = "", actor: AbstractBaseUser | None = None
) -> bool:
    """Has an attempt diagnosed from all that is there now. False when nothing is new since it was last asked.

    `again` has it done whatever is new.
    """
    attempt = Attempt.objects.select_for_update(of=("self",)).select_related("workload", "cluster").get(pk=attempt_id)
    parts = list(Observation.objects.filter(attempt=attempt, pruned_at=None).values_list("name", "size", "node"))
    news = attempt.triage_requested_at is None or attempt.triage_state == TriageState.FAILED or again
    if parts:
        _write_manifest(attempt, parts)
        _, changed = add_collection(
            attempt,
            "files",
            f"{ROOT}:{attempt.pk}",
            label=f"{len(parts)} observation{'s' if len(parts) > 1 else ''}",
            content_key=_content_key(attempt, parts),
            actor=actor,
        )
        news = news or changed
    elif attempt.triage_requested_at is not None:
        changed_since = attempt.events.filter(
            kind=EventKind.ATTEMPT_CHANGED, recorded_at__gt=attempt.triage_requested_at
        )
        news = news or changed_since.exists()
    return news and request_triage(attempt.pk, reason=reason or "asked for", actor=actor)


def prune(*, older_than: timedelta, limit: int = 200) -> int:
    """Deletes the files of observations that are diagnosed and got no part for so long; the blob store has them.

    Returns how many observations that were.
    """
    before = database_now() - older_than
    old = Observation.objects.filter(pruned_at=None, changed_at__lt=before, attempt__triage_state=TriageState.DONE)
    pruned = 0
    for attempt_id in list(old.values_list("attempt", flat=True).distinct().order_by("attempt")[:limit]):
        with transaction.atomic():
            attempt = Attempt.objects.select_for_update().get(pk=attempt_id)
            mine = Observation.objects.filter(attempt=attempt, pruned_at=None)
            if attempt.triage_state != TriageState.DONE or mine.filter(changed_at__gte=before).exists():
                continue
            pruned += mine.update(pruned_at=Now())
            shutil.rmtree(folder() / str(attempt_id), ignore_errors=True)
    return pruned


# --- parts ------------------------------------------------------------------------------------------------------------


def _path(attempt_id: int, name: str) -> Path:
    return folder() / str(attempt_id) / name


def _plain(name: str) -> str:
    parts = [re.sub(r"[^\w.+@=-]", "_", part, flags=re.ASCII).lstrip(".") or "_" for part in PurePosixPath(name).parts]
    return "/".join(parts)[:MAX_NAME]


def _append(path: Path, size: int, draft: Path) -> None:
    try:
        make_folders(path.parent, folder())
        with path.open("r+b" if path.exists() else "w+b") as out, draft.open("rb") as part:
            out.truncate(size)
            out.seek(size)
            while block := part.read(_BLOCK):
                out.write(block)
            out.flush()
            os.fsync(out.fileno())
        if not size:  # the first that is acknowledged, though one that was cut off may have made the file
            sync_folder(path.parent)
    except (FileExistsError, NotADirectoryError, IsADirectoryError):
        raise ObservationRefused("name", "is a folder of other streams, or lies below one", "conflict") from None


def _check_repeated(attempt: Attempt, observation: Observation, draft: Path, offset: int, size: int) -> None:
    if offset + size <= observation.size:
        with _path(attempt.pk, observation.name).open("rb") as kept, draft.open("rb") as part:
            kept.seek(offset)
            while block := part.read(_BLOCK):
                if kept.read(len(block)) != block:
                    break
            else:
                return
        message = f"other bytes were received for {offset} to {offset + size}"
    else:
        message = f"is not where the stream ends: {observation.size} bytes are there"
    raise ObservationRefused("offset", message, "conflict", offset=observation.size)


def _check_room(attempt: Attempt, added: int, *, created: bool) -> int:
    """How many streams there are so far. Raises ObservationRefused."""
    there = Observation.objects.filter(attempt=attempt).aggregate(count=Count("*"), total=Sum("size"))
    count, total = int(there["count"]), there["total"] or 0
    if created and count >= MAX_STREAMS:
        raise ObservationRefused("name", f"an attempt has at most {MAX_STREAMS} streams", "too_large")
    if total + added > settings.FAULTLINE_MAX_ATTEMPT_BYTES:
        limit = settings.FAULTLINE_MAX_ATTEMPT_BYTES
        raise ObservationRefused("body", f"an attempt has at most {limit} bytes; {total} are there", "too_large")
    return count


def _note_first(attempt: Attempt, actor: AbstractBaseUser | None) -> None:
    """So that the folder is collected also when nobody asks."""
    if not attempt.collections.filter(connector="files", ref=f"{ROOT}:{attempt.pk}").exists():
        _write_manifest(attempt, [])
        add_collection(attempt, "files", f"{ROOT}:{attempt.pk}", label="observations", actor=actor)


def _wait_for_more(attempt: Attempt) -> None:
    """An attempt that was never triaged is, once nothing has come for a while: the sweep looks at this time.

    It is moved on by steps: a row with so many indexes is not written again for each of a hundred parts.
    """
    if attempt.triage_state == TriageState.PENDING and attempt.triage_requested_at is None:
        quiet = settings.FAULTLINE_QUIET_SECONDS
        behind = Attempt.objects.filter(pk=attempt.pk, triage_queued_at__lt=Now() + timedelta(seconds=quiet * 0.95))
        behind.update(triage_queued_at=Now() + timedelta(seconds=quiet))


def _write_manifest(attempt: Attempt, parts: Iterable[tuple[str, int, str]]) -> None:
    """attempt.yaml of the folder: the nodes are what names of streams are read with."""
    nodes = list(dict.fromkeys([*attempt.nodes, *(node for _, _, node in parts if node)]))
    document = {"schema": 1, "workload": {"id": attempt.workload.workload_id}, "attempt": {"nodes": nodes}}
    place = folder() / str(attempt.pk) / "attempt.yaml"
    content = yaml.safe_dump(document, allow_unicode=True).encode()
    if place.exists() and place.read_bytes() == content:
        return
    make_folders(place.parent, folder())
    draft = place.with_name(".attempt.yaml")
    draft.write_bytes(content)
    put_in_place(draft, place)


def _content_key(attempt: Attempt, parts: Iterable[tuple[str, int, str]]) -> str:
    facts = msgspec.to_builtins(engine_attempt(attempt))
    return hashlib.sha256(msgspec.json.encode([facts, sorted(parts)], order="sorted")).hexdigest()
