"""Adds labelled cases to the tests: ``python -m tests.engine.pack [--into DIR] FOLDER...``

Each folder is a capture bundle with its label in expected.yaml. It becomes ``cases/<name>.tar.zst`` without the label
(the same bytes every time), and the label goes into ``cases/labels.yaml``.
"""

from __future__ import annotations

import argparse
import io
import sys
import tarfile
from pathlib import Path

import yaml
import zstandard

from tests.engine.evidence import CASES

HEAD = "# Case -> what a careful expert says about it. Written by `python -m tests.engine.pack`.\n"


def pack(folder: Path) -> bytes:
    """The bundle as a .tar.zst that depends on names and contents alone."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for file in sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "expected.yaml"):
            info = tarfile.TarInfo(f"{folder.name}/{file.relative_to(folder).as_posix()}")
            info.size, info.mode = file.stat().st_size, 0o644
            with file.open("rb") as content:
                tar.addfile(info, content)
    return zstandard.ZstdCompressor(level=19).compress(out.getvalue())


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.engine.pack")
    parser.add_argument("--into", type=Path, default=CASES)
    parser.add_argument("folders", nargs="+", type=Path)
    args = parser.parse_args(arguments)
    args.into.mkdir(exist_ok=True)
    stored = args.into / "labels.yaml"
    labels = yaml.safe_load(stored.read_text()) if stored.exists() else {}
    for folder in args.folders:
        labels[folder.name] = yaml.safe_load((folder / "expected.yaml").read_text())
        (args.into / f"{folder.name}.tar.zst").write_bytes(pack(folder))
    stored.write_text(HEAD + yaml.safe_dump(labels, sort_keys=True, allow_unicode=True, width=118))
    print(f"{len(labels)} cases")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
