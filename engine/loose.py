"""Log files on their own, or what a pipe brings, as one attempt of which no scheduler has said anything."""

from __future__ import annotations

import codecs
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from engine.bundle import ARCHIVES, Bundle, BundleError, file_stream, is_compressed
from engine.model import Attempt, Source, Stream, Workload

STDIN = "-"
_HEAD = 64 << 10
_SYSTEM_NAME = re.compile(r"syslog|messages|kern|dmesg|journal", re.IGNORECASE)
_KIND_OF_LOG = re.compile(
    r"^(?:kernel|kern|dmesg|syslog|messages|journal|journalctl)(?:[-_.]|$)|[-_.](?:kernel|kern|dmesg|syslog|messages|journal)$",
    re.IGNORECASE,
)
"""What people write around a node's name when they name a file after it: kernel-gpu-02.log, gpu-02.dmesg.log."""
_SYSTEM_LINE = re.compile(
    rb"^(?:(?:\w{3} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:?\d\d)?) "
    rb"\S+ (?:kernel|systemd(?:\[\d+\])?): "
    rb"|\[ *\d+\.\d{6}\] )",
    re.MULTILINE,
)
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def is_loose(path: str) -> bool:
    """Whether a path names a log and no bundle; `-` is what stdin brings."""
    return path == STDIN or (Path(path).is_file() and not path.endswith(ARCHIVES))


@contextmanager
def open_logs(
    paths: Sequence[str], *, state: str = "", nodes: Sequence[str] = (), job: str = ""
) -> Iterator[Bundle]:  # fmt: skip
    """All of these files as one attempt. Raises BundleError."""
    attempt = Attempt(workload=Workload(id=job or Path(paths[0]).name), state=state, nodes=tuple(nodes))
    with tempfile.TemporaryDirectory(prefix="faultline-") as folder:
        streams: list[Stream] = []
        for number, path in enumerate(paths, 1):
            file = _received(Path(folder)) if path == STDIN else Path(path)
            try:
                system = _is_system_log(path, file)
            except BundleError as error:
                raise BundleError(f"{path}: {error}" if len(paths) > 1 else str(error)) from None
            source, kind = (Source.SYSLOG, "syslog") if system else (Source.APPLOG, "applog")
            name = f"{kind}/{'stdin.log' if path == STDIN else file.name}"
            stream = msgspec.structs.replace(file_stream(file, name, attempt.nodes), source=source)
            if system and stream.node not in attempt.nodes:
                stream = msgspec.structs.replace(stream, node=_KIND_OF_LOG.sub("", stream.node or "") or None)
            if stream.name in {other.name for other in streams}:
                stream = msgspec.structs.replace(stream, name=f"{kind}/{number}-{file.name}")
            streams.append(stream)
        yield Bundle(" ".join(paths), attempt, tuple(streams))


def _received(folder: Path) -> Path:
    file = folder / "stdin.log"
    with file.open("wb") as out:
        shutil.copyfileobj(sys.stdin.buffer, out, 1 << 20)
    return file


def _is_system_log(path: str, file: Path) -> bool:
    """By its name, else by its first lines. Raises BundleError for what is no text."""
    try:
        with file.open("rb") as content:
            head = content.read(_HEAD)
    except OSError as error:
        raise BundleError(error.strerror or "can't be read") from None
    if b"\x00" in head and not is_compressed(file.name) and head[:2] not in _UTF16:
        raise BundleError(f"neither text nor a bundle: a folder, or one of {', '.join(ARCHIVES)}")
    if path != STDIN and _SYSTEM_NAME.search(file.name):
        return True
    return bool(_SYSTEM_LINE.search(head))
