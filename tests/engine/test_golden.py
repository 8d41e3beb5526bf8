"""Whole diagnoses are as they were, down to every line of evidence and every sentence."""

from __future__ import annotations

import difflib

import pytest

from tests.engine.golden import FOLDER, KEPT, made


@pytest.mark.parametrize("name", KEPT)
def test_the_diagnosis_is_the_kept_one(name: str) -> None:
    kept, now = (FOLDER / f"{name}.json").read_text(encoding="utf-8"), made(name)
    if kept != now:
        changed = difflib.unified_diff(kept.splitlines(), now.splitlines(), "kept", "now", lineterm="", n=2)
        said = "\n".join(line[:200] for line in list(changed)[:120])
        pytest.fail(f"{said}\n\nIf that is meant: python -m tests.engine.golden", pytrace=False)


def test_every_kept_file_is_compared() -> None:
    assert {file.stem for file in FOLDER.glob("*.json")} == set(KEPT)
