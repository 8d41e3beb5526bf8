"""Nothing lost, nothing twice, in order: whatever the pages, the limits and the times of the entries."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.base import CollectRequest, Limits
from connectors.http import Deadline, HttpClient
from connectors.loki.client import BACKWARD, FORWARD, LokiClient, duration_ns
from connectors.loki.config import LokiConfig
from connectors.loki.connector import LokiConnector
from connectors.loki.paging import Pager
from tests.connectors.loki.conftest import APPLOG, NS, START, attempt, collect
from tests.fakes.loki import Entry, FakeLoki

LABELS = {"job_id": "4242", "node": "gx-01"}
MILLION = 1_000_000
ALIKE = 700
"""Entries with the same nanosecond: pages of 5,000 end in the middle of them."""


class Million(Sequence[Entry]):
    """A million entries, each made when it is asked for."""

    def __len__(self) -> int:
        return MILLION

    def __getitem__(self, index: int) -> Entry:  # type: ignore[override]
        return Entry(START * NS + index // ALIKE * 1000, f"step {index}")


def test_a_million_lines_with_equal_times_across_pages_come_out_complete_and_in_order() -> None:
    with FakeLoki() as loki:
        loki.hold(LABELS, Million())
        connector = LokiConnector.from_config({"url": loki.url, "queries": [APPLOG]})
        with connector.collect(CollectRequest(attempt=attempt("gx-01"), ref="")) as collected:
            (stream,) = collected.streams()
            expected = 0
            with stream.open() as content:
                for line in content:
                    assert line.endswith(b" stdout F step %d\n" % expected)
                    expected += 1
            (report,) = collected.reports()
        assert max(int(params["limit"]) for _, params, _ in loki.requests) == 5000
    assert expected == report.lines == MILLION
    assert report.status == "ok" and report.note == ""


@pytest.mark.parametrize("size", [1, 3, 7, 10, 11, 1000])
def test_pages_of_any_size_give_the_same(size: int) -> None:
    with FakeLoki(max_entries=1000) as loki:
        loki.push(LABELS, [(START * NS + index // 4, f"a{index}") for index in range(50)])
        loki.push({**LABELS, "node": "gx-02"}, [(START * NS + index // 5, f"b{index}") for index in range(50)])
        found = collect(loki.url, page=size)
    assert found.texts("applog/loki/gx-01.log") == [f"a{index}" for index in range(50)]
    assert found.texts("applog/loki/gx-02.log") == [f"b{index}" for index in range(50)]


@settings(max_examples=40, deadline=None)
@given(
    streams=st.lists(
        st.lists(st.tuples(st.integers(0, 12), st.sampled_from("abc")), max_size=30), min_size=1, max_size=3
    ),
    size=st.integers(1, 12),
    most=st.integers(12, 40),
    direction=st.sampled_from([FORWARD, BACKWARD]),
)
def test_any_entries_in_any_direction_come_once(
    streams: list[list[tuple[int, str]]], size: int, most: int, direction: str
) -> None:
    with FakeLoki(max_entries=most) as loki:
        for index, entries in enumerate(streams):
            loki.push({"job": "x", "n": str(index)}, [(START * NS + at, line) for at, line in entries])
        config = LokiConfig.parse({"url": loki.url, "queries": [APPLOG]})
        with HttpClient(config.endpoint) as http:
            pager = Pager(LokiClient(http, Deadline(30)), size)
            got: dict[str, list[tuple[int, str]]] = {}
            for found in pager.pages('{job="x"}', START * NS, START * NS + 13, direction):
                for stream in found:
                    got.setdefault(stream.stream["n"], []).extend((e.ns - START * NS, e.line) for e in stream.values)
        assert not pager.notes
    for index, entries in enumerate(streams):
        kept = list(dict.fromkeys(sorted(entries, key=lambda entry: entry[0])))  # Loki drops what is twice in a stream
        mine = got.get(str(index), [])
        assert mine == (kept if direction == FORWARD else kept[::-1])


def test_more_entries_of_one_nanosecond_than_a_page_are_had_by_a_higher_limit() -> None:
    with FakeLoki(max_entries=5000) as loki:
        entries = [(START * NS + NS, f"same {index}") for index in range(1500)]
        loki.push(LABELS, [(START * NS, "before"), *entries, (START * NS + 2 * NS, "after")])
        found = collect(loki.url, page=100)
    assert found.texts("applog/loki/gx-01.log") == ["before", *(f"same {index}" for index in range(1500)), "after"]
    assert found.reports["applog"].status == "ok"


def test_more_than_the_servers_limit_at_one_nanosecond_are_had_stream_by_stream_from_both_ends() -> None:
    with FakeLoki(max_entries=100) as loki:
        for node in ("gx-01", "gx-02"):
            entries = [(START * NS + NS, f"{node} {index}") for index in range(180)]
            loki.push({**LABELS, "node": node}, [(START * NS, "before"), *entries, (START * NS + 2 * NS, "after")])
        found = collect(loki.url, page=100)
    for node in ("gx-01", "gx-02"):
        expected = ["before", *(f"{node} {index}" for index in range(180)), "after"]
        assert found.texts(f"applog/loki/{node}.log") == expected
    assert found.reports["applog"].status == "ok"


def test_what_can_not_be_asked_for_is_reported_and_the_rest_is_there() -> None:
    with FakeLoki(max_entries=100) as loki:
        entries = [(START * NS + NS, f"same {index}") for index in range(500)]
        loki.push(LABELS, [(START * NS, "before"), *entries, (START * NS + 2 * NS, "after")])
        found = collect(loki.url, page=100)
    texts = found.texts("applog/loki/gx-01.log")
    assert texts == ["before", *(f"same {i}" for i in (*range(100), *range(400, 500))), "after"]
    report = found.reports["applog"]
    assert report.status == "partial"
    assert "more than 200 entries" in report.note and "raise max_entries_limit_per_query" in report.note


def test_a_window_beyond_the_servers_limit_is_split() -> None:
    with FakeLoki(max_window_ns=3600 * NS) as loki:
        loki.push(LABELS, [((START + minute * 60) * NS, f"minute {minute}") for minute in range(600)])
        found = collect(loki.url, of=attempt("gx-01", seconds=36_000.0))
    assert found.texts("applog/loki/gx-01.log") == [f"minute {minute}" for minute in range(600)]
    assert found.reports["applog"].status == "ok"


def test_a_question_that_reads_too_many_bytes_is_split() -> None:
    with FakeLoki(max_bytes=1000) as loki:
        loki.push(LABELS, [((START + second) * NS, f"{second:04d}" + "x" * 96) for second in range(600)])
        found = collect(loki.url)
    assert [text[:4] for text in found.texts("applog/loki/gx-01.log")] == [f"{second:04d}" for second in range(600)]


def test_a_page_beyond_the_servers_limit_is_made_smaller() -> None:
    with FakeLoki(max_entries=77) as loki:
        loki.push(LABELS, [((START + index) * NS, f"line {index}") for index in range(500)])
        found = collect(loki.url)
        limits = [int(params["limit"]) for _, params, _ in loki.requests]
    assert limits[:2] == [5000, 77]
    assert found.texts("applog/loki/gx-01.log") == [f"line {index}" for index in range(500)]


def test_pages_whose_bytes_are_too_many_are_made_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.loki.client.MAX_PAGE_BYTES", 50_000)
    with FakeLoki() as loki:
        loki.push(LABELS, [((START + index) * NS, f"{index} " + "y" * 2000) for index in range(100)])
        found = collect(loki.url)
    assert [text.split()[0] for text in found.texts("applog/loki/gx-01.log")] == [str(index) for index in range(100)]


def test_what_goes_beyond_the_bytes_leaves_out_the_middle_and_keeps_the_end() -> None:
    with FakeLoki() as loki:
        loki.push(LABELS, [(START * NS + index * NS // 100, f"line {index:05d}") for index in range(20_000)])
        found = collect(loki.url, limits=Limits(bytes=600_000), page=100)
    numbers = [int(text.split()[1]) for text in found.texts("applog/loki/gx-01.log")]
    assert numbers == sorted(set(numbers)) and numbers[0] == 0 and numbers[-1] == 19_999
    assert 8_000 < len(numbers) < 13_000
    report = found.reports["applog"]
    assert report.status == "partial" and report.bytes < 620_000
    assert "are left out for the limit of 600000 bytes; those before and after it are there" in report.note


def test_equal_times_at_the_gap_are_not_doubled() -> None:
    with FakeLoki() as loki:
        loki.push(LABELS, [(START * NS + index // 30, f"line {index:05d}") for index in range(300)])
        found = collect(loki.url, limits=Limits(bytes=14_500), page=100)
    texts = found.texts("applog/loki/gx-01.log")
    assert texts == sorted(set(texts))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("721h0m0s", 721 * 3600.0),
        ("30d1h", 721 * 3600.0),
        ("1m30.5s", 90.5),
        ("5ms", 0.005),
        ("soon", None),
        ("", None),
    ],
)
def test_durations_are_read_as_go_writes_them(text: str, seconds: float | None) -> None:
    assert duration_ns(text) == (None if seconds is None else int(seconds * NS))
