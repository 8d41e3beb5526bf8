"""Attempts as capture bundles to take away: attempt.yaml, the streams, and a person's verdict as expected.yaml.

What goes out is masked once more: rules for secrets may have been added since a stream was stored. Lengths and line
ends stay, so that line numbers and offsets hold. The format is that of every bundle; the engine's tests take it.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import yaml
import zstandard

from engine.bundle import FOLDER_OF, is_compressed, place_of, source_of
from engine.model import Source, rfc3339
from triage.blobs.writer import pieces
from triage.models import Attempt, Stream, Verdict, VerdictKind
from triage.services.facts import engine_attempt
from triage.services.masking import NameMask, SecretMask, mask_text
from triage.services.sources import blob_store

LEVEL = 3
_UNSAFE = re.compile(r"[^A-Za-z0-9._@=,+-]+")
_BLOCK = 512


@dataclass(frozen=True)
class Member:
    """One file of an archive; `content` gives exactly `size` bytes."""

    name: str
    size: int
    content: Callable[[], Iterator[bytes]]


def bundle(
    attempt: Attempt, streams: Iterable[Stream], *, mask_names: bool, verdict: Verdict | None = None
) -> list[Member]:
    """The files of one attempt in a folder of their own. A stream whose bytes are gone is left out."""
    folder = folder_of(attempt)
    names = NameMask([attempt.user, attempt.workload.user] if mask_names else [])
    members = [_text(f"{folder}/attempt.yaml", _manifest(attempt, names))]
    if verdict is not None:
        members.append(_text(f"{folder}/expected.yaml", _label(verdict, names)))
    taken = {"attempt.yaml", "expected.yaml"}
    store = blob_store()
    for stream in streams:
        if not store.has(stream.blob):
            continue
        name = _file_name(stream, attempt.nodes, taken)
        taken.add(name)
        members.append(Member(f"{folder}/{name}", stream.size, _content(stream, names)))
    return members


def folder_of(attempt: Attempt) -> str:
    """`48213-attempt-3`, with the row's number, because workload ids repeat between clusters."""
    workload = _UNSAFE.sub("-", attempt.workload.workload_id).strip("-.")[:80] or "workload"
    return f"{workload}-attempt-{attempt.number}-{attempt.pk}"


def packed(bundles: Iterable[list[Member]]) -> Iterator[bytes]:
    """All of it as a .tar.zst, made while it is read: nothing is held but a piece. Raises BlobError when a stream
    breaks off, so that half an archive is never taken for a whole one.
    """
    compressor = zstandard.ZstdCompressor(level=LEVEL).compressobj()
    for block in _tar(member for members in bundles for member in members):
        if out := compressor.compress(block):
            yield out
    yield compressor.flush()


def _tar(members: Iterable[Member]) -> Iterator[bytes]:
    for member in members:
        info = tarfile.TarInfo(member.name)
        info.size, info.mode = member.size, 0o644
        yield info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
        written = 0
        for piece in member.content():
            written += len(piece)
            yield piece
        if written != member.size:
            raise ValueError(f"{member.name}: {written} bytes instead of {member.size}")
        yield b"\0" * (-member.size % _BLOCK)
    yield b"\0" * (2 * _BLOCK)


# --- files ------------------------------------------------------------------------------------------------------------


def _content(stream: Stream, names: NameMask) -> Callable[[], Iterator[bytes]]:
    def read() -> Iterator[bytes]:
        secrets = SecretMask()
        with blob_store().open(stream.blob) as source:
            for piece in pieces(source):
                yield names(secrets(piece))

    return read


def _file_name(stream: Stream, nodes: list[str], taken: set[str]) -> str:
    """The stream's own name where it is a safe path that says the same of source, node and rank; else one that does."""
    parts = [_UNSAFE.sub("-", part)[:120] for part in PurePosixPath(stream.name).parts if part not in ("/", "..", ".")]
    own = "/".join(part.lstrip(".-") or "part" for part in parts)
    if own == stream.name and not is_compressed(own) and own not in taken and _says(own, stream, nodes):
        return own
    stem = "-".join(parts)[-120:].lstrip(".-") or "stream"
    while is_compressed(stem):  # its bytes are kept unpacked
        stem = stem.rpartition(".")[0] or "stream"
    folder = FOLDER_OF.get(stream.source, "applog")
    who = [part for part in (stream.node and _UNSAFE.sub("-", stream.node), _rank(stream)) if part]
    tries = [f"{folder}/{stem}", f"{folder}/{'.'.join(who)}.log" if who else "", f"{folder}/{'.'.join([*who, stem])}"]
    for name in filter(None, tries):
        if name not in taken and _says(name, stream, nodes):
            return name
    number = 2
    while (name := f"{folder}/{'.'.join([*who, str(number), stem])}") in taken:
        number += 1
    return name


def _rank(stream: Stream) -> str:
    if stream.rank is None:
        return ""
    return str(stream.rank) if stream.source == Source.FLIGHT_RECORDER.value else f"rank-{stream.rank}"


def _says(name: str, stream: Stream, nodes: list[str]) -> bool:
    """Whether a reader of bundles finds out the same."""
    source = Source(stream.source) if stream.source in FOLDER_OF else Source.APPLOG
    if "/" not in name or source_of(name) is not source:
        return False
    return place_of(name, source, nodes) == (stream.node, stream.rank)


def _text(name: str, document: dict[str, Any]) -> Member:
    content = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=118).encode("utf-8", "replace")
    return Member(name, len(content), lambda: iter((content,)))


def _manifest(attempt: Attempt, names: NameMask) -> dict[str, Any]:
    facts = engine_attempt(attempt)
    workload = {
        "id": facts.workload.id,
        "name": facts.workload.name,
        "scheduler": facts.workload.scheduler,
        "cluster": facts.workload.cluster,
        "user": "" if names.hides else facts.workload.user,
        "queue": facts.workload.queue,
    }
    what = {
        "number": facts.number,
        "state": facts.state,
        "exit_code": facts.exit_code,
        "reason": facts.reason,
        "started_at": rfc3339(facts.started_at),
        "ended_at": rfc3339(facts.ended_at),
        "nodes": list(facts.nodes),
        "gpus_per_node": facts.gpus_per_node,
    }
    known = {"workload": workload, "attempt": what}
    return {"schema": 1, **{key: _masked(_known(part), names) for key, part in known.items()}}


def _known(part: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in part.items() if value not in (None, "", [])}


def _label(verdict: Verdict, names: NameMask) -> dict[str, Any]:
    """What a person held to be right, in the terms in which cases are labelled. No names of people."""
    diagnosis = verdict.diagnosis
    root = diagnosis.root_cause or {}
    confirmed = verdict.kind == VerdictKind.CONFIRMED
    family, _, detail = verdict.rule.partition(".")
    named = {"signal": family, "detail": detail} if confirmed and verdict.rule else {}
    device = next((device.rpartition("/")[2] for device in root.get("devices", ())), "") if confirmed else ""
    symptoms = {s["rule"].partition(".")[0] for s in diagnosis.contract.get("symptoms", ()) if s["explained_by"]}
    label = {
        "outcome": diagnosis.outcome,
        "domain": verdict.domain,
        "sub_domain": verdict.sub_domain,
        "root": {**named, "nodes": list(verdict.nodes), **({"device": device} if device else {})},
        "symptoms": sorted(symptoms) if confirmed else [],
        "also_ok": [],
        "also_ok_nodes": [],
        "why": verdict.reason or root.get("why", "") or verdict.title,
        "source": "a person's verdict",
        "verdict": {
            "kind": verdict.kind,
            "title": verdict.title,
            "on": verdict.created_at.date().isoformat(),
            "lines": [*_cited(verdict), *({key: q[key] for key in ("stream", "first", "last")} for q in verdict.lines)],
            "engine": {
                "domain": diagnosis.domain,
                "sub_domain": diagnosis.sub_domain,
                "rule": diagnosis.rule,
                "nodes": list(root.get("nodes", ())),
                "title": diagnosis.title,
                "version": diagnosis.engine_version,
                "ruleset": diagnosis.ruleset,
            },
        },
    }
    masked: dict[str, Any] = _masked(label, names)
    return masked


def _cited(verdict: Verdict) -> list[dict[str, Any]]:
    evidence = verdict.diagnosis.evidence
    items = (evidence[ref] for ref in verdict.evidence if ref in evidence)
    return [{"stream": item["stream"], "first": item["line"], "last": item["line"]} for item in items]


def _masked(value: Any, names: NameMask) -> Any:
    if isinstance(value, str):
        return names(mask_text(value).encode("utf-8", "surrogateescape")).decode("utf-8", "replace")
    if isinstance(value, dict):
        return {key: _masked(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [_masked(item, names) for item in value]
    return value
