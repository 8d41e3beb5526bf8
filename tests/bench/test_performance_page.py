"""docs/performance.md says what was measured last."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.bench import growth, report


def test_the_page_holds_the_figures_that_were_kept() -> None:
    page = (report.DOCS / "performance.md").read_text()
    assert page == report.written(), "run python -m tests.bench.report --write"


def test_the_page_of_growth_holds_the_figures_that_were_kept() -> None:
    kept = json.loads(growth.KEPT.read_text())
    assert (report.DOCS / "growth.md").read_text() == growth.markdown(kept), "run python -m tests.bench.growth --write"


def test_figures_that_could_not_be_kept_are_not_measured_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("a server was started")

    monkeypatch.setattr(growth, "servers", never)
    monkeypatch.setattr(sys, "argv", ["growth", "--json", str(tmp_path / "missing" / "growth.json")])
    with pytest.raises(SystemExit):
        growth.main()
    assert "missing/growth.json: No such file or directory" in capsys.readouterr().err
