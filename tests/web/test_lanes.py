"""Streams of several nodes merged by time: order, completeness, clocks, who failed first."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from django.test import Client
from django.urls import reverse

from tests.web.test_evidence import Collected, collected, syslog
from tests.web.test_hostile import FORBIDDEN, SCRIPT
from triage.models import Attempt
from triage.selectors.merged import corrections, first_failures, merge

__all__ = ["collected"]
AT = datetime(2026, 10, 5, 2, 3, tzinfo=UTC)


def lanes_url(attempt: Attempt, query: str = "") -> str:
    return reverse("lanes", args=[attempt.pk]) + query


def two(collected: Collected) -> Attempt:
    return collected({"syslog/gx-01.log": syslog("gx-01", 400), "syslog/gx-02.log": syslog("gx-02", 300, 100)})


def test_lines_of_two_nodes_alternate_in_the_order_of_time(collected: Collected) -> None:
    attempt = two(collected)
    merged = merge(attempt, list(attempt.streams.order_by("name")), AT, {})
    times = [line.at for line in merged.lines]
    assert times == sorted(times) and {line.lane for line in merged.lines} == {0, 1}
    assert [line.lane for line in merged.lines[:4]] == [0, 1, 0, 1]
    assert merged.has_before and merged.has_after


def test_the_merged_span_leaves_out_no_line_of_any_lane(collected: Collected) -> None:
    busy = "".join(
        f"2026-10-05T02:02:{ms // 1000:02d}.{ms % 1000:03d}000+00:00 gx-02 kernel: busy {ms}\n"
        for ms in range(0, 60000, 50)
    ).encode()
    attempt = collected({"syslog/gx-01.log": syslog("gx-01", 400), "syslog/gx-02.log": busy})
    middle = datetime(2026, 10, 5, 2, 2, 30, tzinfo=UTC)
    merged = merge(attempt, list(attempt.streams.order_by("name")), middle, {}, reach=40)
    assert merged.first and merged.last and merged.first <= middle <= merged.last
    of_quiet = [line.at.second for line in merged.lines if line.lane == 0]
    assert of_quiet == list(range(28, 32)) or of_quiet == list(range(29, 32)), "only where the busy lane is complete"
    numbers = [line.line.number for line in merged.lines if line.lane == 1]
    assert numbers == list(range(numbers[0], numbers[-1] + 1))


def test_a_clock_that_the_engine_put_right_is_put_right_here_and_said(collected: Collected) -> None:
    clock = "own, corrected by -120 s for this node's clock"
    assert corrections({"evidence": [{"clock": clock, "node": "gx-02"}, {"clock": "own", "node": "gx-01"}]}) == {
        "gx-02": -120.0
    }
    attempt = two(collected)
    merged = merge(attempt, list(attempt.streams.order_by("name")), AT, {"gx-02": -120.0})
    fast = next(line for line in merged.lines if line.lane == 1)
    assert fast.line.at is not None and (fast.line.at - fast.at).total_seconds() == 120
    assert merged.lanes[1].correction == -120.0


def test_what_tells_no_time_stays_behind_the_line_before_it(collected: Collected) -> None:
    log = b"2026-10-05T02:03:00Z Traceback\n  File x\nValueError: y\n2026-10-05T02:03:02Z end\n"
    attempt = collected({"applog/out.log": log, "syslog/gx-01.log": syslog("gx-01", 400)})
    streams = sorted(attempt.streams.all(), key=lambda stream: stream.name)
    merged = merge(attempt, streams, AT, {})
    own = [(line.line.number, line.own) for line in merged.lines if line.lane == 0]
    assert own == [(1, True), (2, False), (3, False), (4, True)]


def test_the_page_names_lanes_by_letter_and_node_and_pages_in_time(signed_in: Client, collected: Collected) -> None:
    attempt = two(collected)
    page = signed_in.get(
        lanes_url(attempt, "?stream=syslog/gx-01.log&stream=syslog/gx-02.log&at=02:03:00")
    ).content.decode()
    assert page.count('class="lane-1 noise"') > 30 and page.count('class="lane-2 noise"') > 30
    assert '<b class="lane-mark">A</b><span>gx-01</span>' in page
    assert "no clock that is wrong by more than 90 s" in page
    later = re.findall(r'href="(\?stream=[^"]+at=[^"]+)"', page)
    assert len(later) >= 2
    one = signed_in.get(lanes_url(attempt, later[-1].replace("&amp;", "&"))).content.decode()
    assert 'class="lane-1' in one


def test_odd_addresses_and_hostile_lines_are_harmless(signed_in: Client, collected: Collected) -> None:
    line = f"2026-10-05T02:03:00Z {SCRIPT} \u202e\x1b[31mred\x1b[0m {'z' * 100_000}\n".encode()
    attempt = collected({"applog/out.log": line * 3})
    for query in (
        "",
        "?stream=nowhere",
        "?at=99:99",
        "?at=%00",
        "?stream=applog/out.log&at=1970-01-01",
        "?at=<script>",
    ):
        answer = signed_in.get(lanes_url(attempt, query))
        assert answer.status_code == 200
        page = answer.content.decode()
        assert not FORBIDDEN.search(page) and SCRIPT not in page and len(page) < 120_000
    assert "is no time" in signed_in.get(lanes_url(attempt, "?at=99:99")).content.decode()
    assert signed_in.get("/attempts/999999/lanes/").status_code == 404


def test_the_first_cited_line_of_a_stream_is_when_it_failed() -> None:
    contract = {
        "root_cause": {"evidence": ["e2"]},
        "symptoms": [{"evidence": ["e1", "e3"], "explained_by": "root"}, {"evidence": ["e4"], "explained_by": None}],
        "evidence": [
            {"id": "e1", "at": "2026-10-05T02:00:09Z", "stream": "a"},
            {"id": "e2", "at": "2026-10-05T02:00:05Z", "stream": "b"},
            {"id": "e3", "at": "2026-10-05T02:00:07Z", "stream": "a"},
            {"id": "e4", "at": "2026-10-05T02:00:01Z", "stream": "a"},
        ],
    }
    found = first_failures(contract)
    assert found[("a", None)][1] == "e3" and found[("b", None)][1] == "e2"


def ranked(count: int = 900) -> bytes:
    """One log that four ranks write in turn, with a line of nobody between."""
    lines = []
    for n in range(count):
        at = f"2026-10-05T02:{n // 60:02d}:{n % 60:02d}.000000Z"
        lines.append(f"{n % 4}: {at} step {n}" if n % 10 else f"{at} launcher {n}")
    return ("\n".join(lines) + "\n").encode()


def test_a_log_that_many_ranks_write_is_parted_into_a_lane_a_rank(collected: Collected) -> None:
    attempt = collected({"applog/out.log": ranked(), "syslog/gx-01.log": syslog("gx-01", 900)})
    streams = sorted(attempt.streams.all(), key=lambda stream: stream.name)
    merged = merge(attempt, streams, AT, {}, ranks=[1, 3, 9])
    whose = [(lane.stream.source, lane.rank) for lane in merged.lanes]
    assert whose == [("applog", 1), ("applog", 3), ("syslog", None)]
    for lane, rank in ((0, 1), (1, 3)):
        own = [row.line for row in merged.lines if row.lane == lane]
        assert own and all(line.text.startswith(f"{rank}: ") for line in own)
    between = [row for row in merged.lines if merged.first and merged.last and row.lane == 0]
    numbers = [row.line.number for row in between]
    missing = [n for n in range(numbers[0], numbers[-1]) if (n - 1) % 4 == 1 and (n - 1) % 10 and n not in numbers]
    assert missing == [], "no line of the rank is left out"


def test_a_log_of_another_rank_has_no_lane_and_a_number_within_a_node_is_counted_on(collected: Collected) -> None:
    log = b"".join(b"[default%d]:2026-10-05T02:03:%02dZ x\n" % (n % 2, n) for n in range(40))
    attempt = collected({
        "applog/gx-02.log": log,
        "applog/rank-7.log": b"2026-10-05T02:03:00Z seven\n",
    })  # fmt: skip
    Attempt.objects.filter(pk=attempt.pk).update(gpus_per_node=4)
    attempt = Attempt.objects.get(pk=attempt.pk)
    streams = sorted(attempt.streams.all(), key=lambda stream: stream.name)
    merged = merge(attempt, streams, AT, {}, ranks=[5])
    assert [lane.rank for lane in merged.lanes] == [5], "the second rank of the second node"
    assert {row.rank for row in merged.lines} == {5}


def test_ranks_are_typed_and_stay_in_the_addresses(signed_in: Client, collected: Collected) -> None:
    attempt = collected({"applog/out.log": ranked()})
    page = signed_in.get(lanes_url(attempt, "?stream=applog/out.log&ranks=0-2&at=02:03:00")).content.decode()
    assert page.count("<strong>rank ") == 3 and 'value="0-2"' in page
    assert '<b class="lane-mark">B</b><span>rank 1</span>' in page
    without_b = re.search(r'href="(\?[^"]+)" aria-label="Without lane B"', page)
    assert without_b and "ranks=0%2C2" in without_b[1]
    later = re.findall(r'href="(\?stream=[^"]+at=[^"]+)"', page)[-1].replace("&amp;", "&")
    assert page.count("Without lane") == 3 and "ranks=0%2C1%2C2" in later
    mixed = signed_in.get(lanes_url(attempt, "?stream=applog/out.log&at=02:03:00")).content.decode()
    assert re.search(r"<span>applog/out.log r3</span>", mixed), "which rank wrote a line is said without a choice too"
    for odd in ("x", "1-", "%3Cscript%3E", "9999999999"):
        refused = signed_in.get(lanes_url(attempt, f"?ranks={odd}")).content.decode()
        assert "is no list of ranks" in refused and SCRIPT not in refused
    assert "No line of these ranks" in signed_in.get(lanes_url(attempt, "?ranks=77")).content.decode()
