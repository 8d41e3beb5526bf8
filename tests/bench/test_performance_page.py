"""docs/performance.md says what was measured last."""

from __future__ import annotations

import json

from tests.bench import growth, report


def test_the_page_holds_the_figures_that_were_kept() -> None:
    page = (report.DOCS / "performance.md").read_text()
    assert page == report.written(), "run python -m tests.bench.report --write"


def test_the_page_of_growth_holds_the_figures_that_were_kept() -> None:
    kept = json.loads(growth.KEPT.read_text())
    assert (report.DOCS / "growth.md").read_text() == growth.markdown(kept), "run python -m tests.bench.growth --write"
