"""A pattern that would make every scan dear is refused, with file, rule and reason."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from engine.cli import main
from engine.patterns import ends_unbounded, to_ripgrep
from engine.ruleset import check_file
from tests.engine.evidence import ruleset


def faults(folder: Path, match: str, line: str, role: str = "cause") -> list[str]:
    pack = folder / "site.yaml"
    rule = {
        "id": "site.pattern",
        "title": "A pattern",
        "source": ["applog"],
        "match": match,
        "role": role,
        "domain": "software",
        "sub_domain": "user_code",
        "guide": "Look.",
        "does_not_prove": "Anything.",
        "examples": {"match": [{"line": line}], "no_match": ["nothing of the kind"]},
    }
    pack.write_text(json.dumps({"family": "site", "rules": [rule]}))
    return check_file(pack)


@pytest.mark.parametrize("match", [r"cuda failed: .*", r"cuda failed: (?P<why>.+)", r"(?:gave up|cuda failed.*)$"])
def test_a_pattern_that_takes_the_rest_of_the_line_is_refused(tmp_path: Path, match: str) -> None:
    (fault,) = faults(tmp_path, match, "cuda failed: no device")
    assert fault.startswith("site.yaml: site.pattern: match: ")
    assert "ends unbounded" in fault


@pytest.mark.parametrize(
    "match", [r"cuda failed: .{0,160}", r"cuda failed: (?P<why>[\w ]+)", r"cuda failed.*no device"]
)
def test_a_pattern_that_ends_somewhere_is_taken(tmp_path: Path, match: str) -> None:
    assert faults(tmp_path, match, "cuda failed: no device") == []
    assert not ends_unbounded(match)


def test_a_pattern_that_matches_more_than_one_in_a_hundred_ordinary_lines_is_refused(tmp_path: Path) -> None:
    (fault,) = faults(tmp_path, r"NCCL INFO", "node-01:1:2 [0] NCCL INFO comm 0x1 destroyed")
    assert "ordinary lines" in fault
    assert "at most 1%" in fault


@pytest.mark.parametrize("role", ["progress", "context"])
def test_a_rule_that_is_meant_for_ordinary_lines_may_match_many(tmp_path: Path, role: str) -> None:
    assert faults(tmp_path, r"NCCL INFO", "node-01:1:2 [0] NCCL INFO comm 0x1 destroyed", role) == []


def test_a_name_may_stand_in_several_patterns_for_ripgrep() -> None:
    assert to_ripgrep(r"Xid \((?P<device>[\w:]+)\)") == r"Xid \((?:[\w:]+)\)"
    assert to_ripgrep(r"(?i)loss is (?P<what>nan)") == r"(?i:loss is (?:nan))"
    assert to_ripgrep(r"f\(?P<x") == r"f\(?P<x"


@pytest.mark.skipif(shutil.which("rg") is None, reason="needs ripgrep: make peers")
def test_ripgrep_takes_all_patterns_and_finds_what_they_match(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rules", "patterns"]) == 0
    (tmp_path / "patterns").write_text(capsys.readouterr().out)
    lines = [e.line for m in ruleset().line_matchers for e in m.spec.examples.match]
    (tmp_path / "log").write_text("".join(f"{line}\n" for line in lines if "\n" not in line))
    command = ["rg", "--no-config", "--no-unicode", "--count", "-f", "patterns", "log"]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert int(found.stdout) == sum("\n" not in line for line in lines)
