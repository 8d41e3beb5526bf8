"""A job that slowed down is slow by what was said again and again from then on, though it passed each time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from engine.model import Diagnosis
from tests.engine.evidence import made_of
from tests.engine.rules.test_hardware_diagnoses import verdict

START = datetime(2026, 11, 3, 4, 0, tzinfo=UTC)
SLOW_FROM = 900
LUSTRE = (
    "Lustre: fs01-OST0002-osc-ffff9a41: Connection to fs01-OST0002 (at 10.12.8.12@o2ib) was lost; in progress "
    "operations using this service will wait for recovery to complete",
    "Lustre: fs01-OST0002-osc-ffff9a41: Connection restored to 10.12.8.12@o2ib (at 10.12.8.12@o2ib)",
)
REPLY = (
    "Lustre: 4211:0:(client.c:2289:ptlrpc_expire_one_request()) @@@ Request sent has timed out for slow reply: [sent "
    "1794436494/real 1794436494]  req@ffff9a3f1e6d0c80 x1784120022816384/t0(0) o3->fs01-OST0007-osc-ffff9a41@10.12.8.17"
    "@o2ib:6/4 lens 488/440",
)
NFS = ("nfs: server nas2 not responding, still trying", "nfs: server nas2 OK")


def steps(slow_from: int) -> str:
    """Steps of two seconds, from a moment on of five."""
    out, at, number = [], 30.0, 0
    while at < 1790:
        out.append(f"{START + timedelta(seconds=at):%Y-%m-%d %H:%M:%S} step={number} loss=1.{number % 90:02d}")
        at, number = at + (20 if at < slow_from else 50), number + 10
    return "\n".join(out) + "\n"


def said(pair: tuple[str, ...], *moments: float, node: str) -> str:
    """Each time what fails, and ten seconds later that it is well again."""
    lines = [
        f"{(START + timedelta(seconds=at + 10 * i)).isoformat()} {node} kernel: {text}\n"
        for at in moments
        for i, text in enumerate(pair)
    ]
    return "".join(lines)


def slowed(
    pair: tuple[str, ...], told: dict[int, tuple[float, ...]], *, slow_from: int = SLOW_FROM, **attempt: Any
) -> Diagnosis:
    files = {f"syslog/node-0{n}.log": said(pair, *told.get(n, ()), node=f"node-0{n}") for n in range(1, 5)}
    evidence = made_of({"applog/job.log": steps(slow_from), **files}, state="COMPLETED")
    return evidence.with_attempt(exit_code="0:0", **attempt).diagnosed()


AGAIN = (950.0, 1200.0, 1450.0, 1700.0)


@pytest.mark.parametrize("pair", [LUSTRE, REPLY, NFS], ids=["lustre lost", "lustre slow", "nfs"])
def test_a_server_that_all_nodes_wait_for_again_and_again_slows_the_job(pair: tuple[str, ...]) -> None:
    found = slowed(pair, {n: tuple(at + 7 * n for at in AGAIN) for n in range(1, 5)})
    assert (found.outcome, *verdict(found)) == ("degraded", "storage/shared_filesystem", ())


def test_two_of_four_nodes_that_wait_for_it_are_not_to_blame_for_the_server() -> None:
    found = slowed(LUSTRE, {2: AGAIN, 3: (1100.0, 1500.0)})
    assert (found.outcome, *verdict(found)) == ("degraded", "storage/shared_filesystem", ())


def test_the_only_node_whose_file_system_comes_and_goes_is_blamed() -> None:
    found = slowed(LUSTRE, {3: AGAIN})
    assert (found.outcome, *verdict(found)) == ("degraded", "storage/shared_filesystem", ("node-03",))


def test_what_passed_twice_slows_nothing_for_a_quarter_of_an_hour() -> None:
    found = slowed(LUSTRE, {3: (950.0, 1200.0)})
    assert (found.outcome, *verdict(found)) == ("degraded", "unattributed/none", ())


def test_a_job_that_stays_fast_is_not_slow_by_anything() -> None:
    found = slowed(LUSTRE, dict.fromkeys(range(1, 5), AGAIN), slow_from=9999)
    assert (found.outcome, *verdict(found)) == ("succeeded", "unattributed/none", ())


def test_a_crash_long_after_the_server_answered_again_is_not_the_servers() -> None:
    files = {f"syslog/node-0{n}.log": said(NFS, 950, 1000, 1100, node=f"node-0{n}") for n in range(1, 5)}
    found = made_of({"applog/job.log": steps(SLOW_FROM), **files}).diagnosed()
    assert (found.outcome, *verdict(found)) == ("failed", "unattributed/none", ())
