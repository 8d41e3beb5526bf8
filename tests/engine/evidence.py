"""Evidence for tests: real attempts as files in memory, which a test changes, writes out and has diagnosed."""

from __future__ import annotations

import copy
import fnmatch
import io
import re
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import yaml
import zstandard

from engine.bundle import Bundle, open_bundle
from engine.diagnose import diagnose
from engine.model import Diagnosis
from engine.report import as_json
from engine.ruleset import Ruleset, load_ruleset

CASES = Path(__file__).parent / "cases"


@cache
def labels() -> dict[str, dict[str, Any]]:
    """Case -> what a careful expert says about it."""
    found: dict[str, dict[str, Any]] = yaml.safe_load((CASES / "labels.yaml").read_text())
    return found


@cache
def ruleset() -> Ruleset:
    """The built-in rules."""
    return load_ruleset()


@dataclass
class Evidence:
    """One attempt: attempt.yaml as a document, and the other files by their names."""

    document: dict[str, Any]
    files: dict[str, bytes] = field(default_factory=dict)

    @property
    def nodes(self) -> list[str]:
        found: list[str] = self.document["attempt"]["nodes"]
        return found

    @property
    def start(self) -> datetime:
        return _moment(self.document["attempt"]["started_at"])

    @property
    def end(self) -> datetime:
        return _moment(self.document["attempt"]["ended_at"])

    def write(self, folder: Path) -> Path:
        """As a bundle folder."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "attempt.yaml").write_text(yaml.safe_dump(self.document, sort_keys=False))
        for name, content in self.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        return folder

    @contextmanager
    def opened(self) -> Iterator[Bundle]:
        with tempfile.TemporaryDirectory() as folder, open_bundle(self.write(Path(folder) / "bundle")) as bundle:
            yield bundle

    def diagnosed(self, rules: Ruleset | None = None) -> Diagnosis:
        with self.opened() as bundle:
            return diagnose(bundle.attempt, bundle.streams, rules or ruleset(), bundle="bundle")

    def copy(self) -> Evidence:
        return Evidence(copy.deepcopy(self.document), dict(self.files))

    def named(self, glob: str) -> list[str]:
        """Names of the files that fit. At least one must, so that a change never changes nothing in silence."""
        found = [name for name in self.files if fnmatch.fnmatchcase(name, glob)]
        assert found, f"no file is named {glob}: {sorted(self.files)}"
        return found

    def without_files(self, glob: str) -> Evidence:
        changed = self.copy()
        for name in self.named(glob):
            del changed.files[name]
        return changed

    def without_lines(self, pattern: str, glob: str = "*") -> Evidence:
        """Without the lines that match. At least one must."""
        wanted, changed, removed = re.compile(pattern.encode()), self.copy(), 0
        for name in self.named(glob):
            lines = changed.files[name].splitlines(keepends=True)
            kept = [line for line in lines if not wanted.search(line)]
            removed += len(lines) - len(kept)
            changed.files[name] = b"".join(kept)
        assert removed, f"no line of {glob} matches {pattern}"
        return changed

    def with_lines(self, name: str, *lines: str) -> Evidence:
        """With more lines at the end of a file (file order is not time)."""
        changed = self.copy()
        before = changed.files.get(name, b"")
        before += b"" if not before or before.endswith(b"\n") else b"\n"
        changed.files[name] = before + "".join(f"{line}\n" for line in lines).encode()
        return changed

    def replaced(self, pattern: str, by: str | Callable[[re.Match[bytes]], bytes], glob: str = "*") -> Evidence:
        """With every match replaced. At least one must be."""
        wanted, changed, total = re.compile(pattern.encode()), self.copy(), 0
        for name in self.named(glob):
            new = by if callable(by) else by.encode()
            changed.files[name], number = wanted.subn(new, changed.files[name])
            total += number
        assert total, f"nothing in {glob} matches {pattern}"
        return changed

    def moved_lines(self, pattern: str, source: str, target: str, rename: tuple[str, str]) -> Evidence:
        """The lines that match, taken out of one file and put into another under another host name."""
        wanted = re.compile(pattern.encode())
        lines = [line for line in self.files[source].splitlines() if wanted.search(line)]
        assert lines, f"no line of {source} matches {pattern}"
        moved = [line.decode().replace(*rename) for line in lines]
        return self.without_lines(pattern, source).with_lines(target, *moved)

    def lines(self, pattern: str, glob: str) -> list[str]:
        wanted = re.compile(pattern.encode())
        return [
            line.decode("utf-8", "replace")
            for name in self.named(glob)
            for line in self.files[name].splitlines()
            if wanted.search(line)
        ]

    def with_attempt(self, **fields: Any) -> Evidence:
        changed = self.copy()
        changed.document["attempt"] |= fields
        return changed

    def shifted(self, glob: str, by: timedelta, pattern: str = "") -> Evidence:
        """With the time stamps of the lines that match moved, as a wrong clock or another moment would have them."""
        wanted, changed, total = re.compile(pattern.encode()), self.copy(), 0
        for name in self.named(glob):
            lines = []
            for line in changed.files[name].split(b"\n"):
                moved = _shift(line, by) if wanted.search(line) else line
                total += moved != line
                lines.append(moved)
            changed.files[name] = b"\n".join(lines)
        assert total, f"no line of {glob} that matches {pattern!r} has a time stamp"
        return changed


def made_of(files: dict[str, str], *, nodes: int = 4, state: str = "FAILED", gpus: int = 8) -> Evidence:
    """Files as the evidence of an attempt on 3 November 2026, 04:00 to 04:30 UTC, on node-01 and so on."""
    attempt = {
        "number": 1,
        "state": state,
        "started_at": "2026-11-03T04:00:00Z",
        "ended_at": "2026-11-03T04:30:00Z",
        "nodes": [f"node-0{number}" for number in range(1, nodes + 1)],
        "gpus_per_node": gpus,
    }
    workload = {"id": "4711", "name": "llm", "scheduler": "slurm", "cluster": "c1"}
    document = {"schema": 1, "workload": workload, "attempt": attempt}
    return Evidence(document, {name: content.encode() for name, content in files.items()})


_ISO = re.compile(rb"(\d{4}-\d\d-\d\d)([T ])(\d\d:\d\d:\d\d)")
_RFC3164 = re.compile(rb"^([A-Z][a-z]{2}) ([ \d]\d) (\d\d:\d\d:\d\d)")
_ASCTIME = re.compile(rb"^\[([A-Z][a-z]{2}) ([A-Z][a-z]{2}) ([ \d]\d) (\d\d:\d\d:\d\d) (\d{4})\]")


def _shift(line: bytes, by: timedelta) -> bytes:
    """The first time stamp of a line, moved; a line without one as it is."""
    found = _ASCTIME.match(line)
    if found:
        moment = datetime.strptime(b" ".join(found.groups()[1:]).decode(), "%b %d %H:%M:%S %Y").replace(tzinfo=UTC) + by
        return f"[{moment:%a %b} {moment.day:2d} {moment:%H:%M:%S %Y}]".encode() + line[found.end() :]
    found = _RFC3164.match(line)
    if found:
        moment = datetime.strptime("2024 " + b" ".join(found.groups()).decode(), "%Y %b %d %H:%M:%S").replace(
            tzinfo=UTC
        )
        moment += by
        return f"{moment:%b} {moment.day:2d} {moment:%H:%M:%S}".encode() + line[found.end() :]
    found = _ISO.search(line[:80])
    if found:
        moment = datetime.fromisoformat(f"{found[1].decode()}T{found[3].decode()}+00:00") + by
        return (
            line[: found.start()]
            + f"{moment:%Y-%m-%d}{found[2].decode()}{moment:%H:%M:%S}".encode()
            + line[found.end() :]
        )
    return line


def _moment(value: Any) -> datetime:
    moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


@cache
def _stored(name: str) -> Evidence:
    packed = (CASES / f"{name}.tar.zst").read_bytes()
    plain = zstandard.ZstdDecompressor().decompressobj().decompress(packed)
    files: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(plain)) as tar:
        for member in tar:
            content = tar.extractfile(member)
            assert content is not None
            files[member.name.removeprefix(f"{name}/")] = content.read()
    return Evidence(yaml.safe_load(files.pop("attempt.yaml")), files)


def case(name: str) -> Evidence:
    """A stored attempt, to be changed at will."""
    return _stored(name).copy()


def attempt(files: dict[str, bytes | str], nodes: Iterable[str] = ("node-01", "node-02"), **fields: Any) -> Evidence:
    """A small attempt made of nothing but what is given: on 3 November 2026, from 02:00 to 03:00 UTC."""
    known = {
        "number": 1,
        "state": "FAILED",
        "exit_code": "1:0",
        "started_at": "2026-11-03T02:00:00Z",
        "ended_at": "2026-11-03T03:00:00Z",
        "nodes": list(nodes),
        "gpus_per_node": 8,
    }
    document = {
        "schema": 1,
        "workload": {"id": "4711", "name": "pretrain", "scheduler": "slurm", "cluster": "c1", "user": "user1"},
        "attempt": known | fields,
    }
    return Evidence(document, {n: c.encode() if isinstance(c, str) else c for n, c in files.items()})


def signals(diagnosis: Diagnosis) -> set[str]:
    """Ids of every rule that the diagnosis speaks of."""
    named = {evidence.rule for evidence in diagnosis.evidence}
    return named | {symptom.rule for symptom in diagnosis.symptoms}


def same_bytes(one: Diagnosis, other: Diagnosis) -> bool:
    return as_json(one) == as_json(other)
