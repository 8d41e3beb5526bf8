"""The list of failures."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.test import Client
from django.urls import reverse

from tests.web import stories
from tests.web.conftest import MakeAttempt
from triage.selectors import facets


def titles(client: Client, query: str = "") -> list[str]:
    page = client.get(f"/{query}")
    assert page.status_code == 200
    return re.findall(r'<td class="why"><a[^>]*>(.*?)</a>', page.content.decode())


def test_a_row_says_why_where_whose_and_how_long(signed_in: Client, make_attempt: MakeAttempt) -> None:
    make_attempt()
    page = signed_in.get("/").content.decode()
    for words in (
        "NVLink signal-integrity fault on gx-02 (Xid 149)",
        "Hardware",
        "NVLink",
        ">gx-02</a>",
        "llama-70b",
        "ada",
        "c1",
        "76.0<span",
        "Unconfirmed",
        'datetime="2026-10-05T04:22:31Z"',
    ):
        assert words in page, words


def test_the_newest_comes_first_and_successes_are_only_counted(signed_in: Client, make_attempt: MakeAttempt) -> None:
    make_attempt(stories.key_error())
    make_attempt(stories.nvlink(), ended_at=stories.later(1))
    make_attempt(stories.succeeded(), ended_at=stories.later(2))
    assert [title[:8] for title in titles(signed_in)] == ["NVLink s", "KeyError"]
    assert "1 that succeeded</a> is not listed" in signed_in.get("/").content.decode()
    assert titles(signed_in, "?outcome=succeeded") == ["The attempt succeeded"]


def test_a_list_that_is_too_long_to_count_says_since_when_it_counted(
    signed_in: Client, make_attempt: MakeAttempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    for hours in range(3):
        make_attempt(ended_at=stories.later(hours))
    whole = signed_in.get("/").content.decode()
    assert "3 attempts," in whole and "not counted" not in whole
    monkeypatch.setattr(facets, "COUNTED", 1)
    page = signed_in.get("/").content.decode()
    assert re.search(r"2 attempts since <time[^>]*>[^<]*</time>,", page), "two of three, and since when"
    assert "What ended earlier is listed, but not counted" in page and len(titles(signed_in)) == 3
    assert "The boxes count what ended since <time" in page
    assert "all that match" in page, "no number that would promise too little"


def test_filters_are_in_the_url_and_combine(signed_in: Client, make_attempt: MakeAttempt) -> None:
    make_attempt(stories.nvlink())
    make_attempt(stories.key_error(), user="ben", cluster="c2")
    make_attempt(stories.no_cause(), user="ben")
    assert len(titles(signed_in)) == 3
    assert titles(signed_in, "?domain=hardware") == ["NVLink signal-integrity fault on gx-02 (Xid 149)"]
    assert len(titles(signed_in, "?domain=hardware&domain=software")) == 2
    assert titles(signed_in, "?user=ben&cluster=c1") == ["No cause in the evidence"]
    assert len(titles(signed_in, "?node=gx-02")) == 1
    assert len(titles(signed_in, "?node=none")) == 2
    assert titles(signed_in, "?text=input_ids") == ["KeyError: &#x27;input_ids&#x27; in collate_fn"]
    assert titles(signed_in, "?since=2026-10-06") == []
    assert len(titles(signed_in, "?until=2026-10-05")) == 3, "the last day is meant whole"
    assert titles(signed_in, "?ended=24h") == []


def test_facets_count_what_another_choice_would_give(signed_in: Client, make_attempt: MakeAttempt) -> None:
    make_attempt(stories.nvlink())
    make_attempt(stories.key_error())
    page = signed_in.get("/?domain=hardware").content.decode()
    software = re.search(r'<label><input type="checkbox" name="domain" value="software">.*?</label>', page)
    assert software and software.group().endswith("<span>1</span></label>")
    assert re.search(r'name="domain" value="hardware" checked', page)
    user = re.search(r'name="user" value="ada">.*?</label>', page)
    assert user and user.group().endswith("<span>1</span></label>"), "other facets respect the domain"
    none = re.search(r'name="node" value="none">.*?</label>', page)
    assert none is None, "no hardware failure blames no node"


def test_pages_go_older_and_back_without_losing_or_doubling_a_row(signed_in: Client, make_attempt: MakeAttempt) -> None:
    for number in range(53):
        make_attempt(None, ended_at=stories.END + timedelta(minutes=number // 3), name=f"job-{number}")
    seen: list[str] = []
    address = "/?user=ada"
    pages = []
    while address:
        page = signed_in.get(address).content.decode()
        pages.append(page)
        seen += re.findall(r'<tr id="a-(\d+)"', page)
        older = re.search(r'<a href="([^"]+)" rel="next">', page)
        address = older.group(1).replace("&amp;", "&") if older else ""
    assert len(pages) == 2
    assert len(seen) == len(set(seen)) == 53
    newer = re.search(r'<a href="([^"]+)" rel="prev">', pages[1])
    assert newer
    back = signed_in.get(newer.group(1).replace("&amp;", "&")).content.decode()
    assert re.findall(r'<tr id="a-(\d+)"', back) == seen[:50]


def test_a_broken_cursor_leads_to_the_newest_with_the_filters_kept(signed_in: Client) -> None:
    answer = signed_in.get("/?domain=hardware&cursor=nonsense")
    assert answer.status_code == 302
    assert answer["Location"] == "/?q=domain:hardware"


def test_nothing_yet_and_nothing_matches_each_name_a_next_step(signed_in: Client, make_attempt: MakeAttempt) -> None:
    assert "No failures yet" in signed_in.get("/").content.decode()
    make_attempt()
    page = signed_in.get("/?domain=storage&user=ada").content.decode()
    assert "Nothing matches these filters" in page
    assert '<a class="btn" href="/?q=user:ada">Drop domain:storage (1)</a>' in page


def test_an_attempt_that_is_still_collecting_or_failed_says_so(signed_in: Client, make_attempt: MakeAttempt) -> None:
    waiting = make_attempt(None)
    failed = make_attempt(None)
    type(failed).objects.filter(pk=failed.pk).update(triage_state="failed", triage_reason="applog/x.log: disk full")
    page = signed_in.get("/").content.decode()
    assert "Not diagnosed yet" in page and "Waiting for a worker" in page
    assert "Triage failed: applog/x.log: disk full" in page
    assert f"{waiting.pk}:pending" in page, "its state is polled"


def poll_url(page: str) -> str:
    match = re.search(r'id="poll" data-poll hx-get="([^"]+)"', page)
    assert match
    return match.group(1).replace("&amp;", "&")


def test_new_failures_are_announced_and_rows_stay_where_they_are(signed_in: Client, make_attempt: MakeAttempt) -> None:
    make_attempt()
    url = poll_url(signed_in.get("/?user=ada").content.decode())
    quiet = signed_in.get(url, headers={"HX-Request": "true"})
    assert quiet.status_code == 200 and b" new</span>" not in quiet.content
    again = signed_in.get(url, headers={"HX-Request": "true", "If-None-Match": quiet["ETag"]})
    assert again.status_code == 304 and not again.content
    make_attempt(ended_at=stories.later(1))
    make_attempt(ended_at=stories.later(1), user="ben")
    news = signed_in.get(url, headers={"HX-Request": "true", "If-None-Match": quiet["ETag"]})
    assert "<span>1 new</span>" in news.content.decode()
    assert 'href="/?q=user:ada">Show it</a>' in news.content.decode()
    assert "<tr" not in news.content.decode()


def test_a_row_that_was_waiting_is_replaced_in_place_once_it_is_diagnosed(
    signed_in: Client, make_attempt: MakeAttempt
) -> None:
    from tests.web.conftest import diagnose_with

    waiting = make_attempt(None)
    url = poll_url(signed_in.get("/").content.decode())
    before = signed_in.get(url, headers={"HX-Request": "true"})
    assert b"<template>" not in before.content
    diagnose_with(waiting, stories.nvlink())
    after = signed_in.get(url, headers={"HX-Request": "true", "If-None-Match": before["ETag"]}).content.decode()
    assert f'<template><tr id="a-{waiting.pk}" hx-swap-oob="true"' in after
    assert "NVLink signal-integrity fault" in after
    assert "rows=" not in poll_url(after), "it is not asked for again"


def test_a_poll_opened_by_hand_leads_to_the_page(signed_in: Client, make_attempt: MakeAttempt) -> None:
    make_attempt()
    answer = signed_in.get(reverse("failures-news") + "?top=1&user=ada")
    assert answer.status_code == 302 and answer["Location"] == "/?q=user:ada"


def test_a_fragment_varies_on_the_header_that_makes_it(signed_in: Client) -> None:
    answer = signed_in.get(reverse("failures-news") + "?top=0", headers={"HX-Request": "true"})
    assert "HX-Request" in answer["Vary"]


def test_a_session_that_expired_inside_a_poll_sends_the_whole_page_to_sign_in(client: Client, db: None) -> None:
    answer = client.get(
        reverse("failures-news") + "?top=0",
        headers={"HX-Request": "true", "HX-Current-URL": "http://testserver/?domain=hardware"},
    )
    assert answer.status_code == 401
    assert answer["HX-Redirect"] == "/sign-in/?next=/%3Fdomain%3Dhardware"
