"""A job hangs when it is silent for much longer than it usually is, however little of a long log is read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from engine.model import Diagnosis
from tests.engine.evidence import made_of

START = datetime(2026, 11, 3, 4, 0, tzinfo=UTC)
END = 5 * 3600
NOISE = 40
"""Other lines after each line of progress: with 100 signs each a megabyte tells of less than an hour."""


def looked_at(last: float, *, pause: float = 0, every: float = 3600, stride: int = 1) -> Diagnosis:
    """A job that runs for five hours by now: a step of twelve seconds after another until `last`, and a `pause` each
    `every` seconds.
    """
    out, at, number, next_pause = [], 60.0, 0, every
    while at <= last:
        stamp = f"{START + timedelta(seconds=at):%Y-%m-%dT%H:%M:%SZ}"
        out.append(f"{stamp} iteration {number} | loss 2.1\n" + f"{stamp} {'x' * 100}\n" * NOISE * stride)
        at, number = at + 12.0 * stride, number + stride
        if pause and at >= next_pause:
            at, next_pause = at + pause, next_pause + every
    end = f"{START + timedelta(seconds=END):%Y-%m-%dT%H:%M:%SZ}"
    evidence = made_of({"applog/train.log": "".join(out)}, state="RUNNING")
    return evidence.with_attempt(ended_at=end).diagnosed()


@pytest.mark.parametrize("stride", [1, 50])
def test_a_silence_that_is_unusual_is_a_hang_in_a_long_log(stride: int) -> None:
    assert looked_at(END - 3000, stride=stride).outcome == "hung"


@pytest.mark.parametrize("stride", [1, 50])
def test_a_job_that_goes_on_is_not_called_hung(stride: int) -> None:
    assert looked_at(END - 5, stride=stride).outcome == "unknown"


def test_pauses_that_were_not_read_are_as_usual_as_those_that_were() -> None:
    assert looked_at(END - 900, pause=900).outcome == "unknown"
    assert looked_at(END - 900).outcome == "hung"
    assert looked_at(END - 5000, pause=900).outcome == "hung"
