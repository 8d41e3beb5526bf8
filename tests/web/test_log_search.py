"""Search inside a stream, ranges, times, folds and the marks of rules, by what the pages say."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from tests.web.test_evidence import Collected, collected, numbers, stream_url, syslog
from tests.web.test_hostile import FORBIDDEN, SCRIPT
from triage.models import Attempt, Stream
from triage.selectors.stream_search import Query, SearchRefused, search
from triage.web.typed_time import typed_moment

__all__ = ["collected"]


def stored(attempt: Attempt, name: str = "applog/out.log") -> Stream:
    return Stream.objects.get(attempt=attempt, name=name)


def lines_of(attempt: Attempt, text: str, **options: Any) -> list[int]:
    return list(search(stored(attempt), Query(text, **options)).lines)


def test_a_search_covers_every_frame_of_a_stream(collected: Collected) -> None:
    filler = b"step 1 of many, nothing to see here at all\n"
    wanted = [1, 30_001, 60_001, 99_999]
    content = [filler] * 100_000
    for number in wanted:
        content[number - 1] = b"the Needle lies here\n"
    attempt = collected({"applog/out.log": b"".join(content)})
    found = search(stored(attempt), Query("needle"))
    assert list(found.lines) == wanted and found.complete and found.total == 100_000
    assert lines_of(attempt, "needle", case=True) == []
    assert lines_of(attempt, r"N\w+e lies (here|there)$", regex=True, case=True) == wanted
    assert found.next(1) == 30_001 and found.previous(30_001) == 1 and found.next(99_999) is None
    assert found.place(60_001) == 3 and found.at_or_after(61_000) == 99_999


def test_a_search_reads_what_is_shown_and_stays_within_a_line(collected: Collected) -> None:
    lines = [
        b"\x1b[31mErr\x1b[0mor: boom",
        b"windows end\r",
        b"caf\xc3\xa9 closed",
        b"a.b*c",
        b'"open',
        b'close"',
        b"x",
    ]
    attempt = collected({"applog/out.log": b"\n".join(lines)})
    assert lines_of(attempt, "error: boom") == [1]
    assert lines_of(attempt, "end$", regex=True) == [2]
    assert lines_of(attempt, "caf\u00e9") == [3]
    assert lines_of(attempt, "a.b*c") == [4], "plain text is no regex"
    assert lines_of(attempt, r'"[^x]*"', regex=True) == [], "nothing reaches over a line end"
    assert lines_of(attempt, "^x", regex=True) == [7]
    assert lines_of(attempt, r"open\s*close", regex=True) == []


def test_a_match_far_into_a_line_of_many_megabytes_is_found(collected: Collected) -> None:
    long = b"x" * 3_000_000 + b" Needle " + b"y" * 9_000_000 + b" haystack"
    attempt = collected({"applog/out.log": b"first\n" + long + b"\nlast\n"})
    assert lines_of(attempt, "needle") == [2]
    assert lines_of(attempt, "haystack") == [2]
    assert lines_of(attempt, "last") == [3]


@pytest.mark.parametrize(
    ("regex", "reason"),
    [
        (r"(a)\1", "back-reference"),
        (r"(?=a)b", "look-around"),
        ("a*", "empty string"),
        ("[", "not a valid regex"),
        (r"a\nb", "line end"),
        ("a" * 500, "longer than 400"),
        ("((a.{1,200}b){1,200}c){1,200}", "too large"),
    ],
)
def test_what_cannot_run_in_linear_time_is_refused_with_the_reason(
    regex: str, reason: str, signed_in: Client, collected: Collected
) -> None:
    attempt = collected({"applog/out.log": b"ab\n"})
    with pytest.raises(SearchRefused, match=reason):
        search(stored(attempt), Query(regex, regex=True))
    page = signed_in.get(stream_url(attempt, "applog/out.log"), {"q": regex, "regex": "1"})
    assert page.status_code == 200 and "Not searched." in page.content.decode() and numbers(page.content.decode())


def test_a_regex_that_would_hang_a_backtracking_engine_answers_at_once(collected: Collected) -> None:
    attempt = collected({"applog/out.log": b"a" * 200_000 + b"!\n" + b"aaa b\n"})
    assert lines_of(attempt, "(a+)+ b", regex=True) == [2]


def test_a_search_that_stops_says_where_and_goes_on_from_there(
    signed_in: Client, collected: Collected, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = collected({"syslog/gx-01.log": syslog("gx-01", 400)})
    stream = stored(attempt, "syslog/gx-01.log")
    some = search(stream, Query("tick"), most=150)
    assert (some.count, some.stopped, some.searched) == (150, "lines", 150)
    rest = search(stream, Query("tick"), since=151)
    assert (rest.count, rest.stopped, list(rest.lines)[:1]) == (250, "", [151])
    late = search(stream, Query("late"), seconds=-1)
    assert (late.stopped, late.searched) == ("time", 0)
    monkeypatch.setattr(search, "__kwdefaults__", {"since": 1, "seconds": 5.0, "most": 100})
    page = signed_in.get(stream_url(attempt, "syslog/gx-01.log", "?q=tick+3")).content.decode()
    assert "stopped at 100 matching lines, in line" in page and "Search on from line" in page


def test_matches_are_marked_counted_and_walked_without_script(signed_in: Client, collected: Collected) -> None:
    content = syslog("gx-01", 400)
    attempt = collected({"syslog/gx-01.log": content})
    page = signed_in.get(stream_url(attempt, "syslog/gx-01.log", "?q=tick+2&near=120")).content.decode()
    assert "3 of 111 matching lines" not in page
    assert re.search(r"\d+ of 111 matching lines", page) and "whole log searched, 400 lines" in page
    assert '<li id="L201" class="cause found"' in page, "the first match at or after the line one stood at"
    assert "<mark>tick 2</mark>" in page
    following = re.search(r'href="([^"]+)" data-key="\."', page)
    assert following and following.group(1) == "?q=tick+2&amp;line=202#L202"
    assert "No match" in signed_in.get(stream_url(attempt, "syslog/gx-01.log", "?q=absent")).content.decode()


def test_a_hostile_search_is_shown_harmlessly(signed_in: Client, collected: Collected) -> None:
    attempt = collected({"applog/out.log": SCRIPT.encode() + b"\nabc\n"})
    page = signed_in.get(stream_url(attempt, "applog/out.log"), {"q": SCRIPT}).content.decode()
    assert not FORBIDDEN.search(page) and SCRIPT not in page and "<mark>&lt;" in page
    for odd in ("\x00", "\u202e", "a" * 5000, "\ud800".encode("utf-8", "surrogatepass").decode("utf-8", "replace")):
        assert signed_in.get(stream_url(attempt, "applog/out.log"), {"q": odd}).status_code == 200


def test_the_search_shows_the_part_of_a_long_line_in_which_it_matched(signed_in: Client, collected: Collected) -> None:
    attempt = collected({"applog/out.log": b"x" * 1_000_000 + b" Needle " + b"y" * 100_000 + b"\n"})
    page = signed_in.get(stream_url(attempt, "applog/out.log", "?q=needle")).content.decode()
    assert "<mark>Needle</mark>" in page and "earlier part" in page and len(page) < 200_000


def test_lines_can_be_picked_and_quoted_by_address(signed_in: Client, collected: Collected) -> None:
    attempt = collected({"syslog/gx-01.log": syslog("gx-01", 400)})
    page = signed_in.get(stream_url(attempt, "syslog/gx-01.log", "?lines=120-131")).content.decode()
    assert len(re.findall(r'<li id="L\d+" class="[a-z]+ range"', page)) == 12
    assert "Lines 120 to 131 picked" in page
    assert f"/attempts/{attempt.pk}/?quote=syslog%2Fgx-01.log%3A120-131#compose" in page
    for odd in ("?lines=9-3", "?lines=x", "?lines=1-99999999", "?lines=999999-1000000", "?lines=0-0"):
        assert numbers(signed_in.get(stream_url(attempt, "syslog/gx-01.log", odd)).content.decode())


@pytest.mark.parametrize(
    ("typed", "line"),
    [("200", 200), ("L200", 200), ("02:05:00", 301), ("02:05", 301), ("2026-10-05 02:05:00", 301), ("23:59", 1)],
)
def test_a_line_or_a_time_can_be_jumped_to(typed: str, line: int, signed_in: Client, collected: Collected) -> None:
    attempt = collected({"syslog/gx-01.log": syslog("gx-01", 400)})
    answer = signed_in.get(stream_url(attempt, "syslog/gx-01.log"), {"jump": typed})
    assert answer.status_code == 302 and answer["Location"].endswith(f"?line={line}#L{line}")


@pytest.mark.parametrize("typed", ["20-25", "L20-L25", "25 to 20", " l20 \u2013 25 "])
def test_a_range_that_is_typed_is_picked_and_what_it_is_for_is_kept(
    typed: str, signed_in: Client, collected: Collected
) -> None:
    attempt = collected({"applog/out.log": b"".join(b"line %d\n" % n for n in range(1, 101))})
    answer = signed_in.get(stream_url(attempt, "applog/out.log"), {"jump": typed, "for": "correction"})
    assert answer["Location"] == stream_url(attempt, "applog/out.log") + "?lines=20-25&for=correction#L20-L25"
    page = signed_in.get(answer["Location"]).content.decode()
    assert "Lines 20 to 25 picked" in page and 'name="for" value="correction"' in page
    assert "Add to the correction" not in page, "there is no diagnosis to correct yet"


def test_who_picks_lines_gets_to_a_log_though_nothing_decided(signed_in: Client, collected: Collected) -> None:
    attempt = collected({"applog/out.log": b"a\n", "syslog/gx-01.log": b"b\n", "metrics/a.json": b"{}"})
    first = reverse("evidence-first", args=[attempt.pk])
    assert signed_in.get(first)["Location"] == reverse("attempt", args=[attempt.pk])
    picking = signed_in.get(first + "?for=correction")
    assert picking["Location"] == stream_url(attempt, "applog/out.log") + "?for=correction"
    page = signed_in.get(picking["Location"]).content.decode()
    assert stream_url(attempt, "syslog/gx-01.log") + "?for=correction" in page and "metrics/a.json" not in page


def test_a_jump_that_cannot_be_understood_says_what_can(signed_in: Client, collected: Collected) -> None:
    attempt = collected({"applog/out.log": b"no time here\n" * 5})
    for typed in ("tomorrow", "04:11:57", "25:99"):
        page = signed_in.get(stream_url(attempt, "applog/out.log"), {"jump": typed})
        assert page.status_code == 200 and "leads nowhere" in page.content.decode()


def test_a_time_of_day_falls_on_the_day_of_the_log() -> None:
    first, last = datetime(2026, 11, 2, 22, tzinfo=UTC), datetime(2026, 11, 3, 4, tzinfo=UTC)
    assert typed_moment("23:30", first, last) == datetime(2026, 11, 2, 23, 30, tzinfo=UTC)
    assert typed_moment("03:30:15.25", first, last) == datetime(2026, 11, 3, 3, 30, 15, 250000, tzinfo=UTC)
    assert typed_moment("12:00", None, None) is None


XID = (
    "2026-10-05T02:01:{second:02d}.000000+00:00 gx-01 kernel: NVRM: Xid (PCI:0000:61:00): 149, NETIR_LINK_EVT  Fatal"
    "   XC0 i0 Link 10 (0x004545c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)\n"
)


def test_each_match_of_a_rule_is_marked_with_what_it_means_and_the_rest_folds(
    signed_in: Client, collected: Collected
) -> None:
    quiet = syslog("gx-01", 15).decode()
    content = quiet + "".join(XID.format(second=20 + number) for number in range(8)) + quiet
    attempt = collected({"syslog/gx-01.log": content.encode()})
    page = signed_in.get(stream_url(attempt, "syslog/gx-01.log")).content.decode()
    assert len(re.findall(r'popovertarget="rule-16"', page)) == 9, "eight lines and the button that closes"
    assert page.count('id="rule-16"') == 1 and "What it does not prove" in page
    assert "Lines 1 to 13: nothing matched, 13 lines" in page and "Lines 26 to 38" in page
    assert numbers(page) == list(range(1, 39)), "what is folded is on the page"
    unfolded = signed_in.get(stream_url(attempt, "syslog/gx-01.log", "?fold=0")).content.decode()
    assert "nothing matched" not in unfolded and numbers(unfolded) == list(range(1, 39))
