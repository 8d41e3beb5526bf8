"""What tests run against that is not ours: real servers and packages."""

from __future__ import annotations

import os

import pytest


def leave_out(reason: str) -> None:
    """Skips the test for this reason, if there is one. In CI, where all must be had, that is an error."""
    if reason and os.environ.get("CI") == "true":
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)
