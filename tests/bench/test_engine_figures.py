"""The engine's figures with `make bench`: printed, kept in docs/performance.json and .md; the verdicts must be right.

SIZE_MB chooses the size of the large logs. How fast is the machine's as well, so a figure out of its bounds is told and
fails nothing; memory does not depend on the machine.
"""

from __future__ import annotations

import json
import os

import pytest

from tests.bench import report
from tests.bench.corpus import FAILED_NODE
from tests.bench.engine import KEPT, measure, text
from tests.bench.report import DOCS

pytestmark = pytest.mark.bench


def test_figures() -> None:
    size = int(os.environ.get("SIZE_MB", "1000"))
    result = measure(size)
    print("\n" + text(result))
    if size == 1000:
        KEPT.write_text(json.dumps(result, indent=1) + "\n")
        (DOCS / "performance.md").write_text(report.written())
    for one in result["figures"]:
        assert one.get("verdict") in (None, ["hardware", "gpu", [FAILED_NODE]]), one
        assert one["unit"] != "MB" or one["holds"], one
