"""Log files on their own, or what a pipe brings, as one attempt of which no scheduler has said anything, or only in
what stands among them.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

import msgspec

from engine.bundle import (
    ARCHIVES,
    FOLDER_OF,
    FOLDERS,
    Bundle,
    BundleError,
    file_stream,
    files_of,
    is_compressed,
    plain,
    read_folder,
    unpacked,
)
from engine.facts import MAX_BYTES, Fact, is_about, is_structured, read_facts
from engine.kinds import HEAD, FileKind, describe
from engine.model import Attempt, Source, SourceReport, Stream, Workload
from engine.records import Told, job_of_names, jobs_of, jobs_of_names, told_of

STDIN = "-"
_KIND_OF_LOG = re.compile(
    r"^(?:kernel|kern|dmesg|syslog|messages|journal|journalctl)(?:[-_.]|$)|[-_.](?:kernel|kern|dmesg|syslog|messages|journal)$",
    re.IGNORECASE,
)
"""What people write around a node's name when they name a file after it: kernel-gpu-02.log, gpu-02.dmesg.log."""
_LOG_NAME = re.compile(
    r"(?i)(?:\.(?:log|out|err|txt|jsonl|stdout|stderr)(?:[.-][\w-]+)*|^(?:stdout|stderr|log|output))$"
)


def is_loose(path: str) -> bool:
    """Whether a path names a log and no bundle; `-` is what stdin brings."""
    return path == STDIN or (Path(path).is_file() and not path.endswith(ARCHIVES))


@contextmanager
def open_logs(
    paths: Sequence[str], *, state: str = "", nodes: Sequence[str] = (), job: str = ""
) -> Iterator[Bundle]:  # fmt: skip
    """All of these files as one attempt. Raises BundleError."""
    with tempfile.TemporaryDirectory(prefix="faultline-") as folder:
        files: dict[str, Path] = {}
        kinds: dict[str, FileKind] = {}
        for number, path in enumerate(paths, 1):
            file = _received(Path(folder)) if path == STDIN else Path(path)
            name = file.name if file.name not in files else f"{number}-{file.name}"
            try:
                files[name], kinds[name] = file, _kind(file, file.name, nodes)
            except BundleError as error:
                raise BundleError(f"{path}: {error}" if len(paths) > 1 else str(error)) from None
        called = job or job_of_names(files)
        yield _as_one(" ".join(paths), files, kinds, state=state, nodes=nodes, job=called, first=Path(paths[0]).name)


@contextmanager
def open_any(path: Path, *, state: str = "", nodes: Sequence[str] = (), job: str = "") -> Iterator[Bundle]:
    """A bundle; a folder or archive without attempt.yaml as the logs of one job. Raises BundleError."""
    with unpacked(path) as folder:
        if (folder / "attempt.yaml").is_file():
            yield read_folder(folder, str(path))
            return
        found, reports = files_of(folder)
        files, kinds = {}, {}
        for name, file in found.items():
            try:
                kind = _kind(file, name, nodes)
                if kind.source is Source.APPLOG and not _LOG_NAME.search(PurePosixPath(_uncompressed(name)).name):
                    raise BundleError("not read: no log by its name")
            except BundleError as error:
                reports.append(SourceReport(source=name, status="error", note=str(error)))
            else:
                files[name], kinds[name] = file, kind
        if not files:
            read_folder(folder, str(path))  # says what a bundle needs
        several = jobs_of_names(files)
        if len(several) > 1 and not job:
            raise BundleError(
                f"holds logs of {len(several)} jobs ({', '.join(several[:3])}): name the files of one job"
            )
        called = job or job_of_names(files)
        bundle = _as_one(str(path), files, kinds, state=state, nodes=nodes, job=called, first=path.name)
        yield msgspec.structs.replace(bundle, reports=(*reports, *bundle.reports))


def _as_one(
    path: str, files: Mapping[str, Path], kinds: Mapping[str, FileKind], *, state: str, nodes: Sequence[str],
    job: str, first: str,
) -> Bundle:  # fmt: skip
    facts = {name: _facts(files[name], kind) for name, kind in kinds.items() if kind.source is Source.SCHEDULER}
    told = _told([fact for some in facts.values() for fact in some], job)
    attempt = Attempt(
        workload=Workload(id=told.job or first, name=told.name),
        state=state or told.state,
        exit_code=told.exit_code,
        reason=told.reason,
        nodes=tuple(nodes) or told.nodes,
        gpus_per_node=told.gpus_per_node,
    )
    streams: list[Stream] = []
    reports = []
    for name, file in files.items():
        if others := _of_others(facts.get(name, []), told.job):
            note = f"tells of other jobs ({', '.join(others[:3])}) and not of {told.job}, not read"
            reports.append(SourceReport(source=name, status="error", note=note))
            continue
        streams.append(_stream(file, name, kinds[name], attempt.nodes))
    return Bundle(path, attempt, tuple(streams), tuple(reports))


def _told(facts: Sequence[Fact], job: str) -> Told:
    """Raises BundleError when nobody says which of several jobs it is about."""
    jobs = jobs_of(facts)
    if not job and len(jobs) > 1:
        raise BundleError(f"the records tell of {len(jobs)} jobs ({', '.join(jobs[:3])}): say which with --job")
    job = job or (jobs[0] if jobs else "")
    return told_of(job, facts) if job else Told()


def _of_others(facts: Sequence[Fact], job: str) -> list[str]:
    """The jobs that a file tells of, when the one that is asked about is not among them."""
    return [] if any(is_about(job, fact) for fact in facts) else jobs_of(facts)


def _facts(file: Path, kind: FileKind) -> list[Fact]:
    if not is_structured(kind.base):
        return []
    try:
        with plain(file.open("rb"), file.name, file.stat().st_size) as content:
            return read_facts(kind.base, content.read(MAX_BYTES + 1), Attempt(workload=Workload(id="")))
    except (OSError, ValueError, EOFError):
        return []  # the engine reads it again, and reports why it can't


def _stream(file: Path, name: str, kind: FileKind, nodes: Sequence[str]) -> Stream:
    inside = PurePosixPath(name)
    own = FOLDERS.get(inside.parts[0]) if len(inside.parts) > 1 else None
    kept = name if own is kind.source else f"{FOLDER_OF[kind.source]}/{inside.with_name(kind.base)}"
    stream = msgspec.structs.replace(file_stream(file, kept, nodes), source=kind.source)
    if kind.source is not Source.SYSLOG or stream.node in nodes:
        return stream
    return msgspec.structs.replace(stream, node=_KIND_OF_LOG.sub("", stream.node or "") or kind.node)


def _received(folder: Path) -> Path:
    file = folder / "stdin.log"
    with file.open("wb") as out:
        shutil.copyfileobj(sys.stdin.buffer, out, 1 << 20)
    return file


def _kind(file: Path, name: str, nodes: Sequence[str]) -> FileKind:
    """By its name and its first bytes. Raises BundleError for what is no text."""
    try:
        raw, size = file.open("rb"), file.stat().st_size
    except OSError as error:
        raise BundleError(error.strerror or "can't be read") from None
    try:
        with plain(raw, file.name, size) as content:
            head = content.read(HEAD)
    except Exception:  # damaged: the engine reads it as far as it can, and reports it
        head = b""
    kind = describe(_uncompressed(name), head, nodes)
    if b"\x00" in head and kind.source is not Source.FLIGHT_RECORDER:
        raise BundleError(f"neither text nor a bundle: a folder, or one of {', '.join(ARCHIVES)}")
    own = FOLDERS.get(PurePosixPath(name).parts[0]) if "/" in name else None
    base = PurePosixPath(name).name
    kind = msgspec.structs.replace(kind, base=kind.base + base[len(_uncompressed(base)) :])
    return (
        kind
        if own is None
        else msgspec.structs.replace(kind, source=own, base=kind.base if own is kind.source else base)
    )


def _uncompressed(name: str) -> str:
    return name.rpartition(".")[0] if is_compressed(name) else name
