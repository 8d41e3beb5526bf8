"""The same evidence gives the same bytes: whatever the order, the names, the block sizes, the locale and the zone."""

from __future__ import annotations

import io
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine import blocks
from engine.diagnose import diagnose
from engine.model import Source, Stream
from engine.report import as_json
from tests.engine.evidence import Evidence, case, labels, ruleset

LOGS = (Source.APPLOG, Source.SYSLOG)
ROOT = Path(__file__).parents[2]
VARIED = [
    *("hw-nvlink-xid149-node02", "hw-thermal-throttle-degraded", "net-k8s-node-not-ready", "net-lustre-client-evicted"),
    *("sw-fr-collective-order", "sw-traceback-after-timeouts", "net-slurm-preempted-requeue", "hw-nccl-only-no-cause"),
]


@cache
def usual(name: str) -> str:
    return as_json(case(name).diagnosed())


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
@pytest.mark.parametrize("name", VARIED)
def test_streams_in_any_order_give_the_same_bytes(name: str, chance: random.Random) -> None:
    with case(name).opened() as bundle:
        streams = list(bundle.streams)
        chance.shuffle(streams)
        assert as_json(diagnose(bundle.attempt, streams, ruleset(), bundle="bundle")) == usual(name)


@pytest.mark.parametrize("name", sorted(labels()))
def test_twice_in_one_process_gives_the_same_bytes(name: str) -> None:
    assert as_json(case(name).diagnosed()) == usual(name)


@pytest.mark.parametrize("name", VARIED)
def test_files_written_in_another_order_give_the_same_bytes(name: str) -> None:
    evidence = case(name)
    turned = Evidence(evidence.document, dict(reversed(evidence.files.items())))
    assert as_json(turned.diagnosed()) == usual(name)


@pytest.mark.parametrize("block", [997, 1 << 14, 100_003, 7 << 20])
@pytest.mark.parametrize("name", VARIED)
def test_blocks_of_any_size_give_the_same_bytes(name: str, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK", block)
    assert as_json(case(name).diagnosed()) == usual(name)


class Trickle(io.RawIOBase):
    """Gives its bytes in pieces, as a pipe or a socket does."""

    def __init__(self, content: BinaryIO, most: int) -> None:
        self._content, self._most = content, most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._content.read(min(self._most, len(buffer)))
        buffer[: len(piece)] = piece
        return len(piece)

    def close(self) -> None:
        self._content.close()
        super().close()


def trickling(stream: Stream, most: int) -> Stream:
    return msgspec.structs.replace(stream, open=lambda: cast(BinaryIO, Trickle(stream.open(), most)))


@pytest.mark.parametrize("most", [997, 8192, 65_536])
@pytest.mark.parametrize("name", VARIED)
def test_bytes_that_come_in_pieces_give_the_same_bytes(name: str, most: int) -> None:
    with case(name).opened() as bundle:
        streams = [trickling(s, most) if s.source in LOGS else s for s in bundle.streams]
        assert as_json(diagnose(bundle.attempt, streams, ruleset(), bundle="bundle")) == usual(name)


Rename = Callable[[str, list[str]], str]


def renamed(evidence: Evidence, rename: Rename) -> dict[str, str]:
    """New name -> old name of every file; only names that tell neither node nor rank nor pod are other ones."""
    told = ("worker", "master", "rank", *evidence.nodes, *(node.split(".")[0] for node in evidence.nodes))
    pods = b"".join(evidence.files.get(f"scheduler/{name}.json", b"") for name in ("pods", "events"))
    names = sorted(evidence.files)
    found = {}
    for name in names:
        stem = name.split("/")[-1].split(".")[0]
        free = name.startswith(("applog/", "metrics/")) and not any(word in name for word in told)
        found[rename(name, names) if free and stem.encode() not in pods else name] = name
    assert len(found) == len(names)
    return found


def assert_same_but_for_the_names(evidence: Evidence, names: dict[str, str], expected: str) -> None:
    other = Evidence(evidence.document, {new: evidence.files[old] for new, old in names.items()})
    said = as_json(other.diagnosed())
    for new in sorted(names, key=len, reverse=True):
        said = said.replace(f'"{new}"', f'"{names[new]}"')
    assert said == expected


RENAMES: dict[str, Rename] = {
    "first of all": lambda name, _: name.replace("/", "/0-"),
    "in a folder": lambda name, _: name.replace("/", "/logs/deep/"),
    "a number": lambda name, names: f"{name.split('/')[0]}/{names.index(name)}.{name.rsplit('.', 1)[-1]}",
}


@pytest.mark.parametrize("how", RENAMES)
@pytest.mark.parametrize("name", sorted(labels()))
def test_file_names_that_mean_nothing_change_nothing_but_themselves(name: str, how: str) -> None:
    evidence = case(name)
    assert_same_but_for_the_names(evidence, renamed(evidence, RENAMES[how]), usual(name))


@pytest.mark.parametrize("salt", ["a", "b"])
@pytest.mark.parametrize("name", sorted(labels()))
def test_folders_in_another_order_change_nothing_but_the_names(name: str, salt: str) -> None:
    """Every file keeps what its name tells (node, rank, pod), but they come in another order."""
    evidence, names = case(name), {}
    for file in evidence.files:
        top, rest = file.split("/", 1)
        folder = "".join(chr(ord("g") + int(digit, 16)) for digit in sha256((salt + file).encode()).hexdigest()[:6])
        names[f"{top}/{folder}/{rest}" if top in ("applog", "syslog", "metrics") else file] = file
    assert_same_but_for_the_names(evidence, names, usual(name))


@pytest.mark.parametrize("name", VARIED)
def test_a_log_in_two_files_gives_the_same_verdict(name: str) -> None:
    """As a rotated log is: the first half under another name."""
    evidence = case(name)
    for file in [file for file in evidence.files if file.startswith("syslog/")]:
        lines = evidence.files[file].splitlines(keepends=True)
        evidence.files[file] = b"".join(lines[len(lines) // 2 :])
        evidence.files[f"{file}.1"] = b"".join(lines[: len(lines) // 2])
    found, before = evidence.diagnosed(), case(name).diagnosed()
    assert (found.domain, found.sub_domain, found.root_cause and found.root_cause.nodes) == (
        *(before.domain, before.sub_domain),
        before.root_cause and before.root_cause.nodes,
    )


SURROUNDINGS = {
    "hash seed 0": {"PYTHONHASHSEED": "0"},
    "hash seed 1": {"PYTHONHASHSEED": "1"},
    "random hash seed": {"PYTHONHASHSEED": "random"},
    "Kolkata": {"TZ": "Asia/Kolkata"},
    "New York": {"TZ": "America/New_York"},
    "plain C": {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "German": {"LC_ALL": "de_DE.UTF-8", "LANG": "de_DE.UTF-8", "LANGUAGE": "de"},
    "ASCII output": {"PYTHONIOENCODING": "ascii"},
    "no cache": {"FAULTLINE_CACHE": "/dev/null/faultline"},
}


@cache
def _in_a_process(folder: str, names: tuple[str, ...], surroundings: tuple[tuple[str, str], ...]) -> bytes:
    command = [sys.executable, "-m", "engine", "diagnose", "--format", "json", *names]
    quiet = {k: v for k, v in os.environ.items() if k not in ("TZ", "LC_ALL", "LANG", "PYTHONHASHSEED")}
    quiet["PYTHONPATH"] = str(ROOT)
    run = subprocess.run(command, cwd=folder, env=quiet | dict(surroundings), capture_output=True, check=False)
    assert run.returncode == 0, run.stderr.decode()
    return run.stdout


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, tuple[str, ...]]:
    folder = tmp_path_factory.mktemp("bundles")
    for name in VARIED:
        case(name).write(folder / name)
    odd = case("sw-port-in-use")
    odd.files["applog/größe-日本.log"] = "2026-11-03 02:00:00 größe 日本\n".encode()
    odd.write(folder / "odd")
    return str(folder), (*VARIED, "odd")


@pytest.mark.parametrize("where", SURROUNDINGS)
def test_any_surroundings_give_the_same_bytes(bundles: tuple[str, tuple[str, ...]], where: str) -> None:
    folder, names = bundles
    plain = _in_a_process(folder, names, ())
    assert len(plain.splitlines()) == len(names)
    assert _in_a_process(folder, names, tuple(SURROUNDINGS[where].items())) == plain


def test_the_json_is_one_line_with_sorted_keys() -> None:
    said = usual(VARIED[0])
    assert "\n" not in said
    assert json.dumps(json.loads(said), sort_keys=True, separators=(",", ":"), ensure_ascii=False) == said
