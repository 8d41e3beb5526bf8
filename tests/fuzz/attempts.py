"""Small attempts out of the stored ones: cut, shuffled, moved in time and between nodes, as a fuzzer's bytes say."""

from __future__ import annotations

import io
import json
import pickle
import re
import tarfile
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeVar

import yaml
import zstandard

from engine.ruleset import load_ruleset

STORED = sorted((Path(__file__).parents[1] / "engine").glob("*/*.tar.zst"))
LINES = 120
"""Lines that are kept of a file."""
ALIKE = 5
"""Lines that are kept of those that differ by their numbers only."""
FILES = 16
ODD = [
    *(b"", b"0", b"1", b"-1", b"9" * 20, b"7" * 5000, "\u00b2".encode(), "\u0663".encode(), b"1e999", b"nan", b"\xff"),
    *(b"4294967296", b"18446744073709551616", b"0x" + b"f" * 40, b"00", b"1.5.2", b"\r", b"\x1b[31m", b"\x00"),
]
HOSTS = [
    b"",
    b"n",
    b"node-0[1-9]",
    b"(?i)x+",
    b"\\",
    b"127.0.0.1",
    b"a" * 300,
    "kn\u00f6ten".encode(),
    b"NODE-01",
    b"1",
]
VALUES: list[Any] = [
    *(None, True, -1, 0, 10**30, -(2**63), 1e308, float("nan"), float("inf"), "", "x" * 5000, [], {}, [[]], "1e999"),
    *("2026-11-03T02:30:00Z", "9999-12-31T23:59:60Z", "\u202e", "Infinity", [None], {"": None}, 2**62, "0", 7),
]
SPANS = [1, 60, 90, 3600, 5 * 3600, 86400, 366 * 86400, 3e9]
STATES = ["FAILED", "COMPLETED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "RUNNING", "PREEMPTED", "?", ""]
Files = dict[str, bytes]
Option = TypeVar("Option")


class Choices:
    """What to do, read from a fuzzer's bytes; zeros when they are used up."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def below(self, number: int) -> int:
        """A number from 0 to `number` - 1."""
        size = 1 if number <= 256 else 2 if number <= 65536 else 4
        taken = self._data[self._at : self._at + size]
        self._at += size
        return int.from_bytes(taken, "little") % max(number, 1)

    def of(self, options: Sequence[Option]) -> Option:
        return options[self.below(len(options))]

    def part(self, length: int, most: int = 40) -> slice:
        """A part of something that is so long."""
        begins = self.below(length + 1)
        return slice(begins, min(length, begins + 1 + self.below(most)))

    @property
    def left(self) -> bool:
        return self._at < len(self._data)


@lru_cache(maxsize=len(STORED))
def stored(number: int) -> Files:
    """The files of a stored attempt, each made small but with one line of every kind."""
    plain = zstandard.ZstdDecompressor().decompressobj().decompress(STORED[number].read_bytes())
    with tarfile.open(fileobj=io.BytesIO(plain)) as tar:
        files = {m.name.split("/", 1)[-1]: tar.extractfile(m).read() for m in tar if m.isreg()}  # type: ignore[union-attr]
    names = sorted(files, key=lambda name: (name != "attempt.yaml", Path(name).parts[0] in ("applog", "syslog"), name))
    return {name: _small(name, files[name]) for name in names[:FILES]}


def _small(name: str, content: bytes) -> bytes:
    if name == "attempt.yaml":
        return content
    document = _document(content)
    if document is not None:
        return _written(content, _cut(document))
    seen: Counter[bytes] = Counter()
    kept = []
    for line in content.split(b"\n"):
        shape = re.sub(rb"[0-9a-f]*\d[0-9a-f]*", b"0", line)[:100]
        seen[shape] += 1
        if seen[shape] <= ALIKE:
            kept.append(line[:2000])
    return b"\n".join(kept if len(kept) <= LINES else kept[: LINES // 3] + kept[-LINES * 2 // 3 :])


def _document(content: bytes) -> Any:
    """What a file of JSON or a pickle holds; None for a log."""
    try:
        if content[:1] in (b"{", b"["):
            return json.loads(content)
        return pickle.loads(content) if content[:1] == b"\x80" else None
    except Exception:  # JSON Lines, or damaged on purpose
        return None


def _written(like: bytes, document: Any) -> bytes:
    return pickle.dumps(document) if like[:1] == b"\x80" else json.dumps(document).encode()


def _cut(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _cut(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_cut(inner) for inner in (value if len(value) <= 40 else value[:10] + value[-30:])]
    return value


@cache
def examples() -> tuple[bytes, ...]:
    """Lines that the rules match."""
    return tuple(one.line.encode() for matcher in load_ruleset().matchers for one in matcher.spec.examples.match)


def attempt(data: bytes) -> Files:
    """A stored attempt, changed as the bytes say."""
    choices = Choices(data)
    files = dict(stored(choices.below(len(STORED))))
    while choices.left:
        choices.of(CHANGES)(files, choices)
    return files


def _log(files: Files, choices: Choices) -> str:
    logs = [name for name, content in files.items() if name != "attempt.yaml" and _document(content) is None]
    return choices.of(logs) if logs else "applog/job.log"


def _lines(files: Files, name: str) -> list[bytes]:
    return files.get(name, b"").split(b"\n")


def _drop_lines(files: Files, choices: Choices) -> None:
    name = _log(files, choices)
    lines = _lines(files, name)
    del lines[choices.part(len(lines))]
    files[name] = b"\n".join(lines)


def _move_lines(files: Files, choices: Choices) -> None:
    """To another place, or into another log."""
    source, target = _log(files, choices), _log(files, choices)
    lines = _lines(files, source)
    part = choices.part(len(lines))
    moved = lines[part]
    if choices.below(2):
        del lines[part]
    files[source] = b"\n".join(lines)
    into = _lines(files, target)
    at = choices.below(len(into) + 1)
    files[target] = b"\n".join([*into[:at], *moved, *into[at:]])


def _reverse_lines(files: Files, choices: Choices) -> None:
    name = _log(files, choices)
    lines = _lines(files, name)
    part = choices.part(len(lines), 255)
    lines[part] = lines[part][::-1]
    files[name] = b"\n".join(lines)


def _repeat_lines(files: Files, choices: Choices) -> None:
    name = _log(files, choices)
    lines = _lines(files, name)
    part = choices.part(len(lines), 8)
    files[name] = b"\n".join(lines[: part.stop] + lines[part] * choices.below(60) + lines[part.stop :])


def _cut_file(files: Files, choices: Choices) -> None:
    name = choices.of(sorted(files))
    content = files[name]
    at = choices.below(len(content) + 1)
    files[name] = content[:at] if choices.below(2) else content[at:]


def _damage(files: Files, choices: Choices) -> None:
    name = choices.of(sorted(files))
    content = files[name]
    at = choices.below(len(content) + 1)
    files[name] = content[:at] + choices.of(ODD) + content[at + choices.below(12) :]


def _remove_file(files: Files, choices: Choices) -> None:
    name = choices.of(sorted(files))
    if name != "attempt.yaml":
        del files[name]


def _rename_file(files: Files, choices: Choices) -> None:
    """To what another file of any attempt is called, so that it is read as something else."""
    names = [name for name in stored(choices.below(len(STORED))) if name != "attempt.yaml"] or ["x"]
    old, new = choices.of(sorted(files)), choices.of(names)
    if old != "attempt.yaml":
        files[new] = files.pop(old)


def _add_file(files: Files, choices: Choices) -> None:
    """Of another attempt, its nodes called as here, or as they are."""
    other = stored(choices.below(len(STORED)))
    name = choices.of(sorted(other))
    if name == "attempt.yaml":
        return
    content = other[name]
    if choices.below(2):
        for theirs, ours in zip(_nodes(other), _nodes(files), strict=False):
            name, content = name.replace(theirs, ours), content.replace(theirs.encode(), ours.encode())
    files[name] = content


def _nodes(files: Files) -> list[str]:
    try:
        found = yaml.safe_load(files["attempt.yaml"])["attempt"]["nodes"]
        return [node for node in found if isinstance(node, str) and node] if isinstance(found, list) else []
    except Exception:
        return []


def _rename_node(files: Files, choices: Choices) -> None:
    """Everywhere, or in one file; to another node, or to what no node is called."""
    nodes = _nodes(files)
    if not nodes:
        return
    old = choices.of(nodes).encode()
    new = choices.of(HOSTS) if choices.below(2) else choices.of(nodes).encode()
    chosen = [choices.of(sorted(files))] if choices.below(2) else list(files)
    for name in chosen:
        files[name] = files[name].replace(old, new)


_TIME = re.compile(rb"(\d{4}-\d\d-\d\d)([T ])(\d\d:\d\d:\d\d)")


def _shift_times(files: Files, choices: Choices) -> None:
    """Of some lines of a log."""
    name = _log(files, choices)
    lines = _lines(files, name)
    by = timedelta(seconds=choices.of(SPANS) * (1 - 2 * choices.below(2)))
    part = choices.part(len(lines), 255)

    def moved(found: re.Match[bytes]) -> bytes:
        try:
            at = datetime.fromisoformat(f"{found[1].decode()}T{found[3].decode()}").replace(tzinfo=UTC) + by
        except (ValueError, OverflowError):
            return found[0]
        return f"{at:%Y-%m-%d}{found[2].decode()}{at:%H:%M:%S}".encode()

    lines[part] = [_TIME.sub(moved, line, count=1) for line in lines[part]]
    files[name] = b"\n".join(lines)


def _odd_numbers(files: Files, choices: Choices) -> None:
    """In one line: each number, or one of them."""
    name = _log(files, choices)
    lines = _lines(files, name)
    at, odd = choices.below(len(lines)), choices.of(ODD)
    numbers = list(re.finditer(rb"\d+", lines[at]))
    if numbers and choices.below(2):
        one = choices.of(numbers)
        lines[at] = lines[at][: one.start()] + odd + lines[at][one.end() :]
    else:
        lines[at] = re.sub(rb"\d+", lambda _: odd, lines[at])
    files[name] = b"\n".join(lines)


def _swap_numbers(files: Files, choices: Choices) -> None:
    """A number of one line, in some lines after it: ranks, sequence numbers and times that don't fit each other."""
    name = _log(files, choices)
    lines = _lines(files, name)
    part = choices.part(len(lines))
    numbers = re.findall(rb"\d+", b" ".join(lines[part]))
    if numbers:
        old, new = choices.of(numbers), choices.of(numbers)
        lines[part] = [line.replace(old, new) for line in lines[part]]
        files[name] = b"\n".join(lines)


def _insert_example(files: Files, choices: Choices) -> None:
    """After the stamp of a line, as if this had been said there."""
    name = _log(files, choices)
    lines = _lines(files, name)
    at = choices.below(len(lines))
    head = lines[at][: choices.below(60)]
    lines.insert(at, head + choices.of(examples()))
    files[name] = b"\n".join(lines)


def _change_document(files: Files, choices: Choices) -> None:
    """One value of a dump, a metric or a record, whatever its depth."""
    names = [name for name in sorted(files) if files[name][:1] in (b"{", b"[", b"\x80")]
    document = _document(files[name := choices.of(names)]) if names else None
    if document is None:
        return
    at = document
    for _ in range(choices.below(12)):
        keys = list(at) if isinstance(at, dict) else range(len(at)) if isinstance(at, list) else []
        if not keys:
            return
        key: Any = choices.of(list(keys))
        if not isinstance(at[key], (dict, list)) or not choices.below(4):
            if choices.below(4):
                at[key] = choices.of(VALUES)
            else:
                del at[key]
            break
        at = at[key]
    files[name] = _written(files[name], document)


def _change_attempt(files: Files, choices: Choices) -> None:
    """What the scheduler tells: times, state, nodes."""
    try:
        document = yaml.safe_load(files["attempt.yaml"])
        known = document["attempt"]
    except Exception:
        return
    if not isinstance(known, dict):
        return
    nodes = known.get("nodes") if isinstance(known.get("nodes"), list) else []
    key = choices.of(["started_at", "ended_at", "state", "nodes", "gpus_per_node", "exit_code", "reason", "number"])
    how = choices.below(5)
    if how == 0:
        known.pop(key, None)
    elif how == 1:
        known["started_at"], known["ended_at"] = known.get("ended_at"), known.get("started_at")
    elif how == 2:
        known["state"] = choices.of(STATES)
    elif how == 3:
        part = choices.part(len(nodes))
        known["nodes"] = nodes[part] + [f"node-{number:02d}" for number in range(choices.below(100))]
    else:
        known[key] = choices.of(VALUES)
    files["attempt.yaml"] = yaml.safe_dump(document).encode()


CHANGES: tuple[Callable[[Files, Choices], None], ...] = (
    _drop_lines,
    _move_lines,
    _reverse_lines,
    _repeat_lines,
    _cut_file,
    _damage,
    _remove_file,
    _rename_file,
    _add_file,
    _rename_node,
    _shift_times,
    _odd_numbers,
    _swap_numbers,
    _insert_example,
    _change_document,
    _change_attempt,
)
