"""Opens a capture bundle: a folder or an archive with attempt.yaml and the files of one attempt.

Archives are bounded in size, ratio, number and paths of their members. Every fault is one line that names file and key.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import os
import re
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import IO, Any, BinaryIO, cast

import msgspec
import zstandard

from engine.lines import printable
from engine.manifest import MAX_MANIFEST, one_line, parse_attempt, short
from engine.manifest import BundleError as BundleError
from engine.model import Attempt, Source, SourceReport, Stream
from engine.names import short_names

ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.xz", ".zip")
FOLDER_OF = {
    Source.APPLOG: "applog",
    Source.SYSLOG: "syslog",
    Source.SCHEDULER: "scheduler",
    Source.METRIC: "metrics",
    Source.FLIGHT_RECORDER: "flight_recorder",
}
"""The folder that a bundle keeps each kind of evidence in; in those of FOLDERS it is found as well."""
FOLDERS = {
    "applog": Source.APPLOG,
    "applogs": Source.APPLOG,
    "logs": Source.APPLOG,
    "app": Source.APPLOG,
    "syslog": Source.SYSLOG,
    "dmesg": Source.SYSLOG,
    "journal": Source.SYSLOG,
    "kernel": Source.SYSLOG,
    "scheduler": Source.SCHEDULER,
    "metrics": Source.METRIC,
    "metric": Source.METRIC,
    "flight_recorder": Source.FLIGHT_RECORDER,
}
_RANK = re.compile(r"(?:^|[._/-])(?:rank|r|task|proc)[._-]?(\d{1,6})(?=$|[._/-])", re.IGNORECASE)
_TRAILING_NUMBER = re.compile(r"(\d{1,6})\D*$")
_COMPRESSED = (".gz", ".zst", ".xz", ".bz2")


MAX_UNPACKED = 2 * 2**30
"""Bytes that a compressed log may always unpack to, however small it is."""


class Limits(msgspec.Struct, frozen=True):
    """What an archive may cost."""

    total_bytes: int = 64 * 2**30
    ratio: int = 400
    free_bytes: int = 64 * 2**20
    """Unpacked bytes up to which the ratio is not looked at: small archives of logs shrink a lot."""
    members: int = 200_000


class Bundle(msgspec.Struct, frozen=True):
    path: str
    attempt: Attempt
    streams: tuple[Stream, ...]
    reports: tuple[SourceReport, ...] = ()


@contextmanager
def open_bundle(path: Path, limits: Limits = Limits()) -> Iterator[Bundle]:  # noqa: B008 - frozen
    """Open a folder or archive as a Bundle; an archive is unpacked for as long as the context lasts. Raises
    BundleError.
    """
    with unpacked(path, limits) as folder:
        yield read_folder(folder, str(path))


@contextmanager
def unpacked(path: Path, limits: Limits = Limits()) -> Iterator[Path]:  # noqa: B008 - frozen
    """A folder as it is; that of an archive for as long as the context lasts. Raises BundleError."""
    if path.is_dir():
        yield path
        return
    if not path.is_file():
        raise BundleError("no such file or folder")
    if not path.name.endswith(ARCHIVES):
        raise BundleError(f"not a bundle: a folder, or one of {', '.join(ARCHIVES)}")
    with tempfile.TemporaryDirectory(prefix="faultline-") as into:
        try:
            unpack(path, Path(into), limits)
        except BundleError:
            raise
        except OSError as error:
            raise BundleError(f"damaged archive: {error.strerror or one_line(error)}") from None
        except Exception as error:  # each of the five formats has its own ways to be damaged
            raise BundleError(f"damaged archive: {one_line(error)}") from None
        yield _top(Path(into))


def unpack(archive: Path, into: Path, limits: Limits) -> None:
    """Unpack regular files only, never outside `into`."""
    packed = max(archive.stat().st_size, 1)
    budget = min(limits.total_bytes, max(limits.free_bytes, packed * limits.ratio))
    seen = 0
    for name, content in _members(archive, budget):
        with content:
            seen += 1
            if seen > limits.members:
                raise BundleError(f"more than {limits.members} members")
            target = into / _safe_name(name)
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as out:
                while block := content.read(1 << 20):
                    budget -= len(block)
                    if budget < 0:
                        said = f"unpacks to more than allowed ({limits.ratio} times its size)"
                        raise BundleError(f"{said}; stopped at {short(name)}")
                    out.write(block)
    if not seen:
        raise BundleError("empty archive")


def _members(archive: Path, budget: int) -> Iterator[tuple[str, IO[bytes]]]:
    if archive.name.endswith(".zip"):
        with zipfile.ZipFile(archive) as zipped:
            for info in zipped.infolist():
                if info.is_dir():
                    continue
                if (info.external_attr >> 16) & 0o170000 == 0o120000:
                    raise BundleError(f"{short(info.filename)}: links are not allowed in a bundle")
                yield info.filename, zipped.open(info)
        return
    with (
        archive.open("rb") as raw,
        io.BufferedReader(_Bounded(_decompressed(raw, archive.name), budget + (1 << 20))) as plain,
        tarfile.open(fileobj=plain, mode="r|") as tar,
    ):
        for member in tar:
            if member.isdir():
                continue
            content = tar.extractfile(member) if member.isreg() else None
            if content is None:
                raise BundleError(f"{short(member.name)}: only regular files are allowed in a bundle")
            yield member.name, content


def _decompressed(raw: BinaryIO, name: str) -> BinaryIO:
    if name.endswith((".gz", ".tgz")):
        return cast(BinaryIO, gzip.GzipFile(fileobj=raw))
    if name.endswith(".zst"):
        return cast(
            BinaryIO, io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True))
        )
    if name.endswith(".xz"):
        return cast(BinaryIO, lzma.LZMAFile(raw))
    if name.endswith(".bz2"):
        return cast(BinaryIO, bz2.BZ2File(raw))
    return raw


def _safe_name(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\x00" in name or "\\" in name or not path.parts:
        raise BundleError(f"{short(name)}: leaves the bundle")
    return path


def _top(folder: Path) -> Path:
    """The folder with attempt.yaml: the archive's root, or its only folder."""
    while not (folder / "attempt.yaml").exists():
        inside = [entry for entry in folder.iterdir() if not entry.name.startswith((".", "__MACOSX"))]
        if len(inside) != 1 or not inside[0].is_dir():
            break
        folder = inside[0]
    return folder


def read_folder(folder: Path, path: str) -> Bundle:
    """A folder as a Bundle. Raises BundleError."""
    manifest = folder / "attempt.yaml"
    if not manifest.is_file():
        raise BundleError(
            "attempt.yaml: is missing; without one, name each log file of one job, like slurm-7.out kernel-gpu-02.log"
        )
    try:
        with manifest.open("rb") as content:
            attempt = parse_attempt(content.read(MAX_MANIFEST + 1))
    except OSError as error:
        raise BundleError(f"attempt.yaml: {error.strerror or one_line(error)}") from None
    files, reports = files_of(folder)
    streams = [file_stream(file, name, attempt.nodes) for name, file in files.items()]
    return Bundle(path, attempt, tuple(streams), tuple(reports))


def files_of(folder: Path) -> tuple[dict[str, Path], list[SourceReport]]:
    """Name -> file of everything that may be evidence, in order, and what was not followed."""
    root = folder.resolve()
    files: dict[str, Path] = {}
    reports = []
    for file in sorted(folder.rglob("*"), key=lambda f: f.relative_to(folder).as_posix()):
        name = _readable(file.relative_to(folder).as_posix())
        if file.name.startswith(".") or name in ("attempt.yaml", "expected.yaml") or not file.is_file():
            continue
        if root not in file.resolve().parents:
            reports.append(
                SourceReport(source=name, status="error", note="a link that leaves the bundle was not followed")
            )
            continue
        files[name] = file
    return files, reports


def _readable(name: str) -> str:
    """A file name that can be printed and kept as UTF-8, whatever bytes it has."""
    return printable(os.fsencode(name).decode("utf-8", "backslashreplace"))


def file_stream(file: Path, name: str, nodes: Sequence[str] = ()) -> Stream:
    """One file as a Stream; its source, node and rank by its name."""
    source = source_of(name)
    node, rank = place_of(name, source, nodes)

    def open_file() -> BinaryIO:
        return plain(file.open("rb"), file.name, file.stat().st_size)

    size = -1 if is_compressed(file.name) else file.stat().st_size
    return Stream(name=name, source=source, open=open_file, size=size, node=node, rank=rank)


def source_of(name: str) -> Source:
    """What the folder of a file in a bundle says that it holds; a log of the job when it says nothing."""
    return FOLDERS.get(name.split("/", 1)[0] if "/" in name else "", Source.APPLOG)


def is_compressed(name: str) -> bool:
    """Whether a file's name says that it is compressed."""
    return name.endswith(_COMPRESSED)


def plain(raw: BinaryIO, name: str, packed: int) -> BinaryIO:
    """What a file of that name and size holds: unpacked, within bounds, and as UTF-8. Closes `raw` with it."""
    content = _decompressed(raw, name)
    if content is raw:
        return _as_utf8(raw)
    limit = max(MAX_UNPACKED, Limits().ratio * packed)
    return _as_utf8(cast(BinaryIO, io.BufferedReader(_Bounded(content, limit, raw))))


def loose_stream(file: Path) -> Stream:
    """A file on its own, outside a bundle."""
    return file_stream(file, file.name)


def _as_utf8(content: BinaryIO) -> BinaryIO:
    """UTF-16 text (by its BOM) as UTF-8; everything else as it is."""
    head = content.read(2)
    if head not in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        if content.seekable():
            content.seek(0)
            return content
        return cast(BinaryIO, io.BufferedReader(_Joined(head, content)))
    encoding = "utf-16-le" if head == codecs.BOM_UTF16_LE else "utf-16-be"
    return cast(BinaryIO, codecs.EncodedFile(cast(Any, content), "utf-8", encoding, errors="replace"))


class _Joined(io.RawIOBase):
    """A head already read, then the rest."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._head, self._rest = head, rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = self._head or self._rest.read(len(buffer))
        self._head = block[len(buffer) :] if block is self._head else b""
        block = block[: len(buffer)]
        buffer[: len(block)] = block
        return len(block)

    def close(self) -> None:
        if not self.closed:
            self._rest.close()
        super().close()


class _Bounded(io.RawIOBase):
    """Unpacked bytes up to a limit: what unpacks to more is not evidence. Closes what it reads from, and `below`."""

    def __init__(self, content: BinaryIO, limit: int, below: BinaryIO | None = None) -> None:
        self._content, self._limit, self._left, self._below = content, limit, limit, below

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = self._content.read(len(buffer))
        self._left -= len(block)
        if self._left < 0:
            raise BundleError(f"unpacks to more than {self._limit} bytes")
        buffer[: len(block)] = block
        return len(block)

    def close(self) -> None:
        if not self.closed:
            self._content.close()
            if self._below is not None:
                self._below.close()
        super().close()


def place_of(name: str, source: Source, nodes: Sequence[str]) -> tuple[str | None, int | None]:
    """Node and rank that a file name tells."""
    base = PurePosixPath(name).name
    for suffix in _COMPRESSED:
        base = base.removesuffix(suffix)
    stem = re.sub(r"\.(log|out|err|txt|jsonl?|stdout|stderr)$", "", base)
    inside = "/".join([*PurePosixPath(name).parts[1:-1], stem])
    node = match_node(inside, nodes)
    if node is None and source is Source.SYSLOG:
        node = re.sub(r"[._-](dmesg|kern|kernel|syslog|journal|messages)$", "", stem) or None
    if source is Source.FLIGHT_RECORDER:
        number = _TRAILING_NUMBER.search(base)
        return node, int(number[1]) if number else None
    rank = _RANK.search(inside)
    return node, int(rank[1]) if rank else None


def match_node(text: str, nodes: Sequence[str]) -> str | None:
    """The node that `text` names as a whole word, with or without its domain; the longest name wins."""
    forms, lengths = _forms(tuple(nodes))
    named = [
        node
        for begin in (found.start() for found in _WORD_BEGINS.finditer(text))
        for length in lengths
        if _WORD_ENDS.match(text, begin + length)
        for node in forms.get(text[begin : begin + length], ())
    ]
    return nodes[max(named, key=lambda node: (len(nodes[node]), -node))] if named else None


_WORD_BEGINS = re.compile(r"(?<![A-Za-z0-9])(?=.)", re.DOTALL)
_WORD_ENDS = re.compile(r"(?![A-Za-z0-9]|-\d)")
"""Nothing follows that makes it another name."""


@lru_cache(maxsize=64)
def _forms(nodes: tuple[str, ...]) -> tuple[dict[str, list[int]], tuple[int, ...]]:
    """What the nodes are called -> their places in the list, and how long these names are."""
    forms: dict[str, list[int]] = {}
    places = {node: place for place, node in reversed(list(enumerate(nodes)))}
    for node, place in places.items():
        forms.setdefault(node, []).append(place)
    for head, node in short_names(nodes).items():
        forms.setdefault(node[: len(head)], []).append(places[node])
    return forms, tuple(sorted({len(form) for form in forms if form}))
