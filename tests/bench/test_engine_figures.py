"""Prints the engine's figures with `make bench`; nothing is asserted, since they are the machine's as well."""

from __future__ import annotations

import json
import os

import pytest

from tests.bench.engine import measure

pytestmark = pytest.mark.bench


def test_figures() -> None:
    print("\n" + json.dumps(measure(int(os.environ.get("SIZE_MB", "200"))), indent=1))
