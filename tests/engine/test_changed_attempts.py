"""Attempts made of fragments of real ones, as tests/fuzz makes them: each has a diagnosis that keeps the contract."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.attempts import STORED
from tests.fuzz.checked import check

SECONDS = 10.0


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, len(STORED) - 1), st.binary(max_size=60))
def test_any_change_of_a_real_attempt_is_diagnosed(number: int, changes: bytes) -> None:
    check(number.to_bytes(2, "little") + changes, SECONDS)
