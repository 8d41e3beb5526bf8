"""Is what is kept still what was written? Files against the hashes of their streams, evidence against the files,
answers against their rows. Changes nothing, and can run beside the workers.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from django.conf import settings
from django.db import connection
from django.db.models import Count, F, QuerySet

from engine.blocks import MAX_LINE
from triage.blobs import BlobError, BlobStore
from triage.models import Attempt, Diagnosis, Stream, TriageState
from triage.services.masking import mask_piece
from triage.services.retention import UNUSED_SECONDS

_BLOCK = 1 << 20
_FACTS = "attempt.yaml"
"""The stream that evidence names which the scheduler said of the attempt itself."""
_TEXT = ("applog", "syslog")
"""Sources whose evidence is a line of the file itself; others are read as records."""


@dataclass
class Findings:
    """What was looked at, and what is wrong with it, a line each."""

    streams: int = 0
    bytes: int = 0
    diagnoses: int = 0
    lines: int = 0
    problems: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)
    """Blobs that no stream names: room that could be had, no loss."""


def verify(*, since: datetime | None = None, files: bool = True) -> Findings:
    """Looks at everything, or at attempts that became known since then. `files`: read every stream whole."""
    found = Findings()
    attempts = Attempt.objects.all() if since is None else Attempt.objects.filter(created_at__gte=since)
    store = BlobStore(settings.FAULTLINE_DATA_DIR / "blobs")
    if files:
        _check_files(attempts, store, found)
    _check_answers(attempts, store, found)
    _check_nodes(since, found)
    if since is None:
        found.unused = list(_unused(store))
    return found


def _check_files(attempts: QuerySet[Attempt], store: BlobStore, found: Findings) -> None:
    """Every blob is read once, however many streams it stands for."""
    rows = Stream.objects.filter(attempt__in=attempts.values("pk")).exclude(blob="").order_by("blob", "pk")
    seen: tuple[str, tuple[int, int, str] | str] = ("", "")
    for stream in rows.iterator():
        if stream.blob != seen[0]:
            seen = (stream.blob, _read(store, stream.blob))
        found.streams += 1
        facts = seen[1]
        if isinstance(facts, str):
            found.problems.append(f"attempt {stream.attempt_id}: {stream.name}: {facts}")
            continue
        found.bytes += facts[0]
        for name, kept, read in zip(
            ("size", "lines", "sha256"), (stream.size, stream.lines, stream.sha256), facts, strict=True
        ):
            if kept != read:
                found.problems.append(
                    f"attempt {stream.attempt_id}: {stream.name}: {name} is {read} in the file, {kept} in the database"
                )


def _read(store: BlobStore, key: str) -> tuple[int, int, str] | str:
    """Size, lines and hash of a blob; in words, why it can't be read."""
    digest, size, newlines, last = hashlib.sha256(), 0, 0, b"\n"
    try:
        with store.open(key) as content:
            while block := content.read(_BLOCK):
                digest.update(block)
                size, newlines, last = size + len(block), newlines + block.count(b"\n"), block[-1:]
    except (BlobError, OSError) as error:
        return str(error)
    return size, newlines + (last != b"\n"), digest.hexdigest()


def _check_answers(attempts: QuerySet[Attempt], store: BlobStore, found: Findings) -> None:
    for attempt_id in attempts.filter(triage_state=TriageState.DONE, diagnosis=None).values_list("pk", flat=True):
        found.problems.append(f"attempt {attempt_id}: is triaged and has no diagnosis")
    other = attempts.filter(diagnosis__isnull=False).exclude(outcome=F("diagnosis__outcome"))
    for attempt_id in other.values_list("pk", flat=True):
        found.problems.append(f"attempt {attempt_id}: its outcome is not its diagnosis's")
    rows = Diagnosis.objects.filter(attempt__in=attempts.values("pk")).annotate(named=Count("nodes"))
    for diagnosis in rows.order_by("pk").iterator(chunk_size=200):
        found.diagnoses += 1
        named = {node["node"] for node in diagnosis.contract.get("affected_nodes", [])}
        if diagnosis.named != len(named):
            found.problems.append(
                f"attempt {diagnosis.attempt_id}: diagnosis {diagnosis.pk} names {len(named)} nodes and has rows "
                f"for {diagnosis.named}"
            )
    current = Diagnosis.objects.filter(
        pk__in=attempts.filter(triage_state=TriageState.DONE).values("diagnosis")
    ).order_by("pk")
    for diagnosis in current.iterator(chunk_size=200):
        _check_evidence(diagnosis, store, found)


_NODES = """
SELECT one.id FROM triage_attempt AS one WHERE (%(since)s::timestamptz IS NULL OR one.created_at >= %(since)s) AND (
    (SELECT count(*) FROM triage_attemptnode AS kept WHERE kept.attempt_id = one.id)
    <> (SELECT count(*) FROM faultline_nodes_of(one))
    OR EXISTS (
        SELECT * FROM faultline_nodes_of(one) EXCEPT
        SELECT attempt_id, node, cluster_id, queue, workload_id, sort_at, began_on, ended_on, ran, failed, blamed
        FROM triage_attemptnode AS kept WHERE kept.attempt_id = one.id
    )
)
UNION SELECT kept.attempt_id FROM triage_attemptnode AS kept
WHERE %(since)s::timestamptz IS NULL AND NOT EXISTS (SELECT FROM triage_attempt WHERE id = kept.attempt_id)
ORDER BY 1
"""


def _check_nodes(since: datetime | None, found: Findings) -> None:
    with connection.cursor() as cursor:
        cursor.execute(_NODES, {"since": since})
        for (attempt_id,) in cursor.fetchall():
            found.problems.append(
                f"attempt {attempt_id}: where it ran, and what it blames, is not what is kept by node"
            )


def _check_evidence(diagnosis: Diagnosis, store: BlobStore, found: Findings) -> None:
    evidence = [item for item in diagnosis.contract.get("evidence", []) if item["stream"] != _FACTS]
    names = {item["stream"] for item in evidence}
    streams = {s.name: s for s in Stream.objects.filter(attempt=diagnosis.attempt_id, name__in=names)}
    for name in sorted(names - set(streams)):
        found.problems.append(f"attempt {diagnosis.attempt_id}: has evidence of {name}, and no such stream")
    for name, stream in streams.items():
        if not stream.blob:
            continue  # no longer kept
        mine = [item for item in evidence if item["stream"] == name and item["source"] in _TEXT and item["sha256"]]
        found.lines += len(mine)
        try:
            with store.reader(stream.blob) as reader:
                for item in mine:
                    raw = reader.read_range(item["offset"], MAX_LINE).partition(b"\n")[0]
                    if not _same(raw, item["sha256"]):
                        place = f"{name}:{item['line']}"
                        found.problems.append(f"attempt {diagnosis.attempt_id}: {item['id']} is not what {place} says")
        except (BlobError, OSError) as error:
            found.problems.append(f"attempt {diagnosis.attempt_id}: evidence of {name} can't be read: {error}")


def _same(raw: bytes, sha256: str) -> bool:
    """The line as it is stored, or with what is hidden when it is read."""
    return hashlib.sha256(raw).hexdigest() == sha256 or hashlib.sha256(mask_piece(raw)).hexdigest() == sha256


def _unused(store: BlobStore) -> Iterator[str]:
    """Blobs that no stream names, and that are too old to belong to a collection that is still at work."""
    batch: list[str] = []
    for key in store.list_keys():
        batch.append(key)
        if len(batch) == 1000:
            yield from _not_named(store, batch)
            batch = []
    yield from _not_named(store, batch)


def _not_named(store: BlobStore, keys: Iterable[str]) -> list[str]:
    named = set(Stream.objects.filter(blob__in=keys).values_list("blob", flat=True))
    return [key for key in keys if key not in named and store.age(key, time.time()) > UNUSED_SECONDS]
