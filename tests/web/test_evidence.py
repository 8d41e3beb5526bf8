"""The viewer of streams: any line, both ways, whatever the bytes are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from tests.web import stories
from tests.web.conftest import MakeAttempt
from tests.web.test_hostile import FORBIDDEN, SCRIPT, tags_of
from triage.models import Attempt, Stream
from triage.services.bundles import import_bundle
from triage.services.sources import registry
from triage.services.triage import begin_triage
from triage.tasks.collecting import collect

ATTEMPT = """
schema: 1
workload: {id: "7001", name: probe, scheduler: static, cluster: lab, user: ada}
attempt:
  {number: 1, state: FAILED, started_at: 2026-10-05T02:00:00Z, ended_at: 2026-10-05T03:00:00Z, nodes: [gx-01, gx-02]}
"""
Collected = Callable[[dict[str, bytes]], Attempt]


@pytest.fixture
def collected(settings: Any, tmp_path: Path, db: None) -> Iterator[Collected]:
    """An attempt whose files were received and stored, and not diagnosed."""
    settings.FAULTLINE_DATA_DIR = tmp_path / "data"
    registry.cache_clear()

    def make(files: dict[str, bytes]) -> Attempt:
        bundle = tmp_path / "probe"
        for name, content in {"attempt.yaml": ATTEMPT.encode(), **files}.items():
            (bundle / name).parent.mkdir(parents=True, exist_ok=True)
            (bundle / name).write_bytes(content)
        attempt = import_bundle(bundle).attempt
        begin_triage(attempt.pk)
        for collection in attempt.collections.all():
            collect(collection.pk)
        return attempt

    yield make
    registry.cache_clear()


def syslog(node: str, count: int, first_second: int = 0) -> bytes:
    lines = (
        f"2026-10-05T02:{s // 60:02d}:{s % 60:02d}.000000+00:00 {node} kernel: tick {s}\n"
        for s in range(first_second, first_second + count)
    )
    return "".join(lines).encode()


def stream_url(attempt: Attempt, name: str, query: str = "", kind: str = "stream") -> str:
    return reverse(kind, args=[attempt.pk, name]) + query


def numbers(page: str) -> list[int]:
    return [int(number) for number in re.findall(r'<li id="L(\d+)"', page)]


def test_a_line_opens_highlighted_between_its_neighbours(signed_in: Client, collected: Collected) -> None:
    attempt = collected({"syslog/gx-01.log": syslog("gx-01", 400)})
    page = signed_in.get(stream_url(attempt, "syslog/gx-01.log", "?line=200")).content.decode()
    assert numbers(page) == list(range(175, 226))
    assert '<li id="L200" class="cause" aria-current="true">' in page
    assert "400 lines" in page
    up = re.search(r'<a class="btn quiet" href="([^"]+)" hx-get="([^"]+)"', page)
    assert up and up.group(1) == "?first=125&amp;last=225#L174"
    more = signed_in.get(up.group(2).replace("&amp;", "&"), headers={"HX-Request": "true"})
    assert numbers(more.content.decode()) == list(range(125, 175)) and "HX-Request" in more["Vary"]
    assert "Lines 75 to 124" in more.content.decode() and "Lines 175" not in more.content.decode()
    by_hand = signed_in.get(up.group(2).replace("&amp;", "&"))
    assert by_hand.status_code == 302 and by_hand["Location"].endswith("/streams/syslog/gx-01.log?first=125&last=174")


def test_a_byte_offset_leads_to_the_line_that_holds_it(signed_in: Client, collected: Collected) -> None:
    content = syslog("gx-01", 400)
    attempt = collected({"syslog/gx-01.log": content})
    offset = content.index(b"tick 310\n")
    page = signed_in.get(stream_url(attempt, "syslog/gx-01.log", f"?offset={offset}")).content.decode()
    assert re.search(r'<li id="L311" class="cause"', page)


@pytest.mark.parametrize(
    "query", ["?line=999999", "?line=0", "?line=-1", "?line=abc", "?offset=99999999", "?first=9&last=3", "?from=9"]
)
def test_a_place_out_of_range_still_shows_lines(query: str, signed_in: Client, collected: Collected) -> None:
    attempt = collected({"syslog/gx-01.log": syslog("gx-01", 60)})
    answer = signed_in.get(stream_url(attempt, "syslog/gx-01.log", query))
    assert answer.status_code == 200 and numbers(answer.content.decode())


def test_hostile_bytes_are_shown_harmlessly(signed_in: Client, collected: Collected) -> None:
    nasty = b"".join(
        [
            SCRIPT.encode() + b"\n",
            b"\x1b[31mred\x1b[0m\r\n",
            b"progress 1%\rprogress 2%\n",
            b"bad \xff\xfe utf-8 \x00 nul\n",
            "abc\u202edcba\u2066\u200b\n".encode(),
            b'</code></li><li id="L1">\n',
        ]
    )
    attempt = collected({"applog/out.log": nasty})
    page = signed_in.get(stream_url(attempt, "applog/out.log")).content.decode()
    assert not FORBIDDEN.search(page) and SCRIPT not in page
    assert all(tag != "script" or "src" in attributes for tag, attributes in tags_of(page))
    assert numbers(page) == [1, 2, 3, 4, 5, 6], "markup in a line makes no line of its own"
    for shown in (
        "<code>red</code>",
        "progress 1%\u240dprogress 2%",
        "bad \\xff\\xfe utf-8 \u2400 nul",
        "abc\u27e8U+202E\u27e9dcba",
    ):
        assert shown in page, shown


def test_a_line_of_a_megabyte_is_cut_and_can_be_read_to_its_end(signed_in: Client, collected: Collected) -> None:
    long = b"".join(b"<%07d>" % number for number in range(120_000))
    attempt = collected({"applog/out.log": b"first\n" + long + b"\nlast\n"})
    answer = signed_in.get(stream_url(attempt, "applog/out.log", "?line=2"))
    page = answer.content.decode()
    assert len(answer.content) < 40_000 and numbers(page) == [1, 2, 3]
    url, parts, seen = "?line=2&from=0", 0, ""
    while url:
        page = signed_in.get(stream_url(attempt, "applog/out.log", url)).content.decode()
        seen += "".join(re.findall(r"&lt;(\d{7})&gt;", page))[:1]
        parts += 1
        following = re.search(r'<a href="[^"]*(\?line=2&amp;from=\d+)#L2">next part', page)
        url = following.group(1).replace("&amp;", "&") if following else ""
    assert parts == -(-len(long) // 32_768)
    assert "0119999" in page, "the last part holds the line's end"


def test_lines_can_be_kept_as_a_file_byte_by_byte(signed_in: Client, collected: Collected) -> None:
    content = b"one\ntwo \xff\x1b[31m\nthree\nfour"
    attempt = collected({"applog/out.log": content})
    answer = signed_in.get(stream_url(attempt, "applog/out.log", "?first=2&last=3", "stream-raw"))
    assert b"".join(answer.streaming_content) == b"two \xff\x1b[31m\nthree\n"
    assert answer["Content-Type"] == "application/octet-stream" and answer["X-Content-Type-Options"] == "nosniff"
    assert 'filename="' in answer["Content-Disposition"] and answer["Content-Disposition"].startswith("attachment")
    whole = signed_in.get(stream_url(attempt, "applog/out.log", kind="stream-raw"))
    assert b"".join(whole.streaming_content) == content


def test_a_stream_that_was_pruned_says_so(signed_in: Client, collected: Collected) -> None:
    attempt = collected({"applog/out.log": b"gone soon\n"})
    Stream.objects.filter(attempt=attempt).update(blob="")
    answer = signed_in.get(stream_url(attempt, "applog/out.log", "?line=1"))
    assert answer.status_code == 410 and "no longer kept" in answer.content.decode()
    assert signed_in.get(stream_url(attempt, "applog/out.log", kind="stream-raw")).status_code == 404


def test_evidence_survives_its_stream(signed_in: Client, make_attempt: MakeAttempt) -> None:
    page = signed_in.get(reverse("evidence", args=[make_attempt().pk, "e1"])).content.decode()
    assert "The stream is no longer kept" in page
    assert "149, NETIR_LINK_EVT" in page and "quiet before 1" in page and "quiet after 1" in page
    assert (
        "Evidence 1 of 5" in page
        and 'aria-label="Next evidence"' in page
        and 'aria-label="Previous evidence"' not in page
    )


def test_what_the_other_nodes_said_stands_beside_the_line(signed_in: Client, collected: Collected) -> None:
    from tests.web.conftest import diagnose_with
    from triage.models import TriageState

    attempt = collected({"syslog/gx-01.log": syslog("gx-01", 300), "syslog/gx-02.log": syslog("gx-02", 300, 2)})
    line = stories.evidence(
        "e1", "x.y", "syslog/gx-01.log", 121, "tick 120", at="2026-10-05T02:02:00.000000Z", node="gx-01"
    )
    story = stories._changed(stories.no_cause(), evidence=(line,), symptoms=(), timeline=())
    Attempt.objects.filter(pk=attempt.pk).update(triage_state=TriageState.PENDING)
    diagnose_with(attempt, story)
    url = reverse("evidence-moment", args=[attempt.pk, "e1"])
    assert (
        f'hx-get="{url}" hx-trigger="load"'
        in signed_in.get(reverse("evidence", args=[attempt.pk, "e1"])).content.decode()
    )
    assert signed_in.get(url)["Location"].endswith("/evidence/e1/?lanes=1"), "without htmx the page shows them"
    assert "tick 121" in signed_in.get(signed_in.get(url)["Location"]).content.decode()
    lanes = signed_in.get(url, headers={"HX-Request": "true"}).content.decode()
    assert "syslog/gx-02.log" in lanes and "tick 120" in lanes and "same second" in lanes and "tick 121" in lanes
    assert "syslog/gx-01.log" not in lanes


def test_an_unknown_evidence_or_stream_is_not_found(signed_in: Client, make_attempt: MakeAttempt) -> None:
    pk = make_attempt().pk
    assert signed_in.get(f"/attempts/{pk}/evidence/e99/").status_code == 404
    assert signed_in.get(f"/attempts/{pk}/streams/../../etc/passwd").status_code == 404
    assert signed_in.get(f"/attempts/{pk}/streams/syslog%2Fnope.log").status_code == 404
