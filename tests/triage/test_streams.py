"""Raw lines: any of them at once, with its neighbours, and what other nodes said at the same moment."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta

import pytest

from tests.triage import cast
from triage.blobs import BlobReader
from triage.line_times import LineTimes
from triage.models import Attempt, Stream
from triage.selectors.streams import (
    MAX_LINE_BYTES,
    StreamGone,
    get_stream,
    lines_around_line,
    lines_around_offset,
    lines_around_time,
    same_moment,
    stream_lines,
)
from triage.services.attempts import record_attempt
from triage.services.facts import seconds
from triage.services.sources import blob_store

pytestmark = pytest.mark.django_db


@pytest.fixture
def attempt(db: None) -> Attempt:
    return record_attempt(cast.facts())[0]


def keep(attempt: Attempt, name: str, content: bytes, source: str = "applog", node: str | None = None) -> Stream:
    """A stream in the store, as the collecting leaves it."""
    blob = blob_store().put(io.BytesIO(content))
    with blob_store().reader(blob.key) as reader:
        times = LineTimes(reader, seconds(attempt.started_at), seconds(attempt.ended_at))
        first, last = times.first(), times.last()
    return Stream.objects.create(
        attempt=attempt, name=name, source=source, node=node, size=blob.size, lines=blob.lines, sha256=blob.sha256,
        blob=blob.key, first_at=first, last_at=last,
    )  # fmt: skip


def ticking(count: int, *, every: float = 1.0, start: datetime = cast.START, text: str = "iteration") -> bytes:
    return b"".join(f"{(start + timedelta(seconds=every * n)).isoformat()} {text} {n}\n".encode() for n in range(count))


def numbers(window: object) -> list[int]:
    return [line.number for line in window.lines]  # type: ignore[attr-defined]


def test_a_window_says_what_is_before_and_after_it(attempt: Attempt) -> None:
    stream = keep(attempt, "applog/a.log", ticking(50))
    window = stream_lines(stream, 10, 5)
    assert numbers(window) == [10, 11, 12, 13, 14]
    assert (window.first, window.last, window.total) == (10, 14, 50)
    assert window.has_before and window.has_after
    assert window.lines[0].text.endswith("iteration 9")
    assert not stream_lines(stream, 1, 5).has_before
    assert not stream_lines(stream, 46, 5).has_after


@pytest.mark.parametrize(("first", "wanted"), [(-10, [1, 2]), (0, [1, 2]), (50, [50]), (10**12, [50])])
def test_a_window_out_of_range_is_brought_into_range(attempt: Attempt, first: int, wanted: list[int]) -> None:
    assert numbers(stream_lines(keep(attempt, "applog/a.log", ticking(50)), first, 2)) == wanted


def test_a_line_and_an_offset_open_the_same_window(attempt: Attempt) -> None:
    stream = keep(attempt, "applog/a.log", ticking(50))
    by_line = lines_around_line(stream, 20, before=2, after=3)
    assert numbers(by_line) == [18, 19, 20, 21, 22, 23]
    middle = by_line.lines[2].offset
    assert lines_around_offset(stream, middle + 7, before=2, after=3).lines == by_line.lines
    assert numbers(lines_around_offset(stream, 10**15, before=1, after=1)) == [49, 50]


def test_bytes_that_are_no_text_and_endless_lines_can_be_shown(attempt: Attempt) -> None:
    stream = keep(attempt, "applog/a.log", b"caf\xe9 \x1b[31m\r\n" + b"x" * 3_000_000 + b"\nlast")
    window = stream_lines(stream, 1, 10)
    assert window.lines[0].text == "caf\\xe9 \x1b[31m"
    assert window.lines[1].cut and len(window.lines[1].text) == MAX_LINE_BYTES
    assert window.lines[2].text == "last"


def test_an_empty_stream_has_no_lines(attempt: Attempt) -> None:
    window = stream_lines(keep(attempt, "applog/a.log", b""), 1, 10)
    assert (window.lines, window.first, window.total) == ([], 0, 0)
    assert not window.has_before and not window.has_after


def test_a_pruned_stream_says_so(attempt: Attempt) -> None:
    stream = keep(attempt, "applog/a.log", ticking(5))
    blob_store().remove(stream.blob)
    with pytest.raises(StreamGone, match=r"applog/a\.log"):
        stream_lines(stream, 1, 1)
    stream.blob = ""
    with pytest.raises(StreamGone, match="no longer kept"):
        stream_lines(stream, 1, 1)


def test_a_stream_is_found_by_its_name_in_its_attempt_only(attempt: Attempt) -> None:
    stream = keep(attempt, "applog/a.log", ticking(5))
    assert get_stream(attempt.pk, "applog/a.log") == stream
    other, _ = record_attempt(cast.facts("2"))
    with pytest.raises(Stream.DoesNotExist):
        get_stream(other.pk, "applog/a.log")


@pytest.mark.parametrize(
    ("second", "wanted"), [(0, [1, 2]), (100, [99, 100, 101, 102]), (100.5, [100, 101, 102, 103]), (10**6, [199, 200])]
)
def test_the_lines_nearest_to_a_moment_are_found(attempt: Attempt, second: float, wanted: list[int]) -> None:
    stream = keep(attempt, "applog/a.log", ticking(200))
    window = lines_around_time(stream, cast.START + timedelta(seconds=second))
    assert window is not None
    assert numbers(window) == wanted
    assert window.lines[0].at == cast.START + timedelta(seconds=wanted[0] - 1)


def test_a_moment_is_found_between_lines_that_tell_no_time(attempt: Attempt) -> None:
    content = ticking(50).replace(b"\n", b"\n  continued\n  continued\n")
    window = lines_around_time(keep(attempt, "applog/a.log", content), cast.START + timedelta(seconds=30))
    assert window is not None
    assert "iteration 30" in "".join(line.text for line in window.lines)


def test_a_stream_without_times_has_no_moment(attempt: Attempt) -> None:
    assert lines_around_time(keep(attempt, "applog/a.log", b"no\ntime\n" * 500), cast.START) is None


def test_a_moment_deep_in_a_large_stream_is_found_without_reading_it(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = keep(attempt, "applog/a.log", ticking(300_000, every=0.02, text="iteration with some padding " + "." * 80))
    readers: list[BlobReader] = []
    original = BlobReader.__init__

    def remembered(self: BlobReader, *arguments: object) -> None:
        original(self, *arguments)  # type: ignore[arg-type]
        readers.append(self)

    monkeypatch.setattr(BlobReader, "__init__", remembered)
    window = lines_around_time(stream, cast.START + timedelta(seconds=4000))
    assert window is not None and 200_001 in numbers(window)
    assert readers[0].frames > 35 and readers[0].unpacked <= 12


def test_syslog_times_without_year_are_told_by_the_attempts_window(attempt: Attempt) -> None:
    stream = keep(attempt, "syslog/gx-02.log", cast.SYSLOG.encode(), "syslog", "gx-02")
    assert stream.first_at == datetime(2026, 11, 3, 4, 11, 16, tzinfo=UTC)


def test_the_same_moment_shows_the_other_streams_that_cover_it(attempt: Attempt) -> None:
    at = cast.START + timedelta(seconds=100)
    here = keep(attempt, "syslog/gx-01.log", ticking(200, text="gx-01 kernel: x"), "syslog", "gx-01")
    keep(attempt, "syslog/gx-02.log", ticking(200, text="gx-02 kernel: x"), "syslog", "gx-02")
    keep(attempt, "applog/a.log", ticking(200))
    keep(attempt, "applog/yesterday.log", ticking(200, start=cast.START - timedelta(days=1)))
    keep(attempt, "applog/silent.log", b"no time\n")
    keep(attempt, "scheduler/sacct.txt", ticking(200), "scheduler")
    windows = same_moment(attempt, at, but=here)
    assert [window.stream.name for window in windows] == ["syslog/gx-02.log", "applog/a.log"]
    assert all(any(line.at == at for line in window.lines) for window in windows)
