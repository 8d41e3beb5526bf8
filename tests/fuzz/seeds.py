"""``python -m tests.fuzz.seeds FOLDER``: FOLDER/TARGET/*, what the stored attempts hold for each target."""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import re
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

import zstandard

from tests.fuzz.attempts import STORED, Files, stored

RULES = Path(__file__).parents[2] / "engine" / "rules"
LARGEST = 32_000
"""Bytes of a seed: larger ones are run too seldom to be worth it."""


def seeds() -> Iterator[tuple[str, bytes]]:
    """Targets, and what each should begin with."""
    for number in range(len(STORED)):
        files = stored(number)
        yield "attempt", number.to_bytes(2, "little") + Random(number).randbytes(30)
        if number % 40 == 0:
            small = {name: content[:400] for name, content in list(files.items())[1:5]}
            yield from (("bundle", content) for content in _bundles({"attempt.yaml": files["attempt.yaml"], **small}))
        for name, content in files.items():
            folder = name.split("/")[0]
            yield from _of_file(name, folder, content)
        logs = [content[:4_000] for name, content in files.items() if name.startswith(("applog/", "syslog/"))]
        yield "diagnose", b"\0\0".join(logs[:2])
    for rules in sorted(RULES.glob("*.yaml")):
        text = rules.read_bytes()
        for at in [found.start() for found in re.finditer(rb"(?m)^  - id:", text)][:12]:
            yield "rules", b"family: site\nrules:\n  " + text[at + 2 : at + 3_000]


def _bundles(files: Files) -> Iterator[bytes]:
    """One attempt in every format, behind the byte that tells which it is."""
    plain, zipped = io.BytesIO(), io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar, zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
            archive.writestr(name, content)
    tarred = plain.getvalue()
    packed = (tarred, gzip.compress(tarred), zstandard.compress(tarred), lzma.compress(tarred), zipped.getvalue())
    yield from (bytes([number]) + content for number, content in enumerate(packed))


def _of_file(name: str, folder: str, content: bytes) -> Iterator[tuple[str, bytes]]:
    if name == "attempt.yaml":
        yield "manifest", content
    elif folder == "scheduler":
        yield "facts", content
    elif folder == "metrics":
        yield "series", content
    elif folder == "flight_recorder":
        yield "dump", content
    if folder in ("applog", "syslog"):
        lines = content.split(b"\n")
        for line in lines[::12]:
            yield "lines", line
            yield "clock", line[:80]
        at = content.find(b"Traceback (most recent call last):\n")
        if at >= 0:
            yield "traceback", content[content.index(b"\n", at) + 1 : at + 4_000]


def main() -> None:
    into = Path(sys.argv[1])
    for target, content in seeds():
        if len(content) <= LARGEST:
            (into / target).mkdir(parents=True, exist_ok=True)
            (into / target / hashlib.sha256(content).hexdigest()[:16]).write_bytes(content)


if __name__ == "__main__":
    main()
