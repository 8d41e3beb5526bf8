"""docs/performance.md says what was measured last."""

from __future__ import annotations

from tests.bench import report


def test_the_page_holds_the_figures_that_were_kept() -> None:
    page = (report.DOCS / "performance.md").read_text()
    assert page == report.written(), "run python -m tests.bench.report --write"
